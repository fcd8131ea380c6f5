// Writes ../{kick,netlify,livekit,fusionauth}.jsonl: requests signed with node:crypto, by private keys and as JSON
// Web Tokens, and what the verifier must say of each. Run it with `node keys.js`. RSA keys are new each time, and are
// thrown away.

import { createHash, createHmac, generateKeyPairSync, sign } from "node:crypto";
import { writeFileSync } from "node:fs";

const NOW = 1767225600; // 2026-01-01T00:00:00Z
const JSON_TYPE = { "Content-Type": "application/json" };

function write(provider, scheme, vectors) {
  const lines = vectors.map(([expect, name, why, { body, ...request }]) => ({
    provider,
    name: `${provider}/${expect}/${name}`,
    scheme,
    secrets: [],
    method: "POST",
    body_base64: Buffer.from(body).toString("base64"),
    now: NOW,
    expect,
    why,
    ...request,
  }));
  const text = lines.map((line) => JSON.stringify(line) + "\n").join("");
  writeFileSync(new URL(`../${provider}.jsonl`, import.meta.url), text);
}

const rsa = () => {
  const { publicKey, privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return { privateKey, pem: publicKey.export({ type: "spki", format: "pem" }).trim() };
};

const part = (value) => Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");
const token = (header, claims, signer) => {
  const signed = `${part(header)}.${part(claims)}`;
  return `${signed}.${signer(signed)}`;
};
const hmac = (secret, hash = "sha256") => (text) => createHmac(hash, secret).update(text).digest("base64url");
const digest = (body, encoding) => createHash("sha256").update(body).digest(encoding);
const HS256 = { alg: "HS256", typ: "JWT" };

function kick() {
  const { privateKey, pem } = rsa();
  const other = rsa();
  const body = JSON.stringify({ message_id: "m-1", broadcaster: { user_id: 123456789 }, content: "Grüße" });
  const id = "01JHXPVFXAA5CZ8TZE1W1DKQ0F";
  const signed = (at, more = {}, key = privateKey, text = `${id}.${at}.${body}`) => ({
    keys: { rsa_public_pem: pem, sender: "123456789" },
    headers: {
      ...JSON_TYPE,
      "Kick-Event-Message-Id": id,
      "Kick-Event-Message-Timestamp": at,
      "Kick-Event-Type": "chat.message.sent",
      "Kick-Event-Version": "1",
      "Kick-Event-Signature": sign("sha256", Buffer.from(text), key).toString("base64"),
      ...more,
    },
    body,
    expect_id: id,
    expect_type: "chat.message.sent",
  });
  const at = "2025-12-31T23:59:57Z";
  const genuine = signed(at);
  write("kick", "rsa-sha256/base64", [
    ["accept", "plain", "RSA with SHA-256 over id, time and body.", genuine],
    ["reject", "another-key", "Another key of the same size.", signed(at, {}, other.privateKey)],
    ["reject", "another-id", "The id is signed.", signed(at, { "Kick-Event-Message-Id": "01JHXPVFXAA5CZ8TZE1W1DKQ0G" })],
    ["reject", "altered-body", "One byte more.", { ...genuine, body: body + "\n" }],
    ["reject", "foreign", "Another broadcaster's.", { ...genuine, keys: { rsa_public_pem: pem, sender: "123456788" } }],
    ["reject", "no-sender", "The source names none.", { ...genuine, keys: { rsa_public_pem: pem } }],
    ["reject", "stale", "An hour old.", signed("2025-12-31T22:59:57Z")],
    ["reject", "no-dots", "The parts without the dots.", signed(at, {}, privateKey, id + at + body)],
    ["reject", "empty", "An empty signature.", signed(at, { "Kick-Event-Signature": "" })],
    ["reject", "short", "A signature of another length.", signed(at, { "Kick-Event-Signature": "AAAA" })],
  ]);
}

function netlify() {
  const secret = digest("netlify", "hex").slice(0, 32);
  const body = JSON.stringify({ id: "67f0000000000000000000ab", state: "ready", name: "ferry" });
  const claims = { iss: "netlify", sha256: digest(body, "hex") };
  const delivery = (value, more = {}) => ({
    secrets: [secret],
    headers: { ...JSON_TYPE, "X-Netlify-Event": "deploy_created", "X-Webhook-Signature": value },
    body,
    expect_type: "deploy_created",
    ...more,
  });
  const own = (header, payload = claims) => delivery(token(header, payload, hmac(secret)));
  const plain = own(HS256);
  const twice = `{"iss":"netlify","sha256":"${digest("x", "hex")}","sha256":"${claims.sha256}"}`;
  write("netlify", "jwt-hs256", [
    ["accept", "plain", "HS256 with the body's digest.", plain],
    ["reject", "altered-body", "One byte more.", { ...plain, body: body + "\n" }],
    ["reject", "none", "The token says that it is not signed.", delivery(token({ alg: "none" }, claims, () => ""))],
    ["reject", "none-signed", "The same with a signature.", own({ alg: "none" })],
    ["reject", "hs512", "An algorithm that is not accepted.", delivery(token({ alg: "HS512" }, claims, hmac(secret, "sha512")))],
    ["reject", "lower-case", "Names of algorithms have a case.", own({ alg: "hs256" })],
    ["reject", "critical", "An extension that must be understood.", own({ ...HS256, crit: ["b64"], b64: false })],
    ["reject", "another-secret", "Another secret.", delivery(token(HS256, claims, hmac("another")))],
    ["reject", "another-issuer", "Another issuer.", own(HS256, { ...claims, iss: "netlifx" })],
    ["reject", "no-issuer", "No issuer.", own(HS256, { sha256: claims.sha256 })],
    ["reject", "no-digest", "No claim for the body.", own(HS256, { iss: "netlify" })],
    ["reject", "twice", "A claim that comes twice.", own(HS256, twice)],
    ["reject", "base64", "The digest in another encoding.", own(HS256, { ...claims, sha256: digest(body, "base64") })],
    ["reject", "four-parts", "Four parts.", delivery(token(HS256, claims, hmac(secret)) + ".AA")],
    ["reject", "expired", "A token that has expired, although this provider's have no time.", own(HS256, { ...claims, exp: NOW - 600 })],
  ]);
}

function livekit() {
  const secret = digest("livekit", "base64url");
  const body = JSON.stringify({ event: "room_started", id: "EV_1", createdAt: "1767225598", room: { name: "deck" } });
  const claims = { sha256: digest(body, "base64"), iss: "APIferry", nbf: NOW - 2, exp: NOW + 298 };
  const own = (more, header = { alg: "HS256" }) => ({
    secrets: ["another", secret],
    headers: { "Content-Type": "application/webhook+json", Authorization: token(header, { ...claims, ...more }, hmac(secret)) },
    body,
    expect_id: "EV_1",
    expect_type: "room_started",
  });
  write("livekit", "jwt-hs256", [
    ["accept", "plain", "HS256 with the body's digest, and two secrets.", own({})],
    ["reject", "expired", "An hour old.", own({ nbf: NOW - 3600, exp: NOW - 3300 })],
    ["reject", "early", "From the future.", own({ nbf: NOW + 600, exp: NOW + 900 })],
    ["reject", "no-time", "Without a time it would be valid for ever.", own({ nbf: undefined, exp: undefined })],
    ["reject", "time-as-text", "A time is a number.", own({ exp: String(NOW + 298) })],
    ["reject", "access-token", "A participant's token has no digest.", own({ sha256: undefined, video: { room: "deck" } })],
  ]);
}

function fusionauth() {
  const { privateKey, pem } = rsa();
  const body = JSON.stringify({ event: { id: "c0ffee00-0000-4000-8000-000000000001", type: "user.create" } });
  const claims = { request_body_sha256: digest(body, "base64"), iat: NOW - 1 };
  const own = (alg, signer, more = {}) => ({
    keys: { rsa_public_pem: pem },
    headers: { ...JSON_TYPE, "X-FusionAuth-Signature-JWT": token({ alg, typ: "JWT", kid: "k1" }, { ...claims, ...more }, signer) },
    body,
    expect_id: "c0ffee00-0000-4000-8000-000000000001",
    expect_type: "user.create",
  });
  const rs256 = (text) => sign("sha256", Buffer.from(text), privateKey).toString("base64url");
  const rs512 = (text) => sign("sha512", Buffer.from(text), privateKey).toString("base64url");
  write("fusionauth", "jwt-rs256", [
    ["accept", "rs256", "RS256 with a public key in PEM.", own("RS256", rs256)],
    ["reject", "public-key-as-secret", "HS256 with the text of the public key for a secret.", own("HS256", hmac(pem))],
    ["reject", "public-key-as-secret-with-newline", "The same with the text's last newline.", own("HS256", hmac(pem + "\n"))],
    ["reject", "es256", "Another accepted algorithm, for which there is no key.", own("ES256", rs256)],
    ["reject", "rs512", "Another hash.", own("RS512", rs512)],
    ["reject", "rs512-as-rs256", "Another hash than the header says.", own("RS256", rs512)],
    ["reject", "future", "Issued in the future.", own("RS256", rs256, { iat: NOW + 600 })],
  ]);
}

kick();
netlify();
livekit();
fusionauth();
