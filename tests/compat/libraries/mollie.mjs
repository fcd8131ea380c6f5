import { SignatureValidator } from "mollie-api-typescript";

export const library = "mollie-api-typescript";
export const secret = "made-for-tests-made-for-tests";

export async function judge({ body, headers }, secret) {
  // Node joins two lines of a header.
  const signatures = headers["x-mollie-signature"]?.split(", ");
  if (!(await new SignatureValidator(secret).validatePayload(body.toString(), signatures))) return false;
  const event = JSON.parse(body);
  return { id: event.id, type: event.type };
}

export async function sign({ body }, secret) {
  return { "x-mollie-signature": `sha256=${await SignatureValidator.createSignature(body, secret)}` };
}

export const sample = {
  id: "event_GvJ8WHrp5isUdRub9CJyH",
  type: "payment-link.paid",
  body: '{"resource":"event","id":"event_GvJ8WHrp5isUdRub9CJyH","type":"payment-link.paid","entityId":"pl_1"}',
};
