// localstripe, a server with Stripe's API, which signs its webhooks as Stripe does.

import { randomBytes } from "node:crypto";
import { join } from "node:path";

import { call } from "./install.mjs";
import { freePort } from "./process.mjs";

export const sender = {
  version: "localstripe 1.15.10 (PyPI)",
  provider: "stripe",
  type: "customer.created",
  id: ({ body }) => JSON.parse(body).id,
  repeated: "duplicate",
  resends: {},
  secret: () => `whsec_${randomBytes(24).toString("hex")}`,

  install: (place) => place.python(),

  async start({ place, program, url, secret, folder }) {
    const port = await freePort();
    const env = { PYTHONUNBUFFERED: "1" };
    const args = ["--port", String(port), "--from-scratch"];
    await place.start(join(program, "localstripe"), args, { cwd: folder, env }).says(/Running on/);
    const api = `http://127.0.0.1:${port}`;
    const form = { "Content-Type": "application/x-www-form-urlencoded", Authorization: "Bearer sk_test_1" };
    const fields = new URLSearchParams({ url, secret, "events[]": "customer.created" });
    await call("POST", `${api}/_config/webhooks/hooklatch`, String(fields), form);
    return {
      async send(n) {
        const email = `customer-${n}@example.org`;
        await call("POST", `${api}/v1/customers`, String(new URLSearchParams({ email })), form);
        return email;
      },
    };
  },
};
