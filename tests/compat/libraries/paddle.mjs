import { Paddle } from "@paddle/paddle-node-sdk";

export const library = "@paddle/paddle-node-sdk";
export const secret = "pdl_ntfset_made-for-tests";
export const looksAtTime = true;

const paddle = new Paddle("made-for-tests");

export async function judge({ body, headers }, secret) {
  const text = body.toString();
  if (!(await paddle.webhooks.isSignatureValid(text, secret, headers["paddle-signature"]))) return false;
  // unmarshal() would need all fields of the entity
  const { event_id: id, event_type: type } = JSON.parse(text);
  return { id, type };
}
