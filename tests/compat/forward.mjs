// A forward to an endpoint that verifies with Stripe's library, which refuses signatures older than five minutes:
// an event an hour old is a dead letter without `sign`, and is taken with it.

import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import Stripe from "stripe";

import { Receiver } from "./receiver.mjs";
import { old } from "./stripe.mjs";

const stripe = new Stripe("sk_test_unused");

/** Stripe's scheme, taking events of the last two hours: the receiver had them before, or its clock was wrong. */
const LATE = readFileSync(new URL("../../providers/stripe.toml", import.meta.url), "utf8")
  .replace(/^name = .*$/m, 'name = "late"')
  .replace(/^vectors = .*$/m, "")
  .replace(/^tolerance = .*$/m, 'tolerance = "2h"');

/** An endpoint as Stripe's documents have it. `said` is what it answered, by the event's id. */
async function endpoint(secret) {
  const said = new Map();
  const server = createServer(async (request, response) => {
    const id = request.headers["hooklatch-event-id"];
    const body = await text(request);
    try {
      const event = stripe.webhooks.constructEvent(body, request.headers["stripe-signature"], secret);
      said.set(id, event.id);
      response.writeHead(200).end();
    } catch (error) {
      said.set(id, error.message);
      response.writeHead(400).end(error.message);
    }
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return { said, close: () => server.close(), port: server.address().port };
}

/** The forward without `sign`, with the source's secret, and with the endpoint's own. */
export async function checkForwards(faults, binary, settled) {
  const [secret, own] = [1, 2].map(() => `whsec_${randomBytes(24).toString("hex")}`);
  const shared = await endpoint(secret);
  const other = await endpoint(own);
  const tables = ({ port }, sign) => `
[handlers.app]
source = "stripe"
events = ["*"]
forward = "http://127.0.0.1:${port}/"
${sign}
`;
  const files = { "providers/late.toml": LATE, "own.secret": own };
  const sources = { stripe: { provider: "late", secret } };
  const receiver = await Receiver.start(binary, sources, {}, tables(shared, ""), files);
  const send = async () => {
    const event = old(secret);
    const { code } = await receiver.post("stripe", event.request);
    faults.unless(code === 200, `an event an hour old was answered ${code}`);
    return event.id;
  };
  const forwarded = [];
  const became = async (id, wanted, what) => {
    const job = (await settled(receiver)).find(({ event_id }) => event_id === id);
    const state = [job?.state, job?.reason].filter(Boolean).join(": ");
    faults.unless(state === wanted, `an event an hour old, ${what}, is ${state}, not ${wanted}`);
    forwarded.push(`${state} (${what})`);
  };
  try {
    const first = await send();
    await became(first, "dead: rejected", "forwarded as it came");
    faults.unless(/tolerance zone/.test(shared.said.get(first)), `Stripe's library said ${shared.said.get(first)}`);

    await receiver.reload(tables(shared, "sign = true"));
    await receiver.run("replay", first);
    await became(first, "succeeded", "replayed, signed anew");
    await became(await send(), "succeeded", "signed anew");

    await receiver.reload(tables(other, 'sign = "file:own.secret"'));
    const last = await send();
    await became(last, "succeeded", "signed with the endpoint's own secret");
    faults.unless(other.said.get(last) === last, `Stripe's library said ${other.said.get(last)}`);
    console.log(`forwards: an event an hour old is ${forwarded.join(", ")}`);
  } finally {
    await receiver.stop();
    shared.close();
    other.close();
  }
}
