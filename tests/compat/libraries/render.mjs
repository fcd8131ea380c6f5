import { Webhook } from "standardwebhooks";

import { standardHeaders } from "../signing.mjs";

export const library = "standardwebhooks";
export const secret = `whsec_${Buffer.from("made for tests, 24 bytes").toString("base64")}`;
export const looksAtTime = true;

export function judge({ body, headers }, secret) {
  const event = new Webhook(secret).verify(body.toString(), headers);
  return { id: headers["webhook-id"], type: event.type };
}

export function sign(event, secret) {
  return standardHeaders(new Webhook(secret), event);
}

export const sample = { id: "evt-1", type: "deploy_ended", body: '{"type":"deploy_ended","data":{"id":"evj-1"}}' };
