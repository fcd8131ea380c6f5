import Chargebee, { basicAuthValidator } from "chargebee";

export const library = "chargebee";
export const secret = "hooks:made-for-tests";

const chargebee = new Chargebee({ site: "none", apiKey: "none" });

/** Its proof is the user and the password: a changed body is as genuine as the first. */
export async function judge({ body, headers }, secret) {
  const handler = chargebee.webhooks.createHandler({
    requestValidator: basicAuthValidator((user, password) => `${user}:${password}` === secret),
  });
  let event;
  handler.on("unhandled_event", (context) => {
    event = context.event;
  });
  handler.on("error", () => {}); // without a listener it prints what it refuses
  await handler.handle({ body: body.toString(), headers });
  return event !== undefined && { id: event.id, type: event.event_type };
}
