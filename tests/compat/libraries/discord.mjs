import { createPrivateKey, sign as signWith } from "node:crypto";

import { verifyKey } from "discord-interactions";

// A key pair of the test: the source's secret is the public key in hex.
const privateKey = createPrivateKey({
  format: "jwk",
  key: {
    kty: "OKP",
    crv: "Ed25519",
    d: "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
    x: "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
  },
});

export const library = "discord-interactions";
export const secret = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

export async function judge({ body, headers }, secret) {
  const { "x-signature-ed25519": signature, "x-signature-timestamp": timestamp } = headers;
  if (!(await verifyKey(body, signature, timestamp, secret))) return false;
  const event = JSON.parse(body);
  return { id: event.id, type: event.event?.type };
}

// The library only verifies.
export function sign({ body, at }) {
  const signature = signWith(null, Buffer.from(`${at}${body}`), privateKey).toString("hex");
  return { "X-Signature-Ed25519": signature, "X-Signature-Timestamp": String(at) };
}
export const sample = {
  type: "APPLICATION_AUTHORIZED",
  body: '{"version":1,"application_id":"1","type":1,"event":{"type":"APPLICATION_AUTHORIZED","timestamp":"2026-10-18T14:42:53.064834","data":{}}}',
};
