// Strapi with PostgreSQL, and an application of one type of content, whose entries are made.

import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

import { call, NODE } from "./install.mjs";
import { startPostgres } from "./postgres.mjs";
import { freePort } from "./process.mjs";

const TYPE = "api::article.article";

/** The files of the application. Strapi's own generator asks for more than a test needs. */
const application = (database, port) => ({
  "package.json": JSON.stringify({ name: "tests", version: "1.0.0", private: true, strapi: { uuid: false } }),
  "config/database.js": `module.exports = () => ({
    connection: {
      client: "postgres",
      connection: { host: "127.0.0.1", port: ${database}, database: "postgres", user: "postgres", password: "" },
    },
  });`,
  "config/server.js": `module.exports = () => ({ host: "127.0.0.1", port: ${port}, app: { keys: ["a", "b"] } });`,
  "config/admin.js": `module.exports = () => ({
    serveAdminPanel: false,
    auth: { secret: "made-for-tests" },
    apiToken: { salt: "made-for-tests" },
    transfer: { token: { salt: "made-for-tests" } },
    secrets: { encryptionKey: "0123456789abcdef0123456789abcdef" },
  });`,
  "config/middlewares.js": `module.exports = [
    "logger", "errors", "security", "cors", "query", "body", "session", "favicon", "public",
  ].map((name) => "strapi::" + name);`,
  "src/api/article/content-types/article/schema.json": JSON.stringify({
    kind: "collectionType",
    collectionName: "articles",
    info: { singularName: "article", pluralName: "articles", displayName: "Article" },
    options: { draftAndPublish: false },
    attributes: { title: { type: "string" } },
  }),
  "src/api/article/controllers/article.js": controller("Controller"),
  "src/api/article/services/article.js": controller("Service"),
  "src/api/article/routes/article.js": controller("Router"),
  "src/index.js": "module.exports = {};",
  "public/uploads/.gitkeep": "",
  "favicon.png": "",
  "start.js": `require("@strapi/strapi").createStrapi({ appDir: __dirname, distDir: __dirname }).start();`,
});

function controller(what) {
  return `module.exports = require("@strapi/strapi").factories.createCore${what}("${TYPE}");`;
}

export const sender = {
  version: "Strapi 5.54.0 (npm)",
  provider: "strapi",
  type: "entry.create",
  id: "made",
  repeated: "accepted",
  resends: {},

  install: (place) => place.npm(),

  async start({ place, program, url, secret, folder }) {
    const [database, port] = [await startPostgres(place), await freePort()];
    for (const [name, text] of Object.entries(application(database, port))) {
      mkdirSync(dirname(join(folder, name)), { recursive: true });
      writeFileSync(join(folder, name), text);
    }
    symlinkSync(join(program, "node_modules"), join(folder, "node_modules"));
    const env = { NODE_ENV: "development", STRAPI_TELEMETRY_DISABLED: "true" };
    const strapi = place.start(NODE, ["--preserve-symlinks", "start.js"], { cwd: folder, env });
    await strapi.says(/Strapi started successfully/);
    const api = `http://127.0.0.1:${port}`;
    const user = { email: "admin@example.org", password: "Made4tests", firstname: "Admin", lastname: "Admin" };
    const { data } = await call("POST", `${api}/admin/register-admin`, user);
    const headers = { Authorization: `Bearer ${data.token}` };
    const hook = { name: "hooklatch", url, headers: { Authorization: `Bearer ${secret}` }, events: ["entry.create"] };
    await call("POST", `${api}/admin/webhooks`, hook, headers);
    return {
      async send(n) {
        const title = `article-${n}-of-tests`;
        await call("POST", `${api}/content-manager/collection-types/${TYPE}`, { title }, headers);
        return title;
      },
    };
  },
};
