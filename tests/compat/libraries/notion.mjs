import { signWebhookPayload, verifyWebhookSignature } from "@notionhq/client";

export const library = "@notionhq/client";
export const secret = "secret_made-for-tests";

/** It checks the signature alone and parses nothing. */
export async function judge({ body, headers }, verificationToken) {
  const signature = headers["x-notion-signature"];
  return (await verifyWebhookSignature({ body: body.toString(), signature, verificationToken })) && {};
}

export async function sign({ body }, verificationToken) {
  return {
    "content-type": "application/json",
    "x-notion-signature": await signWebhookPayload({ body, verificationToken }),
  };
}

export const sample = {
  id: "367cba44-b6f3-4c92-81e7-6a2e9659efd4",
  type: "page.content_updated",
  body: '{"id":"367cba44-b6f3-4c92-81e7-6a2e9659efd4","type":"page.content_updated","attempt_number":1}',
};
