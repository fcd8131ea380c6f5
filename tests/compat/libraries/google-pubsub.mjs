import { createPublicKey, generateKeyPairSync, sign as signWith } from "node:crypto";

import { OAuth2Client } from "google-auth-library";

const ISSUER = "https://accounts.google.com";
const EMAIL = "push@made-for-tests.iam.gserviceaccount.com";
const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const key = { ...publicKey.export({ format: "jwk" }), kid: "made-for-tests", use: "sig", alg: "RS256" };

export const library = "google-auth-library";
// As https://www.googleapis.com/oauth2/v3/certs has it.
export const secret = JSON.stringify({ keys: [key] });
export const looksAtTime = true;
export const settings = `public_url = "https://hooks.example.org"\nsender = "${EMAIL}"`;

export async function judge({ body, headers, url }, secret) {
  const keys = JSON.parse(secret).keys.map((key) => {
    const pem = createPublicKey({ format: "jwk", key }).export({ format: "pem", type: "spki" });
    return [key.kid, pem];
  });
  const token = headers.authorization.slice("Bearer ".length);
  const ticket = await new OAuth2Client().verifySignedJwtWithCertsAsync(token, Object.fromEntries(keys), url, [ISSUER]);
  const { email, email_verified } = ticket.getPayload();
  if (email !== EMAIL || !email_verified) return false;
  return { id: JSON.parse(body).message.messageId, type: undefined };
}

// The library only verifies. Google's token names the URL of the subscription as its audience.
export function sign({ at, url }) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const claims = { aud: url, email: EMAIL, email_verified: true, exp: at + 3600, iat: at, iss: ISSUER, sub: "1" };
  const content = `${part({ alg: "RS256", kid: key.kid, typ: "JWT" })}.${part(claims)}`;
  return { Authorization: `Bearer ${content}.${signWith("sha256", Buffer.from(content), privateKey).toString("base64url")}` };
}
export const sample = {
  id: "136969346945",
  body: '{"message":{"data":"SGVsbG8=","messageId":"136969346945","message_id":"136969346945"},"subscription":"projects/a/subscriptions/b"}',
};
