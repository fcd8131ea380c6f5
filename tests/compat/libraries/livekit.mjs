import { createHash } from "node:crypto";

import { AccessToken, WebhookReceiver } from "livekit-server-sdk";

const KEY = "APImadefortests";

export const library = "livekit-server-sdk";
export const secret = "made-for-tests-made-for-tests-made-for-tests";
export const looksAtTime = true;
export const unsent = "the receiver knows no API key, which the library wants as the token's issuer";

export async function judge({ body, headers }, secret) {
  const event = await new WebhookReceiver(KEY, secret).receive(body.toString(), headers.authorization);
  return { id: event.id, type: event.event };
}

export async function sign({ body, at }, secret) {
  const token = new AccessToken(KEY, secret, { ttl: at + 300 - Math.floor(Date.now() / 1000) });
  token.sha256 = createHash("sha256").update(body).digest("base64");
  return { Authorization: await token.toJwt(), "Content-Type": "application/webhook+json" };
}
export const sample = {
  id: "EV_madefortests",
  type: "room_started",
  body: '{"event":"room_started","id":"EV_madefortests","createdAt":"1795811989","room":{"sid":"RM_1","name":"a"}}',
};
