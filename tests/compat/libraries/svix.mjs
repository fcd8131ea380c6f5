import { Webhook } from "svix";

import { standardHeaders } from "../signing.mjs";

export const library = "svix";
export const secret = "whsec_bWFkZSBmb3IgdGVzdHMsIDI0IGJ5dGVz";
export const looksAtTime = true;

/** The library gives nothing back: id and type are read as its documentation does. */
export function judge({ body, headers }, secret) {
  new Webhook(secret).verify(body, headers);
  return { id: headers["svix-id"], type: JSON.parse(body).type };
}

export function sign(event, secret) {
  return standardHeaders(new Webhook(secret), event, "svix");
}

export const sample = { id: "msg_1", type: "invoice.paid", body: '{"type":"invoice.paid","data":{"id":"in_1"}}' };
