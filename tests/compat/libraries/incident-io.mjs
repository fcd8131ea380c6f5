import { Webhook } from "svix";

import { standardHeaders } from "../signing.mjs";

export const library = "svix";
export const secret = `whsec_${Buffer.from("made for tests, 24 bytes").toString("base64")}`;
export const looksAtTime = true;

/** incident.io sends through Svix, under the names webhook-…, which the library reads too. It parses nothing. */
export function judge({ body, headers }, secret) {
  new Webhook(secret).verify(body.toString(), headers);
  return { id: headers["webhook-id"], type: JSON.parse(body).event_type };
}

export function sign(event, secret) {
  return standardHeaders(new Webhook(secret), event);
}

export const sample = {
  id: "msg_1",
  type: "public_incident.incident_created_v2",
  body: '{"event_type":"public_incident.incident_created_v2","public_incident.incident_created_v2":{"id":"01"}}',
};
