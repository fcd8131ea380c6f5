import { Signature } from "@hubspot/api-client";

export const library = "@hubspot/api-client";
export const secret = "made-for-tests-made-for-tests";
export const looksAtTime = true;
export const settings = 'public_url = "https://hooks.example.org"';

/** It parses no events. */
export function judge({ body, headers, url }, clientSecret) {
  const genuine = Signature.isValid({
    signatureVersion: "v3",
    method: "POST",
    clientSecret,
    url,
    requestBody: body.toString(),
    signature: headers["x-hubspot-signature-v3"],
    timestamp: Number(headers["x-hubspot-request-timestamp"]),
  });
  return genuine && {};
}

export function sign({ body, at, url }, clientSecret) {
  const timestamp = at * 1000;
  return {
    "X-HubSpot-Signature-v3": Signature.getSignature("POST", "v3", { clientSecret, requestBody: body, url, timestamp }),
    "X-HubSpot-Request-Timestamp": timestamp,
  };
}

export const sample = {
  type: "contact.creation",
  body:
    '[{"eventId":1,"subscriptionId":2,"portalId":3,"appId":4,"occurredAt":1767225595000,' +
    '"subscriptionType":"contact.creation","attemptNumber":0,"objectId":5,"changeSource":"IMPORT"}]',
};
