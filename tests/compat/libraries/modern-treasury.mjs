import ModernTreasury from "modern-treasury";

export const library = "modern-treasury";
export const secret = "made-for-tests-made-for-tests";

const client = new ModernTreasury({ apiKey: "none", organizationID: "none" });

/** It checks the signature alone; id and type are in headers that it does not read. */
export function judge({ body, headers }, secret) {
  return client.webhooks.validateSignature(body.toString(), headers, { key: secret }) && {};
}

export function sign({ body, id, type }, secret) {
  return {
    "content-type": "application/json",
    "x-webhook-id": id,
    "x-topic": type.split(".")[0],
    "x-signature": client.webhooks.getSignature(body, { key: secret }),
  };
}

export const sample = {
  id: "made-for-tests-1",
  type: "expected_payment.created",
  body: '{"event":"created","data":{"id":"ep_1","object":"expected_payment"}}',
};
