import { verifyWebhookSignature } from "hook0-client";

export const library = "hook0-client";
export const secret = "made-for-tests-made-for-tests";
export const looksAtTime = true;

export function judge({ body, headers }, secret) {
  verifyWebhookSignature(headers["x-hook0-signature"], body, new Headers(headers), secret, 300);
  return { id: undefined, type: JSON.parse(body).eventType };
}
