import { parse } from "gocardless-nodejs";

export const library = "gocardless-nodejs";
export const secret = "made-for-tests-made-for-tests";

export function judge({ body, headers }, secret) {
  const [event] = parse(body, secret, headers["webhook-signature"]);
  return { id: event?.id, type: event && `${event.resource_type}.${event.action}` };
}
