import Stripe from "stripe";

export const library = "stripe";
export const secret = "whsec_made-for-tests";
export const looksAtTime = true;

export function judge({ body, headers }, secret) {
  const event = Stripe.webhooks.constructEvent(body, headers["stripe-signature"], secret);
  return { id: event.id, type: event.type };
}

export function sign({ body, at }, secret) {
  return {
    "content-type": "application/json; charset=utf-8",
    "stripe-signature": Stripe.webhooks.generateTestHeaderString({ payload: body, secret, timestamp: at }),
  };
}

export const sample = {
  id: "evt_1",
  type: "invoice.paid",
  body: '{"id":"evt_1","object":"event","type":"invoice.paid"}',
};
