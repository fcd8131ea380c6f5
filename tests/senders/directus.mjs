// Directus with PostgreSQL, and a flow that sends what happens to notes.

import { join } from "node:path";

import { call, nodeGyp, NODE } from "./install.mjs";
import { startPostgres } from "./postgres.mjs";
import { freePort } from "./process.mjs";

const ADMIN = { email: "admin@example.org", password: "made-for-tests" };

export const sender = {
  version: "Directus 12.4.0 (npm)",
  provider: "directus",
  type: "notes.items.create",
  id: "made",
  repeated: "accepted",
  resends: {},

  install: (place) => place.npm((folder) => nodeGyp(folder, join(folder, "node_modules/isolated-vm"))),

  async start({ place, program, url, secret, folder }) {
    const [database, port] = [await startPostgres(place), await freePort()];
    const options = {
      cwd: folder,
      env: {
        HOST: "127.0.0.1",
        PORT: String(port),
        PUBLIC_URL: `http://127.0.0.1:${port}`,
        SECRET: "made-for-tests",
        DB_CLIENT: "pg",
        DB_HOST: "127.0.0.1",
        DB_PORT: String(database),
        DB_DATABASE: "postgres",
        DB_USER: "postgres",
        DB_PASSWORD: "none",
        ADMIN_EMAIL: ADMIN.email,
        ADMIN_PASSWORD: ADMIN.password,
        STORAGE_LOCAL_ROOT: join(folder, "uploads"),
        EXTENSIONS_PATH: join(folder, "extensions"),
        IMPORT_IP_DENY_LIST: "169.254.169.254",
        TELEMETRY: "false",
      },
    };
    const cli = join(program, "node_modules/directus/cli.js");
    const bootstrap = place.start(NODE, ["--no-node-snapshot", cli, "bootstrap"], options);
    const how = await bootstrap.exit();
    if (how !== 0) throw new Error(`directus bootstrap ended with ${how}:\n${bootstrap.log()}`);
    await place.start(NODE, ["--no-node-snapshot", cli, "start"], options).says(/Server started at/);
    const api = `http://127.0.0.1:${port}`;
    const { data: session } = await call("POST", `${api}/auth/login`, ADMIN);
    const headers = { Authorization: `Bearer ${session.access_token}` };
    const make = async (what, body) => (await call("POST", `${api}/${what}`, body, headers)).data;
    const id = { field: "id", type: "integer", schema: { is_primary_key: true, has_auto_increment: true } };
    await make("collections", { collection: "notes", schema: {}, fields: [id, { field: "title", type: "string" }] });
    const flow = await make("flows", {
      name: "hooklatch",
      status: "active",
      trigger: "event",
      options: { type: "action", scope: ["items.create"], collections: ["notes"] },
    });
    const operation = await make("operations", {
      flow: flow.id,
      key: "send",
      type: "request",
      position_x: 20,
      position_y: 1,
      options: {
        method: "POST",
        url,
        headers: [{ header: "Authorization", value: `Bearer ${secret}` }],
        body: "{{ $trigger }}",
      },
    });
    await call("PATCH", `${api}/flows/${flow.id}`, { operation: operation.id }, headers);
    return {
      async send(n) {
        const title = `note-${n}-of-tests`;
        await make("items/notes", { title });
        return title;
      },
    };
  },
};
