import { Webhook } from "standardwebhooks";

import { standardHeaders } from "../signing.mjs";

export const library = "standardwebhooks";
export const secret = `whsec_${Buffer.from("made for tests, of 32 bytes, yes").toString("base64")}`;
export const looksAtTime = true;

/** GitLab follows Standard Webhooks; the type is in a header of its own. */
export function judge({ body, headers }, secret) {
  new Webhook(secret).verify(body, headers);
  return { id: headers["webhook-id"] };
}

export function sign(event, secret) {
  return { "x-gitlab-event": event.type, ...standardHeaders(new Webhook(secret), event) };
}

export const sample = {
  id: "f5e5f430-f57b-4e6e-9fac-d9128cd7232f",
  type: "Push Hook",
  body: '{"object_kind":"push","ref":"refs/heads/main"}',
};
