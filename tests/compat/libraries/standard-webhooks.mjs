import { Webhook } from "standardwebhooks";

import { standardHeaders } from "../signing.mjs";

export const library = "standardwebhooks";
export const secret = "whsec_bWFkZSBmb3IgdGVzdHMsIDI0IGJ5dGVz";
export const looksAtTime = true;

export function judge({ body, headers }, secret) {
  const event = new Webhook(secret).verify(body, headers);
  return { id: headers["webhook-id"], type: event.type };
}

export function sign(event, secret) {
  return standardHeaders(new Webhook(secret), event);
}

export const sample = { id: "msg_1", type: "invoice.paid", body: '{"type":"invoice.paid","data":{"id":"in_1"}}' };
