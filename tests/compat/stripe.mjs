// Stripe: an event of every type that the library knows, signed by its own test helper.

import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import Stripe from "stripe";

import { JSON_TYPE } from "./delivery.mjs";

const stripe = new Stripe("sk_test_unused");
const SOURCE = "stripe";

export const sources = [SOURCE];

/** The types to which an endpoint can subscribe, from the library's own declaration. */
function types() {
  const declared = new URL("resources/WebhookEndpoints.d.ts", import.meta.resolve("stripe"));
  const [, union] = /type EnabledEvent = ([^;]+);/.exec(readFileSync(declared, "utf8")) ?? [];
  const found = union?.match(/(?<=')[a-z0-9_.]+(?=')/g) ?? [];
  if (found.length < 100) throw new Error(`found only ${found.length} event types in ${declared.pathname}`);
  return found;
}

const now = () => Math.floor(Date.now() / 1000);
const newId = () => `evt_1${randomBytes(12).toString("hex")}`;

/** An event as the library's type `Event` has it. Stripe indents its bodies. */
function body(id, type, pendingWebhooks) {
  const event = {
    id,
    object: "event",
    api_version: Stripe.API_VERSION,
    created: now(),
    data: { object: { id: `obj_${id}`, object: type.split(".").at(-2), description: "Ærø 漢字 🚲" } },
    livemode: false,
    pending_webhooks: pendingWebhooks,
    request: { id: null, idempotency_key: null },
    type,
  };
  return JSON.stringify(event, null, 2);
}

const header = (payload, secret, timestamp = now()) =>
  stripe.webhooks.generateTestHeaderString({ payload, secret, timestamp });

const request = (body, signature) => ({ headers: { ...JSON_TYPE, "Stripe-Signature": signature }, body });

/** Stripe signs anew when it sends again, and `pending_webhooks` may have become another number. */
export async function deliveries(secrets) {
  const secret = secrets[SOURCE];
  return types().map((type, index) => {
    const id = newId();
    const [first, again] = [body(id, type, 2), body(id, type, 1)];
    const genuine = header(first, secret);
    // While a secret is being rolled Stripe signs with both, here the other one first.
    const [stamp, ours] = genuine.split(",");
    const [, theirs] = header(first, "whsec_rolled").split(",");
    return {
      source: SOURCE,
      id,
      type,
      first: request(first, index % 2 ? genuine : [stamp, theirs, ours].join(",")),
      again: request(again, header(again, secret, now() - 60)),
    };
  });
}

/** An event that Stripe signed an hour ago. */
export function old(secret) {
  const id = newId();
  const text = body(id, "invoice.paid", 1);
  return { id, request: request(text, header(text, secret, now() - 3600)) };
}

/** What no Stripe sent, or sent too long ago. */
export async function forgeries(secrets) {
  const secret = secrets[SOURCE];
  const forge = (what, sign, change = (body) => body) => {
    const id = newId();
    const signed = body(id, "invoice.paid", 1);
    const forged = request(change(signed), sign(signed));
    const library = () =>
      stripe.webhooks.constructEvent(forged.body, forged.headers["Stripe-Signature"], secret);
    return { source: SOURCE, id, what, request: forged, library };
  };
  return [
    forge("signed with another secret", (body) => header(body, `${secret}x`)),
    forge(
      "body changed after signing",
      (body) => header(body, secret),
      (body) => body.replace('"livemode": false', '"livemode": true'),
    ),
    forge("signed ten minutes ago", (body) => header(body, secret, now() - 600)),
    forge("the test scheme v0 alone", (body) => header(body, secret).replace("v1=", "v0=")),
  ];
}
