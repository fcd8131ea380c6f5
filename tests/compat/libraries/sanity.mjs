import { assertValidSignature, encodeSignatureHeader } from "@sanity/webhook";

export const library = "@sanity/webhook";
export const secret = "made-for-tests-made-for-tests";

/** It looks at the signature alone, and at no time. */
export async function judge({ body, headers }, secret) {
  await assertValidSignature(body.toString(), headers["sanity-webhook-signature"], secret);
  return { id: headers["idempotency-key"] };
}

export async function sign({ id, type, body, at }, secret) {
  return {
    "sanity-webhook-signature": await encodeSignatureHeader(body, at * 1000, secret),
    "idempotency-key": id,
    "sanity-operation": type,
  };
}

export const sample = { id: "made-for-tests-1", type: "update", body: '{"_id":"page-1","_type":"page"}' };
