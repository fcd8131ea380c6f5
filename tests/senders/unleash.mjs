// Unleash with PostgreSQL, in which feature flags are made.

import { join } from "node:path";

import { call, NODE } from "./install.mjs";
import { startPostgres } from "./postgres.mjs";
import { freePort } from "./process.mjs";

export const sender = {
  version: "Unleash 8.2.0 (npm: unleash-server)",
  provider: "unleash",
  type: "feature-created",
  id: ({ body }) => String(JSON.parse(body).id),
  repeated: "duplicate",
  resends: {},

  install: (place) => place.npm(),

  async start({ place, program, url, secret, folder }) {
    const [database, port] = [await startPostgres(place), await freePort()];
    const server = place.start(NODE, [join(program, "node_modules/unleash-server/dist/server.js")], {
      cwd: folder,
      env: {
        DATABASE_URL: `postgres://postgres@127.0.0.1:${database}/postgres`,
        DATABASE_SSL: "false",
        HTTP_HOST: "127.0.0.1",
        HTTP_PORT: String(port),
        AUTH_TYPE: "none",
        CHECK_VERSION: "false",
        SEND_TELEMETRY: "false",
        LOG_LEVEL: "info",
        UNLEASH_ALLOW_PRIVATE_URL_IN_INTEGRATION: "true",
      },
    });
    await server.says(/Unleash has started/);
    const api = `http://127.0.0.1:${port}/api/admin`;
    await call("POST", `${api}/addons`, {
      provider: "webhook",
      enabled: true,
      parameters: { url, authorization: `Bearer ${secret}` },
      events: ["feature-created"],
    });
    return {
      async send(n) {
        const name = `flag-${n}-of-tests`;
        await call("POST", `${api}/projects/default/features`, { name, type: "release" });
        return name;
      },
    };
  },
};
