import twilio from "twilio";

export const library = "twilio";
export const secret = "made-for-tests-made-for-tests";
export const settings = 'public_url = "https://hooks.example.org"';

export function judge({ body, headers, url }, secret) {
  const fields = Object.fromEntries(new URLSearchParams(body.toString()));
  const algorithm = twilio.getSignatureAlgorithm?.(headers["x-twilio-webhooks-signature-settings"]);
  if (!twilio.validateRequest(secret, headers["x-twilio-signature"], url, fields, algorithm)) return false;
  return { id: headers["i-twilio-idempotency-token"], type: fields.MessageStatus ?? fields.CallStatus };
}
