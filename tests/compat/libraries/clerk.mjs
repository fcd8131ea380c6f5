import { verifyWebhook } from "@clerk/backend/webhooks";

export const library = "@clerk/backend";
export const secret = "whsec_bWFkZSBmb3IgdGVzdHMsIDI0IGJ5dGVz";
export const looksAtTime = true;

export async function judge({ body, headers, url }, signingSecret) {
  const request = new Request(url ?? "https://hooks.example.org", { method: "POST", headers, body });
  const event = await verifyWebhook(request, { signingSecret });
  return { id: headers["svix-id"], type: event.type };
}
