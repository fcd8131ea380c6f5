import { ElevenLabsClient } from "@elevenlabs/elevenlabs-js";

export const library = "@elevenlabs/elevenlabs-js";
export const secret = "wsec_made-for-tests";
export const looksAtTime = true; // 30 minutes, to the past only

export async function judge({ body, headers }, secret) {
  const client = new ElevenLabsClient({ apiKey: "none" });
  const event = await client.webhooks.constructEvent(body.toString(), headers["elevenlabs-signature"], secret);
  return { id: undefined, type: event.type };
}
