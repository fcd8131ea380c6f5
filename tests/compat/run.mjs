// The providers' own libraries against a running receiver: what they sign is accepted once, typed as
// their users know it, and run once; what they did not sign is refused; and they take what a forward signs anew.
// `node run.mjs [--all] [BINARY]`; without --all, only the libraries of the commonest providers;
// exits with 1, and says what was wrong, where it was not so.

import { randomBytes } from "node:crypto";
import { fileURLToPath } from "node:url";
import { setTimeout as pause } from "node:timers/promises";

import { Faults } from "./delivery.mjs";
import { checkForwards } from "./forward.mjs";
import * as github from "./github.mjs";
import * as standard from "./standard.mjs";
import * as stripe from "./stripe.mjs";
import { Receiver } from "./receiver.mjs";
import { checkLibraries } from "./libraries.mjs";
import { checkAnswers, checkForgeries, checkGuard, checkMarks, checkRuns } from "./checks.mjs";
import { printLedger } from "./ledger.mjs";

const WHOLE = process.argv.includes("--all");
const BINARY =
  process.argv.slice(2).find((argument) => argument !== "--all") ??
  process.env.HOOKLATCH_BINARY ??
  fileURLToPath(new URL("../../target/debug/hooklatch", import.meta.url));

/** Requests in flight at once: enough that duplicates and repetitions meet in one commit. */
const AT_ONCE = 16;

/** How long all jobs may take to settle. */
const SETTLED_MS = 120_000;

const SETTLED = new Set(["succeeded", "held", "dead", "dropped"]);

/** The handlers by name. The second asks as GitHub's users write types: one level, or two. */
const HANDLERS = { every: ["*"], some: ["push", "pull_request.opened", "issues", "invoice.*"] };

/** All of `items` through `work`, so many at once, in their order. */
async function bounded(items, work) {
  const queue = items.entries();
  const results = [];
  const worker = async () => {
    for (const [index, item] of queue) results[index] = await work(item);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return results;
}

/** Waits until every job has settled, and returns all of them. */
async function settled(receiver) {
  const late = Date.now() + SETTLED_MS;
  for (;;) {
    const jobs = await receiver.ask("jobs");
    const open = jobs.filter(({ state }) => !SETTLED.has(state));
    if (open.length === 0) return jobs;
    if (Date.now() > late)
      throw new Error(`${open.length} jobs did not settle, such as ${JSON.stringify(open[0])}`);
    await pause(200);
  }
}

/** Each delivery and, after its answer, the same event again. */
async function deliver(receiver, deliveries) {
  return bounded(deliveries, async ({ source, first, again }) => ({
    first: await receiver.post(source, first),
    again: await receiver.post(source, again),
  }));
}

async function main() {
  const began = Date.now();
  const text = () => randomBytes(24).toString("hex");
  const sources = Object.fromEntries([
    ...github.sources.map((name) => [name, { provider: "github", secret: text() }]),
    ...stripe.sources.map((name) => [name, { provider: "stripe", secret: `whsec_${text()}` }]),
    ...standard.sources.map((name) => [
      name,
      { provider: "standard-webhooks", secret: standard.newSecret() },
    ]),
  ]);
  const secrets = Object.fromEntries(Object.entries(sources).map(([name, { secret }]) => [name, secret]));
  const each = async (make) =>
    (await Promise.all([github, stripe, standard].map((provider) => provider[make](secrets)))).flat();
  const deliveries = await each("deliveries");
  const forgeries = await each("forgeries");
  const replays = await github.replays(secrets);

  const faults = new Faults();
  const receiver = await Receiver.start(BINARY, sources, HANDLERS);
  let ends;
  // What was started is stopped, whoever ends this process.
  for (const [signal, code] of [
    ["SIGINT", 130],
    ["SIGTERM", 143],
  ]) {
    process.once(signal, () => receiver.stop().finally(() => process.exit(code)));
  }
  try {
    const answers = await deliver(receiver, deliveries);
    const replayAnswers = await deliver(receiver, replays);
    const refusals = await bounded(forgeries, ({ source, request }) => receiver.post(source, request));
    const jobs = await settled(receiver);
    const stored = await receiver.ask("events");
    const { deliveries: rejected } = await receiver.ask("events", "--rejected");

    const all = [...deliveries, ...replays];
    checkAnswers(faults, all, [...answers, ...replayAnswers], stored);
    await checkForgeries(faults, forgeries, refusals, stored, rejected);
    const repeated = checkGuard(faults, deliveries, replays, stored, jobs);
    checkMarks(faults, deliveries);
    checkRuns(faults, all, jobs, receiver.ledger(), HANDLERS);
    printLedger({
      deliveries,
      answers,
      replays,
      forgeries,
      refusals,
      stored,
      jobs,
      ledger: receiver.ledger(),
      repeated,
    });
  } finally {
    ends = await receiver.stop();
  }
  for (const [name, how] of Object.entries(ends))
    faults.unless(how === 0, `${name} ended with ${how} when stopped`);

  await checkForwards(faults, BINARY, settled);
  await checkLibraries(faults, BINARY, WHOLE);

  faults.print();
  const seconds = ((Date.now() - began) / 1000).toFixed(1);
  console.log(
    faults.count === 0 ? `\nas the providers' libraries have it, in ${seconds} s` : `\n${faults.count} wrong`,
  );
  return faults.count === 0 ? 0 : 1;
}

process.exitCode = await main();
