import coinbase from "coinbase-commerce-node";

export const library = "coinbase-commerce-node";
export const secret = "made-for-tests-made-for-tests";

export function judge({ body, headers }, secret) {
  const event = coinbase.Webhook.verifyEventBody(body.toString(), headers["x-cc-webhook-signature"], secret);
  return { id: event.id, type: event.type };
}
