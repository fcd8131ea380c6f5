import Lithic from "lithic";

export const library = "lithic";
export const secret = `whsec_${Buffer.from("made for tests, 24 bytes").toString("base64")}`;
export const looksAtTime = true;

const lithic = new Lithic({ apiKey: "made-for-tests" });

export function judge({ body, headers }, secret) {
  const event = lithic.webhooks.parse(body.toString(), { headers, secret });
  return { id: headers["webhook-id"], type: event.event_type };
}
