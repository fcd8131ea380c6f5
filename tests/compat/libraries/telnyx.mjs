import { createPrivateKey, sign as signWith } from "node:crypto";

import Telnyx from "telnyx";

// A key pair of the test: the source's secret is the public key in base64.
const privateKey = createPrivateKey({
  format: "jwk",
  key: {
    kty: "OKP",
    crv: "Ed25519",
    d: "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
    x: "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
  },
});

export const library = "telnyx";
export const secret = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
export const looksAtTime = true;

export async function judge({ body, headers }, key) {
  const telnyx = new Telnyx({ apiKey: "none" });
  const { data } = await telnyx.webhooks.unwrap(body.toString(), { headers, key });
  return { id: data.id, type: data.event_type };
}

// The library only verifies.
export function sign({ body, at }) {
  const signature = signWith(null, Buffer.from(`${at}|${body}`), privateKey).toString("base64");
  return { "Telnyx-Signature-Ed25519": signature, "Telnyx-Timestamp": String(at) };
}
export const sample = {
  id: "0ccc7b54-4df3-4bca-a65a-3da1ecc777f0",
  type: "message.received",
  body: '{"data":{"record_type":"event","event_type":"message.received","id":"0ccc7b54-4df3-4bca-a65a-3da1ecc777f0","payload":{}}}',
};
