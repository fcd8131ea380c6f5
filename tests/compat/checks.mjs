// What must be true of the answers, the store and the handlers' ledger.

import { digest, grouped } from "./delivery.mjs";
import { ownMark, repetitions, runsMarked } from "./guard.mjs";

const key = ({ source, id, event_id }) => `${source} ${id ?? event_id}`;

/** Accepted, then a duplicate, and one event of the right type in the store: no more and no less. */
export function checkAnswers(faults, deliveries, answers, stored) {
  const events = grouped(stored, key);
  deliveries.forEach((delivery, index) => {
    const { first, again } = answers[index];
    const what = `${delivery.type} to ${delivery.source}`;
    const said = ({ code, status, event }) =>
      `${code} ${status} ${event === delivery.id ? "" : event}`.trim();
    faults.unless(said(first) === "200 accepted", `${what} was answered ${said(first)}`);
    faults.unless(said(again) === "200 duplicate", `${what}, sent again, was answered ${said(again)}`);
    const found = events.get(key(delivery)) ?? [];
    faults.unless(found.length === 1, `${what} is stored ${found.length} times`);
    for (const event of found) {
      faults.unless(event.event_type === delivery.type, `${what} is stored as ${event.event_type}`);
      faults.unless(event.duplicates === 1, `${what} has ${event.duplicates} duplicates`);
      faults.unless(event.conflicts === 0, `${what}, sent again, counts as another body`);
    }
  });
  faults.unless(
    stored.length === deliveries.length,
    `${stored.length} events are stored of ${deliveries.length}`,
  );
}

/** Refused without a word, nothing stored, and the library refuses it too. */
export async function checkForgeries(faults, forgeries, refusals, stored, rejected) {
  const events = grouped(stored, key);
  for (const [index, forgery] of forgeries.entries()) {
    const what = `${forgery.source}, ${forgery.what},`;
    const { code, ...answer } = refusals[index];
    faults.unless(code === 401, `${what} was answered ${code}`);
    faults.unless(
      JSON.stringify(answer) === '{"status":"rejected"}',
      `${what} was told ${JSON.stringify(answer)}`,
    );
    faults.unless(!events.has(key(forgery)), `${what} is stored`);
    const genuine = await Promise.resolve()
      .then(forgery.library)
      .catch(() => false);
    faults.unless(genuine === false, `${what} is genuine to the provider's own library`);
  }
  faults.unless(
    rejected.length === forgeries.length,
    `${rejected.length} of ${forgeries.length} refused deliveries are on file`,
  );
}

/**
 * Of several deliveries of one body the first runs; the others run marked where `flag_types` says so,
 * and are held otherwise. Nothing else is held or marked. Returns the fate of each delivery that
 * repeats a body.
 */
export function checkGuard(faults, deliveries, replays, stored, jobs) {
  const events = new Map(stored.map((event) => [key(event), event]));
  const held = new Set(jobs.filter(({ state }) => state === "held").map(key));
  const fate = (delivery) => {
    if (held.has(key(delivery))) return "held";
    return events.get(key(delivery))?.flagged ? "flagged" : "run";
  };
  const repeated = [];
  for (const group of repetitions(deliveries)) {
    const [{ source, type }] = group;
    const guarded = runsMarked(type) ? "flagged" : "held";
    const fates = group.map(fate);
    const count = (name) => fates.filter((found) => found === name).length;
    const right = count("run") === 1 && count(guarded) === group.length - 1;
    faults.unless(right, `${group.length} of ${type} to ${source} with one body: ${fates.join(", ")}`);
    repeated.push(
      ...group
        .filter((_, index) => fates[index] !== "run")
        .map((delivery) => ({ ...delivery, fate: guarded })),
    );
  }
  for (const replay of replays) {
    faults.unless(fate(replay) === replay.fate, `${replay.what} is ${fate(replay)}, not ${replay.fate}`);
  }
  for (const job of jobs.filter(({ state }) => state === "held")) {
    faults.unless(job.reason === "suspected replay", `${job.event_type} is held: ${job.reason}`);
  }
  return repeated;
}

/** No type of GitHub's is held that honestly repeats byte for byte: `flag_types` would lack it. */
export function checkMarks(faults, deliveries) {
  const without = ({ type, payload }) => payload && !runsMarked(type) && !ownMark(type, payload);
  for (const [type, found] of grouped(deliveries.filter(without), ({ type }) => type)) {
    faults.unless(
      false,
      `${found.length} examples of ${type} have nothing of their own, and flag_types has not the type`,
    );
  }
}

/** Each job that is not held has run once, with the body as it was sent; no other ran. */
export function checkRuns(faults, deliveries, jobs, ledger, handlers) {
  const bodies = new Map(deliveries.map((delivery) => [key(delivery), delivery]));
  const word = (...words) => words.join(" ");
  const runs = grouped(ledger, ([handler, source, id]) => word(handler, source, id));
  const wanted = new Map(jobs.map((job) => [word(job.handler, job.source, job.event_id), job]));
  for (const [name, job] of wanted) {
    const what = `${job.event_type} from ${job.source} for ${job.handler}`;
    const times = runs.get(name)?.length ?? 0;
    faults.unless(["succeeded", "held"].includes(job.state), `${what} is ${job.state}: ${job.reason}`);
    faults.unless(
      times === (job.state === "held" ? 0 : 1),
      `${what}, which is ${job.state}, ran ${times} times`,
    );
    faults.unless(job.attempt === times, `${what} ran ${times} times in ${job.attempt} attempts`);
  }
  for (const [handler, source, id, type, body] of ledger) {
    const delivery = bodies.get(`${source} ${id}`);
    faults.unless(
      wanted.has(word(handler, source, id)),
      `${type} from ${source} ran for ${handler} without a job`,
    );
    faults.unless(delivery?.type === type, `${delivery?.type} ran as ${type}`);
    faults.unless(
      delivery && digest(delivery.first.body) === body,
      `${type} from ${source} ran with another body`,
    );
  }
  for (const delivery of deliveries) {
    for (const [handler, patterns] of Object.entries(handlers)) {
      const has = wanted.has(word(handler, delivery.source, delivery.id));
      faults.unless(
        has === patterns.some((pattern) => wants(pattern, delivery)),
        `${handler} ${has ? "got" : "lacks"} ${delivery.type} from ${delivery.source}`,
      );
    }
  }
}

/** What a pattern of a handler is documented to match; only GitHub's types have two levels. */
function wants(pattern, { type, payload }) {
  if (pattern.endsWith("*")) return type.startsWith(pattern.slice(0, -1));
  return type === pattern || (payload !== undefined && type.startsWith(`${pattern}.`));
}
