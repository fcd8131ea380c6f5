import { hmacValidator } from "@adyen/api-library";

export const library = "@adyen/api-library";
export const secret = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056";

export function judge({ body, headers }, secret) {
  const text = body.toString();
  const genuine = new hmacValidator().validateHMACSignature(secret, headers.hmacsignature, text);
  return genuine && { id: undefined, type: JSON.parse(text).type };
}
