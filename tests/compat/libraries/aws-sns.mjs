import { createSign, generateKeyPairSync } from "node:crypto";
import https from "node:https";
import { PassThrough } from "node:stream";

import MessageValidator from "sns-validator";

const { publicKey, privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const TOPIC = "arn:aws:sns:eu-west-1:123456789012:made-for-tests";
const SIGNED = ["Message", "MessageId", "SubscribeURL", "Subject", "Timestamp", "Token", "TopicArn", "Type"];
const CERTIFICATE = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-made-for-tests.pem";

export const library = "sns-validator";
export const secret = publicKey.export({ type: "spki", format: "der" }).toString("base64");
export const settings = `sender = "${TOPIC}"`;

/** It fetches the certificate by itself; here it gets the source's key in its place. */
async function withKey(key, run) {
  const { get } = https;
  https.get = (url, answered) => {
    const response = new PassThrough();
    response.statusCode = url === CERTIFICATE ? 200 : 404;
    answered(response);
    response.end(`-----BEGIN PUBLIC KEY-----\n${key}\n-----END PUBLIC KEY-----\n`);
    return response;
  };
  try {
    return await run();
  } finally {
    https.get = get;
  }
}

/** It looks at no time. */
export function judge({ body }, secret) {
  const validator = new MessageValidator();
  const validate = () =>
    new Promise((resolve, reject) =>
      validator.validate(body.toString(), (error, message) => (error ? reject(error) : resolve(message))),
    );
  return withKey(secret, validate).then(({ MessageId, Type }) => ({ id: MessageId, type: Type }));
}

export function sign({ body, at }) {
  const message = { ...JSON.parse(body), Timestamp: new Date(at * 1000).toISOString() };
  const signer = createSign("RSA-SHA256");
  for (const name of Object.keys(message).filter((name) => SIGNED.includes(name)).sort()) {
    signer.update(`${name}\n${message[name]}\n`);
  }
  const signature = signer.sign(privateKey, "base64");
  const { Type, ...rest } = message;
  return { headers: {}, body: JSON.stringify({ ...rest, Signature: signature, Type }) };
}

export const sample = {
  id: "22b80b92-fdea-4c2c-8f9d-000000000001",
  type: "Notification",
  body: JSON.stringify({
    MessageId: "22b80b92-fdea-4c2c-8f9d-000000000001",
    TopicArn: TOPIC,
    Subject: "Made for tests",
    Message: "line one\nline two",
    SignatureVersion: "2",
    SigningCertURL: CERTIFICATE,
    Type: "Notification",
  }),
};
