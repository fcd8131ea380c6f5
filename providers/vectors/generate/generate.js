// Writes ../{stripe,github,standard-webhooks,svix,none}.jsonl: requests signed with the providers' own
// libraries, and what the verifier must say of each. Run it with `npm install && npm run generate`;
// the output is the same every time. Bodies, secrets and ids are made up here.

import { createHash, createHmac } from "node:crypto";
import { writeFileSync } from "node:fs";
import { sign as githubSign } from "@octokit/webhooks-methods";
import { Webhook as StandardWebhook } from "standardwebhooks";
import Stripe from "stripe";
import { Webhook as SvixWebhook } from "svix";

const NOW = 1767225600; // 2026-01-01T00:00:00Z
const JSON_TYPE = { "Content-Type": "application/json" };

/** A secret or id that looks random and never changes. */
const made = (label, bytes) => createHash("sha512").update(label).digest().subarray(0, bytes);

/** One line of a vectors file. */
function vector(provider, name, expect, why, request) {
  const { secrets, headers, body, now = NOW, id, type } = request;
  return {
    provider,
    name: `${provider}/${expect}/${name}`,
    secrets,
    method: "POST",
    headers,
    body_base64: Buffer.from(body).toString("base64"),
    now,
    expect,
    ...(expect === "accept" && { expect_id: id, expect_type: type }),
    why,
  };
}

function write(provider, vectors) {
  const text = vectors.map((v) => JSON.stringify(v) + "\n").join("");
  writeFileSync(new URL(`../${provider}.jsonl`, import.meta.url), text);
}

