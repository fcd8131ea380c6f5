import EasyPost from "@easypost/api";

export const library = "@easypost/api";
export const secret = "made-for-tests-made-for-tests";

const client = new EasyPost("made-for-tests");

export function judge({ body, headers }, secret) {
  const event = client.Utils.validateWebhook(body, headers, secret);
  return { id: event.id, type: event.description };
}
