import { Anthropic } from "@anthropic-ai/sdk";

export const library = "@anthropic-ai/sdk";
export const secret = "whsec_bWFkZSBmb3IgdGVzdHMsIDI0IGJ5dGVz";
export const looksAtTime = true;

export function judge({ body, headers }, key) {
  const event = new Anthropic({ apiKey: "none" }).beta.webhooks.unwrap(body.toString(), { headers, key });
  return { id: headers["webhook-id"], type: event.data.type };
}
