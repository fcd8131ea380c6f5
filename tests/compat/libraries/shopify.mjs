import "@shopify/shopify-api/adapters/web-api";

import { ApiVersion, shopifyApi } from "@shopify/shopify-api";

export const library = "@shopify/shopify-api";
export const secret = "made-for-tests-made-for-tests";

const app = (apiSecretKey) =>
  shopifyApi({
    apiKey: "none",
    apiSecretKey,
    apiVersion: Object.values(ApiVersion).at(-1),
    hostName: "hooks.example.org",
    isEmbeddedApp: false,
    logger: { level: 0, log: () => {} },
  });

export async function judge({ body, headers, url }, secret) {
  // The library wants these two, which nothing signs.
  const all = { "x-shopify-shop-domain": "a.myshopify.com", "x-shopify-api-version": "2026-07", ...headers };
  const rawRequest = new Request(url, { method: "POST", headers: all });
  const found = await app(secret).webhooks.validate({ rawBody: body.toString(), rawRequest });
  // It gives the topic in another spelling, ORDERS_CREATE.
  return found.valid && { id: found.webhookId, type: headers["x-shopify-topic"] };
}
