import { hmacValidator } from "@adyen/api-library";

export const library = "@adyen/api-library";
export const secret = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056";

const items = (body) => JSON.parse(body.toString()).notificationItems.map((item) => item.NotificationRequestItem);

export function judge({ body }, secret) {
  const [item, ...more] = items(body);
  const genuine = [item, ...more].every((one) => new hmacValidator().validateHMAC(one, secret));
  return genuine && { id: undefined, type: item.eventCode };
}

export function sign({ body }, secret) {
  const notification = JSON.parse(body);
  for (const { NotificationRequestItem: item } of notification.notificationItems) {
    item.additionalData = { ...item.additionalData, hmacSignature: new hmacValidator().calculateHmac(item, secret) };
  }
  return { headers: {}, body: JSON.stringify(notification) };
}

export const sample = {
  id: "7914073381342284:AUTHORISATION:true",
  type: "AUTHORISATION",
  body: JSON.stringify({
    live: "false",
    notificationItems: [
      {
        NotificationRequestItem: {
          eventCode: "AUTHORISATION",
          success: "true",
          eventDate: "2026-01-01T01:00:00+01:00",
          merchantAccountCode: "TestMerchant",
          pspReference: "7914073381342284",
          originalReference: "",
          merchantReference: "Order:1001",
          amount: { value: 1130, currency: "EUR" },
        },
      },
    ],
  }),
};
