import { verifyKey } from "discord-interactions";

import { ed25519 } from "../signing.mjs";

const key = ed25519(); // the source's secret is the public key in hex

export const library = "discord-interactions";
export const secret = key.publicKey.toString("hex");

export async function judge({ body, headers }, secret) {
  const { "x-signature-ed25519": signature, "x-signature-timestamp": timestamp } = headers;
  if (!(await verifyKey(body, signature, timestamp, secret))) return false;
  const event = JSON.parse(body);
  return { id: event.id, type: event.event?.type };
}

// The library only verifies.
export function sign({ body, at }) {
  const signature = key.sign(`${at}${body}`).toString("hex");
  return { "X-Signature-Ed25519": signature, "X-Signature-Timestamp": String(at) };
}
export const sample = {
  type: "APPLICATION_AUTHORIZED",
  body: '{"version":1,"application_id":"1","type":1,"event":{"type":"APPLICATION_AUTHORIZED","timestamp":"2026-10-18T14:42:53.064834","data":{}}}',
};
