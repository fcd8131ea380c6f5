import { validateSignature } from "@line/bot-sdk";

export const library = "@line/bot-sdk";
export const secret = "made-for-tests-made-for-tests";

export function judge({ body, headers }, secret) {
  if (!validateSignature(body, secret, headers["x-line-signature"])) return false;
  const [event] = JSON.parse(body).events;
  return { id: event.webhookEventId, type: event.type };
}
