import { WebhooksHelper } from "square";

export const library = "square";
export const secret = "made-for-tests-made-for-tests";
export const settings = 'public_url = "https://hooks.example.org"';

export async function judge({ body, headers, url }, secret) {
  const genuine = await WebhooksHelper.verifySignature({
    requestBody: body.toString(),
    signatureHeader: headers["x-square-hmacsha256-signature"],
    signatureKey: secret,
    notificationUrl: url,
  });
  const event = genuine && JSON.parse(body);
  return genuine && { id: event.event_id, type: event.type };
}
