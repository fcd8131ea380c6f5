// GitHub: every payload of @octokit/webhooks-examples, signed by @octokit/webhooks-methods. The
// examples of github.com come as JSON and once more as forms; those of each GitHub Enterprise Server
// come to a source of their own, as from servers of their own.

import { randomUUID } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { sign, verify } from "@octokit/webhooks-methods";

import { JSON_TYPE } from "./delivery.mjs";

const EXAMPLES = new URL("../", import.meta.resolve("@octokit/webhooks-examples"));
const PUBLIC = "api.github.com";
const FORM_TYPE = { "Content-Type": "application/x-www-form-urlencoded" };

/** The collections of the package, by the name of the source that they are sent to. */
function collections() {
  const found = readdirSync(EXAMPLES, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && entry.name !== "node_modules")
    .map(({ name }) => ({ name, events: JSON.parse(readFileSync(new URL(`${name}/index.json`, EXAMPLES))) }));
  const open = found.find(({ name }) => name === PUBLIC);
  if (!open) throw new Error(`@octokit/webhooks-examples has no ${PUBLIC} any more`);
  return [
    { source: "github", events: open.events, form: false },
    { source: "github-form", events: open.events, form: true },
    ...found
      .filter((collection) => collection !== open)
      .map(({ name, events }) => ({ source: name, events, form: false })),
  ];
}

/** One request, with the headers that GitHub documents. */
async function request(secret, event, id, payload, form = false) {
  const json = JSON.stringify(payload);
  const body = form ? new URLSearchParams({ payload: json }).toString() : json;
  return {
    headers: {
      ...(form ? FORM_TYPE : JSON_TYPE),
      "User-Agent": "GitHub-Hookshot/compat",
      "X-GitHub-Delivery": id,
      "X-GitHub-Event": event,
      "X-GitHub-Hook-ID": "1",
      "X-Hub-Signature-256": await sign(secret, body),
    },
    body,
  };
}

/** `pull_request.opened`, or `push` where there is no action. */
const typed = (event, payload) => (payload.action === undefined ? event : `${event}.${payload.action}`);

/** Names of the sources, each with GitHub's provider file. */
export const sources = collections().map(({ source }) => source);

/** Every payload under an id of its own. GitHub sends the same request again when it is told to. */
export async function deliveries(secrets) {
  const made = collections().flatMap(({ source, events, form }) =>
    events.flatMap(({ name, examples }) =>
      examples.map(async (payload) => {
        const id = randomUUID();
        const first = await request(secrets[source], name, id, payload, form);
        return { source, id, type: typed(name, payload), first, again: first, payload };
      }),
    ),
  );
  return Promise.all(made);
}

/** The example of an event that a replay or a forgery begins with: the first of this name. */
function example(event) {
  const { examples } = collections()[0].events.find(({ name }) => name === event);
  return examples[0];
}

/**
 * Requests that somebody captured and sends again, after all others, under a new id (which GitHub's
 * signature does not cover). `fate` is what must become of each.
 */
export async function replays(secrets) {
  const source = "github";
  const replay = async (captured, event, fate, what) => {
    const id = randomUUID();
    const payload = example(captured);
    const first = await request(secrets[source], event, id, payload);
    return { source, id, type: typed(event, payload), first, again: first, payload, fate, what };
  };
  return [
    await replay("push", "push", "held", "a push under a new id"),
    await replay("issues", "issues", "held", "an issue's event under a new id"),
    await replay("push", "workflow_dispatch", "held", "a push as workflow_dispatch"),
    await replay("star", "push", "held", "a star as a push"),
    await replay("workflow_dispatch", "workflow_dispatch", "flagged", "a workflow_dispatch under a new id"),
  ];
}

/** What no GitHub sent. Its signatures carry no time, so there is no stale one. */
export async function forgeries(secrets) {
  const source = "github";
  const payload = { ...example("push"), forged: true };
  const forge = async (what, change, secret = secrets[source]) => {
    const id = randomUUID();
    const request_ = change(await request(secret, "push", id, payload));
    const signature = request_.headers["X-Hub-Signature-256"] ?? "sha256=";
    const library = () => verify(secrets[source], request_.body, signature);
    return { source, id, what, request: request_, library };
  };
  const signature = (value) => (request) => {
    const { "X-Hub-Signature-256": genuine, ...headers } = request.headers;
    return { ...request, headers: { ...headers, ...value(genuine) } };
  };
  return [
    await forge("signed with another secret", (request) => request, `${secrets[source]}x`),
    await forge("body changed after signing", (request) => ({
      ...request,
      body: request.body.replace("{", "{ "),
    })),
    await forge(
      "no signature",
      signature(() => ({})),
    ),
    await forge(
      "the SHA-1 header alone",
      signature((genuine) => ({ "X-Hub-Signature": genuine.replace("sha256", "sha1") })),
    ),
  ];
}
