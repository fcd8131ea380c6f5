import { generateKeyPairSync, sign as signed } from "node:crypto";
import sendgrid from "@sendgrid/eventwebhook";

const { EventWebhook, EventWebhookHeader } = sendgrid;
const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "prime256v1" });

export const library = "@sendgrid/eventwebhook"; // it does not look at the time
export const secret = publicKey.export({ type: "spki", format: "der" }).toString("base64");

/** Every event of the list; the test sends one. */
export function judge({ body, headers }, secret) {
  const webhook = new EventWebhook();
  const key = webhook.convertPublicKeyToECDSA(secret);
  const header = (name) => headers[name.toLowerCase()];
  const [signature, at] = [header(EventWebhookHeader.SIGNATURE()), header(EventWebhookHeader.TIMESTAMP())];
  if (!webhook.verifySignature(key, body, signature, at)) return false;
  const [event] = JSON.parse(body);
  return { id: event.sg_event_id, type: event.event };
}

/** The library does not sign: as SendGrid does, with the key above. */
export function sign({ body, at }) {
  const signature = signed("sha256", Buffer.from(`${at}${body}`), privateKey).toString("base64");
  return { [EventWebhookHeader.SIGNATURE()]: signature, [EventWebhookHeader.TIMESTAMP()]: String(at) };
}

const EVENT = { email: "a@example.org", event: "delivered", sg_event_id: "ZGVsaXZlcmVkLTAtMQ", timestamp: 1767225600 };
export const sample = { id: EVENT.sg_event_id, type: EVENT.event, body: `${JSON.stringify([EVENT])}\r\n` };
