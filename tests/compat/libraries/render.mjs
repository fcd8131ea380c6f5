import { Webhook } from "standardwebhooks";

export const library = "standardwebhooks";
export const secret = `whsec_${Buffer.from("made for tests, 24 bytes").toString("base64")}`;
export const looksAtTime = true;

export function judge({ body, headers }, secret) {
  const event = new Webhook(secret).verify(body.toString(), headers);
  return { id: headers["webhook-id"], type: event.type };
}

export function sign({ body, id, at }, secret) {
  const signature = new Webhook(secret).sign(id, new Date(at * 1000), body);
  return { "webhook-id": id, "webhook-timestamp": String(at), "webhook-signature": signature };
}

export const sample = { id: "evt-1", type: "deploy_ended", body: '{"type":"deploy_ended","data":{"id":"evj-1"}}' };
