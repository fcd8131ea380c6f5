import { signatureHelper } from "@kontent-ai/webhook-helper";

export const library = "@kontent-ai/webhook-helper";
export const secret = "made-for-tests-made-for-tests";

export function judge({ body, headers }, secret) {
  const text = body.toString();
  if (!signatureHelper.isValidSignatureFromString(text, secret, headers["x-kontent-ai-signature"])) return false;
  const [{ message }] = JSON.parse(text).notifications; // its WebhookResponse
  return { type: `${message.object_type}.${message.action}` };
}

export function sign({ body }, secret) {
  return { "X-Kontent-ai-Signature": signatureHelper.getHashFromString(body, secret) };
}

export const sample = {
  type: "content_item.published",
  body:
    '{"notifications":[{"data":{"system":{"id":"1","name":"Home","codename":"home",' +
    '"last_modified":"2026-01-01T00:00:00Z"}},"message":{"environment_id":"2","object_type":"content_item",' +
    '"action":"published","delivery_slot":"published"}}]}',
};
