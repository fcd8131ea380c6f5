import { WhatsAppAPI } from "whatsapp-api-js";

export const library = "whatsapp-api-js";
export const secret = "made-for-tests-made-for-tests";
export const settings = 'verify_token = "file:meta.secret"';

export async function judge({ body, headers }, appSecret) {
  const api = new WhatsAppAPI({ token: "none", appSecret, webhookVerifyToken: "none" });
  if (!(await api.verifyRequestSignature(body.toString(), headers["x-hub-signature-256"]))) return false;
  return { id: undefined, type: JSON.parse(body).object };
}
