import { Resend } from "resend";

export const library = "resend";
export const secret = "whsec_bWFkZSBmb3IgdGVzdHMsIDI0IGJ5dGVz";
export const looksAtTime = true;

export function judge({ body, headers }, webhookSecret) {
  const event = new Resend("re_none").webhooks.verify({
    payload: body.toString(),
    headers: { id: headers["svix-id"], timestamp: headers["svix-timestamp"], signature: headers["svix-signature"] },
    webhookSecret,
  });
  return { id: headers["svix-id"], type: event.type };
}
