#!/usr/bin/env bash
# svix 2.5.0 (npm): `verify` returns nothing. Up to 1.99.1 it returned the parsed body, and much code uses that as the
# event. `npm install svix` on Node.js 20 still gives 1.99.1, without a word, because 2.x asks for Node.js 22.
. "$(dirname "$0")/lib/packages.bash"
npm_packages old@npm:svix@1.99.1 new@npm:svix@2.5.0
cat >try.mjs <<'JS'
for (const name of ["old", "new"]) {
  const { Webhook } = await import(name);
  const webhook = new Webhook("whsec_bWFkZSBmb3IgdGVzdHMsIDI0IGJ5dGVz");
  const [at, body] = [new Date(), '{"type":"invoice.paid"}'];
  const signature = webhook.sign("msg_1", at, body);
  const headers = { "svix-id": "msg_1", "svix-timestamp": String(Math.floor(at / 1000)), "svix-signature": signature };
  console.log(name, JSON.stringify(webhook.verify(body, headers)));
}
JS
node try.mjs | expect 'old {"type":"invoice.paid"}
new undefined'
