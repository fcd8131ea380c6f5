import Telnyx from "telnyx";

import { ed25519 } from "../signing.mjs";

const key = ed25519(); // the source's secret is the public key in base64

export const library = "telnyx";
export const secret = key.publicKey.toString("base64");
export const looksAtTime = true;

export async function judge({ body, headers }, key) {
  const telnyx = new Telnyx({ apiKey: "none" });
  const { data } = await telnyx.webhooks.unwrap(body.toString(), { headers, key });
  return { id: data.id, type: data.event_type };
}

// The library only verifies.
export function sign({ body, at }) {
  const signature = key.sign(`${at}|${body}`).toString("base64");
  return { "Telnyx-Signature-Ed25519": signature, "Telnyx-Timestamp": String(at) };
}
export const sample = {
  id: "0ccc7b54-4df3-4bca-a65a-3da1ecc777f0",
  type: "message.received",
  body: '{"data":{"record_type":"event","event_type":"message.received","id":"0ccc7b54-4df3-4bca-a65a-3da1ecc777f0","payload":{}}}',
};
