import { WebflowClient } from "webflow-api";

export const library = "webflow-api";
export const secret = "made-for-tests-made-for-tests";
export const differs = { stale: "the library does not look at the time" };

export async function judge({ body, headers }, secret) {
  const { webhooks } = new WebflowClient({ accessToken: "none" });
  const genuine = await webhooks.verifySignature({ headers, body: body.toString(), secret });
  return genuine && { id: undefined, type: JSON.parse(body).triggerType };
}
