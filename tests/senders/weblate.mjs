// The module of Weblate that signs and sends webhooks, without the rest of Weblate, which needs a newer Python than
// Debian 12 has: see weblate.py.

import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { run } from "./process.mjs";

export const sender = {
  version: "Weblate 2026.10.1 (PyPI), its module addons/webhooks.py",
  provider: "weblate",
  type: "Translation changed",
  id: ({ headers }) => headers.find(([name]) => name.toLowerCase() === "webhook-id")[1],
  repeated: "duplicate",
  resends: {},
  secret: () => `whsec_${Buffer.from("a key of 32 bytes, made for tests").toString("base64")}`,

  install: (place) => place.python(),

  async start({ program, url, secret, folder }) {
    const script = fileURLToPath(new URL("weblate.py", import.meta.url));
    return {
      async send(n) {
        const target = `Übersetzung-${n}-of-tests`;
        const options = { cwd: folder, env: { NO_PROXY: "127.0.0.1" } };
        await run(join(program, "python"), [script, url, secret, String(n), target], options);
        return target;
      },
    };
  },
};
