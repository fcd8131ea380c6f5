import { EventSubMiddleware } from "@twurple/eventsub-http";

export const library = "@twurple/eventsub-http";
export const secret = "made-for-tests-made-for-tests";

// What its handler does before it looks the subscription up at Twitch.
export function judge({ body, headers }, secret) {
  const id = headers["twitch-eventsub-message-id"];
  const timestamp = headers["twitch-eventsub-message-timestamp"];
  const signature = headers["twitch-eventsub-message-signature"];
  const verify = EventSubMiddleware.prototype._verifyData;
  if (!verify.call({ _secret: secret }, id, timestamp, body.toString(), signature)) return false;
  return { id, type: headers["twitch-eventsub-subscription-type"] };
}
