// What the replay guard must make of GitHub's examples, computed from the payloads and from the
// `flag_types` of providers/github.toml alone.

import { readFileSync } from "node:fs";

import { digest, grouped } from "./delivery.mjs";

const PROVIDER = new URL("../../providers/github.toml", import.meta.url);

/** The patterns of `flag_types`: `label` is also `label.edited`. */
function flagTypes() {
  const [, list] = /^flag_types = \[$([\s\S]*?)^\]$/m.exec(readFileSync(PROVIDER, "utf8")) ?? [];
  const found = list?.replaceAll(/#.*$/gm, "").match(/(?<=")[^",]+(?=")/g) ?? [];
  if (found.length === 0 || found.some((pattern) => pattern.includes("*"))) {
    throw new Error("cannot read flag_types of providers/github.toml any more");
  }
  return found;
}

const patterns = flagTypes();

/** Whether a repetition of this type runs, marked, instead of being held. */
export const runsMarked = (type) =>
  patterns.some((pattern) => type === pattern || type.startsWith(`${pattern}.`));

/** Those around an event: their times and ids are not its own. */
const AROUND = new Set(["repository", "organization", "sender", "installation", "enterprise", "hook"]);

/** Types that the provider file leaves out since they move a time of their repository. */
const MOVE_REPOSITORY = ["create", "delete", "public", "repository", "repository_import"];

/** What is once, in the actions' names: it cannot be again under the same id. */
const ONCE = ["create", "created", "deleted"];

const isTime = (value) => /^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(value);
const isCommit = (value) => /^(?!0{40})[0-9a-f]{40}$/.test(value);

/** Every value under `value` that is no object, with its path. */
function* leaves(value, path = []) {
  if (value === null || typeof value !== "object") return yield [path, value];
  for (const [key, inner] of Object.entries(value)) yield* leaves(inner, [...path, key]);
}

/**
 * What in a payload keeps an honest second event of its type from having the same bytes, in words;
 * nothing where there is none, so that a guard which holds it would hold honest events.
 */
export function ownMark(type, payload) {
  const found = [...leaves(payload)].filter(([[top]]) => !AROUND.has(top));
  const some = (test) => found.some(([path, value]) => test(path, path.at(-1), value));
  // Of the thing itself, not of what it names: /issue/updated_at, not /issue/milestone/updated_at. That
  // it was created at some time tells no two of its events apart.
  if (some((path, key, value) => isTime(value) && path.length <= 2 && key !== "created_at"))
    return "a time of its own";
  if (some((_path, _key, value) => isCommit(value))) return "a commit of its own";
  const [event, action] = type.split(".");
  if (MOVE_REPOSITORY.includes(event) && payload.repository) return "the repository's time, which it moves";
  const named = some(
    (path, key) => (path.length === 2 && ["id", "node_id"].includes(key)) || key === "hook_id",
  );
  return named && ONCE.includes(action) ? "an id that is made or deleted once" : undefined;
}

/** The deliveries of the same body to the same source, as lists: the guard lets one of each run. */
export const repetitions = (deliveries) => [
  ...grouped(deliveries, ({ source, first }) => `${source} ${digest(first.body)}`).values(),
];
