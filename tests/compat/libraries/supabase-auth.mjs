import { Webhook } from "standardwebhooks";

export const library = "standardwebhooks"; // which Supabase's documentation uses
export const secret = "v1,whsec_bWFkZSBmb3IgdGVzdHMsIDI0IGJ5dGVz";
export const looksAtTime = true;

export function judge({ body, headers }, secret) {
  const { metadata } = new Webhook(secret.replace("v1,whsec_", "")).verify(body, headers);
  return { id: metadata?.uuid, type: metadata?.name };
}
