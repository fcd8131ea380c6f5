import hygraph from "@hygraph/utils";

export const library = "@hygraph/utils";
export const secret = "made-for-tests-made-for-tests";

/** The type alone: a body has no id of the event. The library looks at no time. */
export function judge({ body, headers }, secret) {
  const rawPayload = body.toString();
  const signature = headers["gcms-signature"];
  if (!hygraph.verifyWebhookSignature({ body: JSON.parse(rawPayload), rawPayload, signature, secret })) return false;
  return { type: JSON.parse(rawPayload).operation };
}

export function sign({ body }, secret) {
  return { "gcms-signature": hygraph.generateWebhookSignature({ rawPayload: body, environmentName: "dev", secret }) };
}
export const sample = {
  type: "publish",
  body: '{"operation":"publish","data":{"__typename":"Post","id":"ck1","title":"a \\"quote\\" \\\\ / é\\n","stage":"DRAFT"}}',
};