function stripe() {
  const client = new Stripe("unused");
  const secret = "whsec_" + made("stripe", 24).toString("hex");
  const other = "whsec_" + made("stripe, another", 24).toString("hex");
  const event = (n, type, object, more = {}) => ({
    id: `evt_1Own${String(n).padStart(20, "0")}`,
    object: "event",
    api_version: "2025-09-30.clover",
    created: NOW - 6,
    data: { object },
    livemode: false,
    pending_webhooks: 1,
    request: { id: null, idempotency_key: null },
    type,
    ...more,
  });
  const paid = event(1, "invoice.paid", { id: "in_1Own", object: "invoice", amount_paid: 4200, currency: "eur" });
  const header = (body, options = {}) =>
    client.webhooks.generateTestHeaderString({ payload: body, secret, timestamp: NOW - 5, ...options });
  const hex = (body) => header(body).split("v1=")[1];
  const pretty = JSON.stringify(paid, null, 2);
  const base = {
    secrets: [secret],
    headers: { ...JSON_TYPE, "Stripe-Signature": header(pretty) },
    body: pretty,
    id: paid.id,
    type: paid.type,
  };
  const signed = (value) => ({ ...base, headers: { ...JSON_TYPE, "Stripe-Signature": value } });
  const of = (e, body = JSON.stringify(e)) => ({
    ...base, body, id: e.id, type: e.type, headers: { ...JSON_TYPE, "Stripe-Signature": header(body) },
  });
  const accept = (name, why, request) => vector("stripe", name, "accept", why, request);
  const reject = (name, why, request) => vector("stripe", name, "reject", why, request);
  const big = event(2, "charge.updated", { id: "ch_1Own", object: "charge", description: "x".repeat(40_000) });
  const unicode = event(3, "customer.created", { id: "cus_1Own", object: "customer", name: "Ærø 漢字 🚲" });
  const thin = { id: "evt_test_1Own65", object: "v2.core.event", type: "v1.billing.meter.no_meter_found", created: "2025-12-31T23:59:54.000Z", livemode: false };
  write("stripe", [
    accept("pretty-printed", "Bodies come indented, and are signed as they come.", base),
    accept("compact", "The same event without spaces: another signature.", of(paid)),
    accept("large", "40 kB in one string.", of(big)),
    accept("unicode", "Raw UTF-8.", of(unicode)),
    accept("thin", "A thin event: no data.object.", of(thin)),
    accept("nested-id-first", "Only the top-level id counts.", of({ data: { id: "no", type: "no" }, ...paid })),
    accept("no-type", "A missing type is no reason to refuse.", { ...of({ id: "evt_1OwnNoType", object: "event" }), type: "?" }),
    accept("newline-signed", "A newline that is part of the signed bytes.", of(paid, pretty + "\n")),
    accept("rolled-secret", "Two secrets at the sender, the older one here.", signed(`${header(pretty, { secret: other })},v1=${hex(pretty)}`)),
    accept("two-secrets-here", "The receiver has both.", { ...base, secrets: [other, secret] }),
    accept("v0-beside-v1", "The test scheme beside the real one is skipped.", signed(`${header(pretty)},v0=${"0".repeat(64)}`)),
    accept("oldest", "Exactly at the tolerance.", signed(header(pretty, { timestamp: NOW - 300 }))),
    accept("newest", "Exactly at the tolerance, in the future.", signed(header(pretty, { timestamp: NOW + 300 }))),
    reject("stale", "A second over the tolerance.", signed(header(pretty, { timestamp: NOW - 301 }))),
    reject("future", "A second over the tolerance, in the future.", signed(header(pretty, { timestamp: NOW + 301 }))),
    reject("another-secret", "Signed with a secret we do not have.", signed(header(pretty, { secret: other }))),
    reject("re-encoded", "Signed indented, arrived compact.", { ...base, body: JSON.stringify(paid) }),
    reject("v0", "The right digest under the test scheme's label.", signed(header(pretty, { scheme: "v0" }))),
    reject("upper-case-hex", "The libraries compare text.", signed(`t=${NOW - 5},v1=${hex(pretty).toUpperCase()}`)),
    reject("two-times", "Which one would be checked?", signed(`t=${NOW - 5},${header(pretty)}`)),
    reject("plus-sign", "A timestamp is plain digits.", signed(header(pretty).replace("t=", "t=+"))),
    reject("leading-zero", "A timestamp is plain digits.", signed(header(pretty).replace("t=", "t=0"))),
    reject("fraction", "A timestamp is plain digits.", signed(header(pretty).replace(",v1", ".0,v1"))),
    reject("truncated", "Half a signature.", signed(header(pretty).slice(0, -32))),
    reject("empty", "No signature in the header.", signed("")),
    reject("empty-signature", "An empty value must equal nothing.", signed(`t=${NOW - 5},v1=`)),
    reject("two-lines", "The header came twice.", signed([header(pretty), header(pretty)])),
    reject("missing", "No signature at all.", { ...base, headers: JSON_TYPE }),
    reject("no-id", "Genuine, but there is no id.", of({ object: "event", type: "invoice.paid" })),
    reject("two-ids", "Genuine, but two parsers could see two ids.", of(paid, '{"id":"evt_a","id":"evt_b","type":"invoice.paid"}')),
    reject("id-with-space", "Genuine, but the id cannot be one.", of({ ...paid, id: "evt 1" })),
    reject("not-json", "Genuine, but the id is in a body that is no JSON.", of(paid, "id=evt_1")),
    reject("json-and-more", "Genuine, but there is text behind the JSON.", of(paid, '{"id":"evt_a"}{"id":"evt_b"}')),
  ]);
}

