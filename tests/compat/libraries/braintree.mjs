import { parse } from "node:querystring";

import braintree from "braintree";

export const library = "braintree";
export const secret = "made-for-tests-made-for-tests";
export const settings = 'sender = "key_made_for_tests"';
export const unsent = "the body has the signature, and send makes none";

const gateway = (privateKey) =>
  new braintree.BraintreeGateway({
    environment: braintree.Environment.Sandbox, merchantId: "m", publicKey: "key_made_for_tests", privateKey,
  });

/** The type alone: a notification has no id. */
export async function judge({ body }, secret) {
  const { bt_signature, bt_payload } = parse(body.toString());
  const { kind } = await gateway(secret).webhookNotification.parse(bt_signature, bt_payload);
  return { type: kind };
}

export async function sign({ type }, secret) {
  const fields = await gateway(secret).webhookTesting.sampleNotification(type, "s1");
  const headers = { "content-type": "application/x-www-form-urlencoded" };
  return { headers, body: new URLSearchParams(fields).toString() };
}
export const sample = { type: "subscription_went_past_due" };
