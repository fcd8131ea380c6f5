// Standard Webhooks: events of every shape that its library signs.

import { randomBytes } from "node:crypto";
import { Webhook } from "standardwebhooks";

import { JSON_TYPE } from "./delivery.mjs";
import { standardHeaders } from "./signing.mjs";

const SOURCE = "standard";

export const sources = [SOURCE];

/** Data of events: what a JSON library could write differently from how it was read. */
const DATA = [
  {},
  { text: 'Ærø 漢字 🚲 \u2028 \\ " / <&>' },
  { numbers: [0, -0.5, 1e21, 9007199254740991] },
  { nested: { nested: { nested: [[[{}]]] } } },
  { type: "not.the.type", id: "not_the_id" },
  { large: "x".repeat(200_000) },
];
const TYPES = ["contact.created", "contact.updated", "invoice.paid", "user_2.sign-in", "ping"];

const newId = () => `msg_${randomBytes(12).toString("hex")}`;
const secondsAgo = (seconds) => new Date(Date.now() - seconds * 1000);

function request(webhook, id, time, body) {
  return {
    headers: { ...JSON_TYPE, ...standardHeaders(webhook, { id, at: Math.floor(time / 1000), body }) },
    body,
  };
}

/** The id stays when a message is sent again; the time and so the signature are new. */
export async function deliveries(secrets) {
  const webhook = new Webhook(secrets[SOURCE]);
  return TYPES.flatMap((type) =>
    DATA.map((data) => {
      const id = newId();
      const body = JSON.stringify({ type, timestamp: secondsAgo(5).toISOString(), data });
      const first = request(webhook, id, secondsAgo(5), body);
      // A sender that rotates its secret, or that also signs with a key pair, sends a list.
      first.headers["webhook-signature"] = `v1a,AAAA v1,AAAA ${first.headers["webhook-signature"]}`;
      return { source: SOURCE, id, type, first, again: request(webhook, id, secondsAgo(0), body) };
    }),
  );
}

/** What no such sender sent, or sent too long ago. */
export async function forgeries(secrets) {
  const webhook = new Webhook(secrets[SOURCE]);
  const other = new Webhook(newSecret());
  const body = JSON.stringify({ type: "invoice.paid", timestamp: secondsAgo(0).toISOString(), data: {} });
  const forge = (what, signer, time, change = (request) => request) => {
    const id = newId();
    const forged = change(request(signer, id, time, body));
    return {
      source: SOURCE,
      id: forged.headers["webhook-id"],
      what,
      request: forged,
      library: () => webhook.verify(forged.body, forged.headers),
    };
  };
  return [
    forge("signed with another secret", other, secondsAgo(0)),
    forge("body changed after signing", webhook, secondsAgo(0), (request) => ({
      ...request,
      body: request.body.replace("{}", "[]"),
    })),
    forge("id changed after signing", webhook, secondsAgo(0), (request) => ({
      ...request,
      headers: { ...request.headers, "webhook-id": newId() },
    })),
    forge("signed ten minutes ago", webhook, secondsAgo(600)),
    forge("signed for in ten minutes", webhook, secondsAgo(-600)),
  ];
}

/** A secret in the form that the library wants. */
export const newSecret = () => `whsec_${randomBytes(24).toString("base64")}`;
