#!/usr/bin/env bash
# @easypost/api 8.9.0 (npm): `validateWebhook` rewrites every whole-number weight to `1.0` before it signs, since EasyPost
# signs what its own server writes. A body that was signed as it stands, with `"weight":1`, is refused.
. "$(dirname "$0")/lib/packages.bash"
npm_packages @easypost/api@8.9.0
cat >try.mjs <<'JS'
import { createHmac } from "node:crypto";
import EasyPost from "@easypost/api";
const [client, secret] = [new EasyPost("none"), "made-for-tests"];
for (const body of ['{"id":"evt_1","result":{"weight":1.0}}', '{"id":"evt_1","result":{"weight":1}}']) {
  const tag = createHmac("sha256", secret).update(body).digest("hex");
  try {
    client.Utils.validateWebhook(Buffer.from(body), { "x-hmac-signature": `hmac-sha256-hex=${tag}` }, secret);
    console.log("taken", body);
  } catch (error) {
    console.log("refused", body);
  }
}
JS
node try.mjs | expect 'taken {"id":"evt_1","result":{"weight":1.0}}
refused {"id":"evt_1","result":{"weight":1}}'
