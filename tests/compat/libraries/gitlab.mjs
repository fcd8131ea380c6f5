import { Webhook } from "standardwebhooks";

export const library = "standardwebhooks";
export const secret = `whsec_${Buffer.from("made for tests, of 32 bytes, yes").toString("base64")}`;
export const looksAtTime = true;

/** GitLab follows Standard Webhooks; the type is in a header of its own. */
export function judge({ body, headers }, secret) {
  new Webhook(secret).verify(body, headers);
  return { id: headers["webhook-id"] };
}

export function sign({ body, id, type, at }, secret) {
  return {
    "content-type": "application/json",
    "x-gitlab-event": type,
    "webhook-id": id,
    "webhook-timestamp": String(at),
    "webhook-signature": new Webhook(secret).sign(id, new Date(at * 1000), body),
  };
}

export const sample = {
  id: "f5e5f430-f57b-4e6e-9fac-d9128cd7232f",
  type: "Push Hook",
  body: '{"object_kind":"push","ref":"refs/heads/main"}',
};
