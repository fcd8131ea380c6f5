#!/usr/bin/env bash
# box-node-sdk 10.12.0 (npm): a request with the right signature is refused unless it also has the headers
# `box-signature-version: 1` and `box-signature-algorithm: HmacSHA256`, which nothing signs. Where a proxy or a queue hands
# on only what a signature needs, every delivery looks forged.
. "$(dirname "$0")/lib/packages.bash"
npm_packages box-node-sdk@10.12.0
cat >try.cjs <<'JS'
const { createHmac } = require("node:crypto");
const { WebhooksManager } = require("box-node-sdk/lib/managers/webhooks");
const [body, key, at] = ['{"type":"webhook_event"}', "made-for-tests", new Date().toISOString()];
const tag = createHmac("sha256", key).update(body).update(at).digest("base64");
const signed = { "box-delivery-timestamp": at, "box-signature-primary": tag };
const named = { ...signed, "box-signature-version": "1", "box-signature-algorithm": "HmacSHA256" };
(async () => {
  for (const headers of [named, signed]) console.log(await WebhooksManager.validateMessage(body, headers, key));
})();
JS
node try.cjs | expect 'true
false'