async function github() {
  const secret = made("github", 20).toString("hex");
  const other = made("github, another", 20).toString("hex");
  const repository = { id: 7001, name: "ferry", full_name: "harbour/ferry", private: true };
  const sender = { login: "ferrywoman", id: 42 };
  const opened = JSON.stringify({ action: "opened", number: 12, pull_request: { id: 9001, title: "Add a timetable" }, repository, sender });
  const push = JSON.stringify({ ref: "refs/heads/main", before: made("a", 20).toString("hex"), after: made("b", 20).toString("hex"), repository, sender });
  const uuid = (label) => made(label, 16).toString("hex").replace(/(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  const request = async (event, body, more = {}) => ({
    secrets: [secret],
    body,
    id: uuid(event + body),
    type: event,
    headers: {
      ...JSON_TYPE,
      "X-GitHub-Delivery": uuid(event + body),
      "X-GitHub-Event": event,
      "X-GitHub-Hook-ID": "512345678",
      "X-Hub-Signature-256": await githubSign(secret, body),
    },
    ...more,
  });
  const with_ = (base, headers) => ({ ...base, headers: { ...base.headers, ...headers } });
  const without = (base, name) => with_(base, { [name]: undefined });
  const base = await request("pull_request", opened);
  const value = base.headers["X-Hub-Signature-256"];
  const accept = (name, why, r) => vector("github", name, "accept", why, r);
  const reject = (name, why, r) => vector("github", name, "reject", why, r);
  const form = "payload=" + encodeURIComponent(opened).replaceAll("%20", "+");
  const form_type = { "Content-Type": "application/x-www-form-urlencoded" };
  write("github", [
    accept("two-levels", "The action in the body is the second level.", { ...base, type: "pull_request.opened" }),
    accept("one-level", "An event without an action.", await request("push", push)),
    accept("form", "The raw form is signed; the action is in its field.", { ...with_(await request("pull_request", form), form_type), type: "pull_request.opened" }),
    accept("form-twice", "Two payload fields: no second level, since parsers differ.", { ...with_(await request("pull_request", `${form}&${form}`), form_type), type: "pull_request" }),
    accept("two-actions", "Two actions: no second level, since parsers differ.", { ...(await request("label", '{"action":"created","action":"deleted"}')), type: "label" }),
    accept("action-is-an-object", "An odd action is no second level.", { ...(await request("label", '{"action":{}}')), type: "label" }),
    accept("not-json", "Only headers are needed.", await request("ping", "pong")),
    accept("empty-body", "An empty body has a signature too.", { ...(await request("ping", "-")), body: "", headers: { ...base.headers, "X-GitHub-Event": "ping", "X-Hub-Signature-256": "sha256=" + createHmac("sha256", secret).update("").digest("hex") }, id: base.id }),
    accept("relabelled", "The event name is not signed: why type changes of one body are held.", { ...with_(base, { "X-GitHub-Event": "issues" }), type: "issues.opened" }),
    accept("two-secrets-here", "The receiver has both.", { ...base, secrets: [other, secret], type: "pull_request.opened" }),
    accept("legacy-header-wrong", "SHA-1 is never looked at.", { ...with_(base, { "X-Hub-Signature": "sha1=" + "0".repeat(40) }), type: "pull_request.opened" }),
    accept("no-event-name", "A missing type is no reason to refuse.", { ...without(base, "X-GitHub-Event"), type: "?" }),
    reject("another-secret", "Signed with a secret we do not have.", { ...base, secrets: [other] }),
    reject("re-encoded", "Signed compact, arrived indented.", { ...base, body: JSON.stringify(JSON.parse(opened), null, 2) }),
    reject("form-signed-over-json", "Gitea signs the decoded field; GitHub does not.", { ...base, body: form }),
    reject("upper-case-hex", "The libraries compare text.", with_(base, { "X-Hub-Signature-256": "sha256=" + value.slice(7).toUpperCase() })),
    reject("upper-case-prefix", "The libraries compare text.", with_(base, { "X-Hub-Signature-256": value.replace("sha", "SHA") })),
    reject("no-prefix", "The prefix is part of the form.", with_(base, { "X-Hub-Signature-256": value.slice(7) })),
    reject("sha1-in-its-place", "The prefix does not choose the algorithm.", with_(base, { "X-Hub-Signature-256": "sha1=" + createHmac("sha1", secret).update(opened).digest("hex") })),
    reject("sha1-only", "Only the legacy header.", without(with_(base, { "X-Hub-Signature": "sha1=" + createHmac("sha1", secret).update(opened).digest("hex") }), "X-Hub-Signature-256")),
    reject("truncated", "Half a signature.", with_(base, { "X-Hub-Signature-256": value.slice(0, 39) })),
    reject("empty-signature", "Nothing behind the prefix.", with_(base, { "X-Hub-Signature-256": "sha256=" })),
    reject("two-lines", "The header came twice.", with_(base, { "X-Hub-Signature-256": [value, value] })),
    reject("two-ids", "The delivery header came twice.", with_(base, { "X-GitHub-Delivery": [base.id, uuid("another")] })),
    reject("two-types", "The event header came twice.", with_(base, { "X-GitHub-Event": ["push", "pull_request"] })),
    reject("missing", "No signature at all.", without(base, "X-Hub-Signature-256")),
    reject("no-id", "Genuine, but there is no delivery id.", without(base, "X-GitHub-Delivery")),
    reject("id-too-long", "Genuine, but 201 characters are no id.", with_(base, { "X-GitHub-Delivery": "a".repeat(201) })),
    reject("id-with-dash", "Genuine, but an id does not start with a dash.", with_(base, { "X-GitHub-Delivery": "-rf" })),
  ]);
}

/** Standard Webhooks, and Svix under its own header names. */
function standard(provider, prefix, Webhook) {
  const secret = "whsec_" + made(provider, 32).toString("base64");
  const other = "whsec_" + made(provider + ", another", 32).toString("base64");
  const body = JSON.stringify({ type: "timetable.changed", timestamp: "2025-12-31T23:59:50.000Z", data: { line: 7 } });
  const sign = (id, at, content, key = secret) => new Webhook(key).sign(id, new Date(at * 1000), content);
  const request = ({ id = "msg_2Own0000000001", at = NOW - 4, content = body, key = secret, ...more } = {}) => ({
    secrets: [secret],
    body: content,
    id,
    type: "timetable.changed",
    headers: {
      ...JSON_TYPE,
      [`${prefix}-id`]: id,
      [`${prefix}-timestamp`]: String(at),
      [`${prefix}-signature`]: sign(id, at, content, key),
    },
    ...more,
  });
  const base = request();
  const value = base.headers[`${prefix}-signature`];
  const header = (name, value) => ({ ...base, headers: { ...base.headers, [`${prefix}-${name}`]: value } });
  const wrong = sign("msg_2Own0000000001", NOW - 4, body, other);
  const accept = (name, why, r) => vector(provider, name, "accept", why, r);
  const reject = (name, why, r) => vector(provider, name, "reject", why, r);
  const hex = Buffer.from(value.slice(3), "base64").toString("hex");
  const key_text = createHmac("sha256", secret).update(`${base.id}.${NOW - 4}.${body}`).digest("base64");
  write(provider, [
    accept("plain", "One signature.", base),
    accept("re-sent", "A re-send: the same id, a new time.", request({ at: NOW - 1 })),
    accept("list", "The last of three fits.", header("signature", `v1a,AAAA ${wrong} ${value}`)),
    accept("double-space", "An empty item in the list.", header("signature", `${wrong}  ${value}`)),
    accept("two-secrets-here", "The receiver has both.", { ...base, secrets: [other, secret] }),
    accept("secret-without-prefix", "The prefix is cut where it is there.", { ...base, secrets: [secret.slice(6)] }),
    accept("oldest", "Exactly at the tolerance.", request({ at: NOW - 300 })),
    accept("newest", "Exactly at the tolerance, in the future.", request({ at: NOW + 300 })),
    accept("not-json", "The id is in a header; the type is unknown.", { ...request({ content: "pong" }), type: "?" }),
    accept("type-with-space", "An odd type is kept, not refused.", { ...request({ content: '{"type":"line changed"}' }), type: "line changed" }),
    reject("stale", "A second over the tolerance.", request({ at: NOW - 301 })),
    reject("future", "A second over the tolerance, in the future.", request({ at: NOW + 301 })),
    reject("another-secret", "Signed with a secret we do not have.", request({ key: other })),
    reject("another-id", "The id is signed.", header("id", "msg_2Own0000000002")),
    reject("another-time", "The time is signed.", header("timestamp", String(NOW - 3))),
    reject("re-encoded", "Signed compact, arrived indented.", { ...base, body: JSON.stringify(JSON.parse(body), null, 2) }),
    reject("dot-in-id", "Bytes of the time moved into the id, under the same signature.", moved()),
    reject("hex", "The right digest in hex.", header("signature", `v1,${hex}`)),
    reject("unpadded", "Base64 without padding.", header("signature", value.replace(/=+$/, ""))),
    reject("other-label", "The right digest under another version.", header("signature", value.replace("v1,", "v2,"))),
    reject("no-label", "The right digest without a version.", header("signature", value.slice(3))),
    reject("key-as-text", "Signed with the secret's text.", header("signature", `v1,${key_text}`)),
    reject("empty-signature", "An empty value must equal nothing.", header("signature", "v1,")),
    reject("two-lines", "The header came twice.", header("signature", [value, value])),
    reject("two-ids", "The id header came twice.", header("id", ["msg_2Own0000000001", "msg_x"])),
    reject("missing", "No signature at all.", header("signature", undefined)),
    reject("no-time", "No timestamp.", header("timestamp", undefined)),
    reject("no-id", "No id.", header("id", undefined)),
    reject("time-in-words", "A timestamp is plain digits.", header("timestamp", "now")),
    ...(prefix === "svix" ? families() : []),
  ]);

  /** Svix's libraries also take the header names of Standard Webhooks. */
  function families() {
    const renamed = (headers) =>
      Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.replace("svix-", "webhook-"), value]));
    const { "Content-Type": _, ...other } = renamed(request({ id: "msg_2Own0000000002" }).headers);
    const forged = { ...other, "webhook-signature": wrong };
    const { "svix-timestamp": time, ...timeless } = base.headers;
    return [
      accept("other-names", "The names of Standard Webhooks.", { ...base, headers: renamed(base.headers) }),
      accept("forged-names-added", "The family that holds names the event.", { ...base, headers: { ...base.headers, ...forged } }),
      accept("own-names-forged", "The family that holds names the event.", {
        ...base,
        id: "msg_2Own0000000002",
        headers: { ...header("signature", wrong).headers, ...other },
      }),
      reject("mixed-names", "Each family is whole.", { ...base, headers: { ...timeless, "webhook-timestamp": time } }),
      reject("other-names-stale", "Renamed, it is as old.", { ...base, headers: renamed(request({ at: NOW - 301 }).headers) }),
    ];
  }

  /** A genuine request whose body begins with a time, cut at another dot. */
  function moved() {
    const genuine = request({ id: "msg_a", content: `${NOW - 2}.{"type":"role.granted"}` });
    const headers = { ...genuine.headers, [`${prefix}-id`]: `msg_a.${NOW - 4}`, [`${prefix}-timestamp`]: String(NOW - 2) };
    return { ...genuine, headers, body: '{"type":"role.granted"}' };
  }
}

function none() {
  const body = '{"hello":"harbour"}';
  const base = { secrets: [], headers: { ...JSON_TYPE, "X-Event-Type": "hello" }, body, id: createHash("sha256").update(body).digest("hex"), type: "hello" };
  const keyed = (key) => ({ ...base, id: key, headers: { ...base.headers, "Idempotency-Key": key } });
  write("none", [
    vector("none", "by-digest", "accept", "Without a key the body's digest is the id.", base),
    vector("none", "by-key", "accept", "The sender's own key is the id.", keyed("order-7")),
    vector("none", "no-type", "accept", "A missing type is no reason to refuse.", { ...base, headers: JSON_TYPE, type: "?" }),
    vector("none", "two-keys", "reject", "The key came twice.", keyed(["order-7", "order-8"])),
    vector("none", "bad-key", "reject", "A key with a space cannot be an id.", keyed("order 7")),
    vector("none", "empty-key", "reject", "An empty key is a fault of the sender, not a missing one.", keyed("")),
  ]);
}

stripe();
await github();
standard("standard-webhooks", "webhook", StandardWebhook);
standard("svix", "svix", SvixWebhook);
none();
