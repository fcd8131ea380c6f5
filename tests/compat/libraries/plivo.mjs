import { parse } from "node:querystring";

import plivo from "plivo";

export const library = "plivo";
export const secret = "made-for-tests-made-for-tests";
export const settings = 'public_url = "https://hooks.example.org"';

export function judge({ body, headers, url }, secret) {
  const { "x-plivo-signature-v3": signature, "x-plivo-signature-v3-nonce": nonce } = headers;
  const fields = parse(body.toString());
  if (!plivo.validateV3Signature("POST", url, nonce, secret, signature, fields)) return false;
  return { id: undefined, type: fields.Event };
}
