import OpenAI from "openai";

export const library = "openai";
export const secret = "whsec_bWFkZSBmb3IgdGVzdHMsIDI0IGJ5dGVz";
export const looksAtTime = true;

export async function judge({ body, headers }, secret) {
  const event = await new OpenAI({ apiKey: "none" }).webhooks.unwrap(body.toString(), headers, secret);
  return { id: headers["webhook-id"], type: event.type };
}
