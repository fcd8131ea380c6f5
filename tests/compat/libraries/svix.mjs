import { Webhook } from "svix";

export const library = "svix";
export const secret = "whsec_bWFkZSBmb3IgdGVzdHMsIDI0IGJ5dGVz";
export const looksAtTime = true;

/** The library gives nothing back: id and type are read as its documentation does. */
export function judge({ body, headers }, secret) {
  new Webhook(secret).verify(body, headers);
  return { id: headers["svix-id"], type: JSON.parse(body).type };
}

export function sign({ body, id, at }, secret) {
  const signature = new Webhook(secret).sign(id, new Date(at * 1000), body);
  return { "svix-id": id, "svix-timestamp": String(at), "svix-signature": signature };
}

export const sample = { id: "msg_1", type: "invoice.paid", body: '{"type":"invoice.paid","data":{"id":"in_1"}}' };
