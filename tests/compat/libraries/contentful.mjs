import { signRequest, verifyRequest } from "@contentful/node-apps-toolkit";

export const library = "@contentful/node-apps-toolkit";
export const secret = "made-for-tests-".padEnd(64, "0");
export const looksAtTime = true;
export const settings = 'public_url = "https://hooks.example.org"';

const TOLERANCE_SECS = 300;

const request = (url, headers, body) => ({ method: "POST", path: new URL(url).pathname, headers, body });

export function judge({ body, headers, url }, secret) {
  if (!verifyRequest(secret, request(url, headers, body.toString()), TOLERANCE_SECS)) return false;
  return { id: headers["x-contentful-idempotency-key"], type: headers["x-contentful-topic"] };
}

/** With a header of the user's own, which has a separator of the signed content in its value. */
export function sign({ body, type, at, url }, secret) {
  const headers = {
    "Content-Type": "application/json; charset=utf-8",
    "X-Contentful-Topic": type,
    "X-Contentful-Idempotency-Key": "0".repeat(64),
    "X-Own": " a, b ",
  };
  return { ...headers, ...signRequest(secret, request(url, headers, body), at * 1000) };
}
export const sample = { type: "ContentManagement.Entry.publish", body: '{"sys":{"type":"Entry","id":"e1"}}' };
