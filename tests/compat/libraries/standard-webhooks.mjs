import { Webhook } from "standardwebhooks";

export const library = "standardwebhooks";
export const secret = "whsec_bWFkZSBmb3IgdGVzdHMsIDI0IGJ5dGVz";
export const looksAtTime = true;

export function judge({ body, headers }, secret) {
  const event = new Webhook(secret).verify(body, headers);
  return { id: headers["webhook-id"], type: event.type };
}

export function sign({ body, id, at }, secret) {
  const signature = new Webhook(secret).sign(id, new Date(at * 1000), body);
  return { "webhook-id": id, "webhook-timestamp": String(at), "webhook-signature": signature };
}

export const sample = { id: "msg_1", type: "invoice.paid", body: '{"type":"invoice.paid","data":{"id":"in_1"}}' };
