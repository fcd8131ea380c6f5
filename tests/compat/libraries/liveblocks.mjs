import { WebhookHandler } from "@liveblocks/node";

export const library = "@liveblocks/node";
export const secret = `whsec_${Buffer.from("made for tests, 24 bytes").toString("base64")}`;
export const looksAtTime = true;

export function judge({ body, headers }, secret) {
  const event = new WebhookHandler(secret).verifyRequest({ headers, rawBody: body.toString() });
  return { id: headers["webhook-id"], type: event.type };
}
