#!/usr/bin/env bash
# @shopify/shopify-api 15.0.0 (npm): `webhooks.validate` gives the topic `orders/create` as `ORDERS_CREATE`, so a rule
# written for one of them misses the other; and it refuses a request whose signature is right if the headers with the
# shop's domain or the API's version are missing, which nothing signs.
. "$(dirname "$0")/lib/packages.bash"
npm_packages @shopify/shopify-api@15.0.0
cat >try.mjs <<'JS'
import { createHmac } from "node:crypto";
import "@shopify/shopify-api/adapters/web-api";
import { ApiVersion, shopifyApi } from "@shopify/shopify-api";
const apiSecretKey = "made-for-tests";
const app = shopifyApi({
  apiKey: "none", apiSecretKey, hostName: "hooks.example.org", isEmbeddedApp: false,
  apiVersion: Object.values(ApiVersion).at(-1), logger: { level: 0, log: () => {} },
});
const rawBody = '{"id":1}';
const signed = {
  "x-shopify-hmac-sha256": createHmac("sha256", apiSecretKey).update(rawBody).digest("base64"),
  "x-shopify-topic": "orders/create",
  "x-shopify-webhook-id": "00000000-0000-4000-8000-000000000001",
};
const all = { ...signed, "x-shopify-shop-domain": "a.myshopify.com", "x-shopify-api-version": "2026-07" };
for (const headers of [all, signed]) {
  const rawRequest = new Request("https://hooks.example.org/", { method: "POST", headers });
  const { valid, topic } = await app.webhooks.validate({ rawBody, rawRequest });
  console.log(valid, topic);
}
JS
node try.mjs | expect 'true ORDERS_CREATE
false undefined'
