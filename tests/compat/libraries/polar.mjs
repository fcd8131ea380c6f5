import { webhooks } from "@polar-sh/sdk/2026-10";

export const library = "@polar-sh/sdk";
export const secret = `whsec_${Buffer.from("made for tests, 24 bytes").toString("base64")}`;
export const looksAtTime = true;

/** It gives the body alone: the id is in the header. A type that it does not know throws. */
export async function judge({ body, headers }, secret) {
  const event = await webhooks.validateEvent(body, headers, secret);
  return { id: headers["webhook-id"], type: event.type };
}
