import { verifySlackRequest } from "@slack/bolt";

export const library = "@slack/bolt";
export const secret = "made-for-tests-made-for-tests";
export const looksAtTime = true;

export function judge({ body, headers }, secret) {
  verifySlackRequest({ signingSecret: secret, body: body.toString(), headers });
  const event = JSON.parse(body);
  return { id: event.event_id, type: event.event.type };
}
