import { createRequire } from "node:module";

// Its modules of the other kind do not load in Node.
const { computeWebhookSignature } = createRequire(import.meta.url)("box-node-sdk/lib/internal/utils");
const { WebhooksManager } = createRequire(import.meta.url)("box-node-sdk/lib/managers/webhooks");

export const library = "box-node-sdk";
export const secret = "made-for-tests-made-for-tests";
export const looksAtTime = true;

/** Every request has these; the receiver needs neither. */
const FIXED = { "box-signature-version": "1", "box-signature-algorithm": "HmacSHA256" };

export async function judge({ body, headers }, secret) {
  const text = body.toString();
  if (!(await WebhooksManager.validateMessage(text, { ...FIXED, ...headers }, secret))) return false;
  const { id, trigger } = JSON.parse(text); // as in Box's guide: it parses no events
  return { id, type: trigger };
}

export async function sign({ body, at }, secret) {
  const headers = { ...FIXED, "box-delivery-timestamp": new Date(at * 1000).toISOString().replace(".000Z", "+00:00") };
  return {
    ...headers,
    "box-delivery-id": "made-for-tests-1",
    "box-signature-primary": await computeWebhookSignature(body, headers, secret),
  };
}

export const sample = {
  id: "eb0c4e06-751f-442c-86f8-000000000001",
  type: "FILE.UPLOADED",
  body:
    '{"type":"webhook_event","id":"eb0c4e06-751f-442c-86f8-000000000001","created_at":"2026-01-01T00:00:00-07:00",' +
    '"trigger":"FILE.UPLOADED","webhook":{"id":"1","type":"webhook"},"source":{"id":"2","type":"file"}}',
};
