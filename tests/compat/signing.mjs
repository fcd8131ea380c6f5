// How a sender signs, where its library only verifies or leaves the headers to its caller.

import { generateKeyPairSync, sign } from "node:crypto";

/** The headers of Standard Webhooks, by a library's `Webhook`; `at` in seconds since 1970. */
export const standardHeaders = (webhook, { id, at, body }, prefix = "webhook") => ({
  [`${prefix}-id`]: id,
  [`${prefix}-timestamp`]: String(at),
  [`${prefix}-signature`]: webhook.sign(id, new Date(at * 1000), body),
});

/** A new Ed25519 key pair: the 32 bytes of the public key, and a signature over a text. */
export function ed25519() {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  return {
    publicKey: Buffer.from(publicKey.export({ format: "jwk" }).x, "base64url"),
    sign: (text) => sign(null, Buffer.from(text), privateKey),
  };
}
