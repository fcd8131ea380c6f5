import { LinearWebhookClient } from "@linear/sdk/webhooks";

export const library = "@linear/sdk";
export const secret = "made-for-tests-made-for-tests";
export const looksAtTime = true;

/** It refuses a time of over a minute, and so each of Linear's re-sends. It reads no id. */
export function judge({ body, headers }, secret) {
  const payload = new LinearWebhookClient(secret).parseData(body, headers["linear-signature"]);
  return { type: payload.type };
}
