import DodoPayments from "dodopayments";

export const library = "dodopayments";
export const secret = `whsec_${Buffer.from("made for tests, 24 bytes").toString("base64")}`;
export const looksAtTime = true;

const dodo = new DodoPayments({ bearerToken: "made-for-tests" });

export function judge({ body, headers }, key) {
  const event = dodo.webhooks.unwrap(body.toString(), { headers, key });
  return { id: headers["webhook-id"], type: event.type };
}
