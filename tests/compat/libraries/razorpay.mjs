import razorpay from "razorpay";

export const library = "razorpay";
export const secret = "made-for-tests-made-for-tests";

export function judge({ body, headers }, secret) {
  const genuine = razorpay.validateWebhookSignature(body.toString(), headers["x-razorpay-signature"], secret);
  return genuine && { id: headers["x-razorpay-event-id"], type: JSON.parse(body).event };
}
