// How each provider's own library judges a request: `judge(body, headers, secret, url)` returns or resolves to whether
// it is genuine, or throws. The body is the text as it came, and the names of headers are in lower case.

import { Anthropic } from "@anthropic-ai/sdk";
import easypost from "@easypost/api";
import { signatureHelper } from "@kontent-ai/webhook-helper";
import * as line from "@line/bot-sdk";
import { LinearWebhookClient } from "@linear/sdk/webhooks";
import { WebhookHandler } from "@liveblocks/node";
import Mux from "@mux/mux-node";
import { verifyWebhookSignature } from "@notionhq/client";
import { Paddle } from "@paddle/paddle-node-sdk";
import { isValidSignature } from "@sanity/webhook";
import { WorkOS } from "@workos-inc/node";
import coinbase from "coinbase-commerce-node";
import DodoPayments from "dodopayments";
import { parse } from "gocardless-nodejs";
import Lithic from "lithic";
import OpenAI from "openai";
import razorpay from "razorpay";
import { Webhook } from "svix";
import twilio from "twilio";
import { WhatsAppAPI } from "whatsapp-api-js";

/** Text that is no secret of anybody's. */
const TEXT = "made-for-tests-made-for-tests";
const STANDARD = `whsec_${Buffer.from("made for tests, 24 bytes").toString("base64")}`;

/** A library that throws at what is not genuine. */
const unless = (judge) => async (...request) => {
  await judge(...request);
  return true;
};
const form = (body) => Object.fromEntries(new URLSearchParams(body));

/** By the name of the provider's file. `stale`: the library refuses an old time. */
export const VERIFIERS = {
  anthropic: {
    library: "@anthropic-ai/sdk",
    secret: STANDARD,
    stale: true,
    judge: unless((body, headers, key) => new Anthropic({ apiKey: "none" }).beta.webhooks.unwrap(body, { headers, key })),
  },
  clerk: {
    library: "svix",
    secret: STANDARD,
    stale: true,
    judge: unless((body, headers, secret) => new Webhook(secret).verify(body, headers)),
  },
  "coinbase-commerce": {
    library: "coinbase-commerce-node",
    secret: TEXT,
    judge: unless((body, headers, secret) =>
      coinbase.Webhook.verifyEventBody(body, headers["x-cc-webhook-signature"], secret),
    ),
  },
  "dodo-payments": {
    library: "dodopayments",
    secret: STANDARD,
    stale: true,
    judge: unless((body, headers, key) => new DodoPayments({ bearerToken: "none" }).webhooks.unwrap(body, { headers, key })),
  },
  easypost: {
    library: "@easypost/api",
    secret: TEXT,
    judge: unless((body, headers, secret) => new easypost("none").Utils.validateWebhook(Buffer.from(body), headers, secret)),
  },
  gocardless: {
    library: "gocardless-nodejs",
    secret: TEXT,
    judge: unless((body, headers, secret) => parse(body, secret, headers["webhook-signature"])),
  },
  "kontent-ai": {
    library: "@kontent-ai/webhook-helper",
    secret: TEXT,
    judge: (body, headers, secret) =>
      signatureHelper.isValidSignatureFromString(body, secret, headers["x-kontent-ai-signature"]),
  },
  line: {
    library: "@line/bot-sdk",
    secret: TEXT,
    judge: (body, headers, secret) => line.validateSignature(body, secret, headers["x-line-signature"]),
  },
  linear: {
    library: "@linear/sdk",
    secret: TEXT,
    stale: true,
    judge: (body, headers, secret) =>
      new LinearWebhookClient(secret).verify(Buffer.from(body), headers["linear-signature"], JSON.parse(body).webhookTimestamp),
  },
  lithic: {
    library: "lithic",
    secret: STANDARD,
    stale: true,
    judge: unless((body, headers, secret) => new Lithic({ apiKey: "none" }).webhooks.verifySignature(body, headers, secret)),
  },
  liveblocks: {
    library: "@liveblocks/node",
    secret: STANDARD,
    stale: true,
    type: "userEntered",
    judge: unless((rawBody, headers, secret) => new WebhookHandler(secret).verifyRequest({ headers, rawBody })),
  },
  meta: {
    library: "whatsapp-api-js",
    secret: TEXT,
    judge: (body, headers, appSecret) =>
      new WhatsAppAPI({ token: "none", appSecret, webhookVerifyToken: "none" }).verifyRequestSignature(
        body,
        headers["x-hub-signature-256"],
      ),
  },
  mux: {
    library: "@mux/mux-node",
    secret: TEXT,
    stale: true,
    judge: unless((body, headers, secret) => new Mux({ tokenId: "x", tokenSecret: "x" }).webhooks.verifySignature(body, headers, secret)),
  },
  notion: {
    library: "@notionhq/client",
    secret: TEXT,
    judge: (body, headers, verificationToken) =>
      verifyWebhookSignature({ body, signature: headers["x-notion-signature"], verificationToken }),
  },
  openai: {
    library: "openai",
    secret: STANDARD,
    stale: true,
    judge: unless((body, headers, secret) => new OpenAI({ apiKey: "none" }).webhooks.verifySignature(body, headers, secret)),
  },
  paddle: {
    library: "@paddle/paddle-node-sdk",
    secret: TEXT,
    stale: true,
    judge: (body, headers, secret) => new Paddle("none").webhooks.isSignatureValid(body, secret, headers["paddle-signature"]),
  },
  razorpay: {
    library: "razorpay",
    secret: TEXT,
    judge: (body, headers, secret) => razorpay.validateWebhookSignature(body, headers["x-razorpay-signature"], secret),
  },
  sanity: {
    library: "@sanity/webhook",
    secret: TEXT,
    judge: (body, headers, secret) => isValidSignature(body, headers["sanity-webhook-signature"], secret),
  },
  twilio: {
    library: "twilio",
    secret: TEXT,
    judge: (body, headers, secret, url) =>
      twilio.validateRequest(secret, headers["x-twilio-signature"], url, form(body)),
  },
  workos: {
    library: "@workos-inc/node",
    secret: TEXT,
    stale: true,
    judge: unless((body, headers, secret) =>
      new WorkOS("none").webhooks.verifyHeader({
        payload: JSON.parse(body),
        sigHeader: headers["workos-signature"],
        secret,
      }),
    ),
  },
};
