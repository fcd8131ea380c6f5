// Ghost with SQLite, in which tags and posts are made. Its own package has its lock file, which is pnpm's.

import { createHash } from "node:crypto";
import { cpSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { call, nodeGyp, NODE, NODE_PATH } from "./install.mjs";
import { freePort, run } from "./process.mjs";

const VERSION = "6.65.0";
const INTEGRITY =
  "sha512-D369qivOmfn4YwvBD1DljOGsHnJzBEQhBsiFnBZD+GjWrBpdZQYYNHneiQcKQVJwUom8eHWml1n5FRLQIwVFOg==";

/** Ghost's package, its dependencies by its own lock file, and its SQLite module, built here. */
async function unpack(folder) {
  await run("npm", ["pack", "--silent", `ghost@${VERSION}`], { cwd: folder });
  const archive = join(folder, `ghost-${VERSION}.tgz`);
  const digest = createHash("sha512").update(readFileSync(archive)).digest("base64");
  if (`sha512-${digest}` !== INTEGRITY) throw new Error(`${archive} is sha512-${digest}`);
  await run("tar", ["xzf", archive], { cwd: folder });
  const ghost = join(folder, "package");
  // Else pnpm writes into the user's home.
  const env = { PATH: NODE_PATH, XDG_STATE_HOME: folder, XDG_DATA_HOME: folder, XDG_CACHE_HOME: folder };
  const pnpm = join(folder, "node_modules/.bin/pnpm");
  const store = `--store-dir=${join(folder, "store")}`;
  await run(pnpm, ["install", "--prod", "--frozen-lockfile", "--ignore-scripts", store], { cwd: ghost, env });
  await nodeGyp(folder, join(ghost, "node_modules/better-sqlite3"));
}

export const sender = {
  version: `Ghost ${VERSION} (npm)`,
  provider: "ghost",
  type: "tag.added",
  id: "digest", // Of all that is signed, which has the time.
  repeated: "duplicate",
  equal: "accepted",
  resends: {},

  install: (place) => place.npm(unpack),

  async start({ place, program, url, secret, folder }) {
    const port = await freePort();
    const site = `http://127.0.0.1:${port}`;
    const content = join(folder, "content");
    cpSync(join(program, "package/content"), content, { recursive: true, dereference: true });
    const ghost = place.start(NODE, ["index.js"], {
      cwd: join(program, "package"),
      env: {
        NODE_ENV: "development",
        GHOST_NODE_VERSION_CHECK: "false",
        url: site,
        server__port: String(port),
        database__client: "better-sqlite3",
        database__connection__filename: join(folder, "ghost.db"),
        paths__contentPath: content,
        logging__path: join(folder, "/"),
        security__allowWebhookInternalIPs: "true",
        security__staffDeviceVerification: "false",
        privacy__useUpdateCheck: "false",
      },
    });
    await ghost.says(/Ghost booted in/);
    const api = `${site}/ghost/api/admin`;
    const headers = { Origin: site, "Accept-Version": "v6.0" };
    const user = { name: "Owner", email: "owner@example.org", password: "made-for-tests-only" };
    await call("POST", `${api}/authentication/setup/`, { setup: [{ ...user, blogTitle: "Tests" }] }, headers);
    const session = { username: user.email, password: user.password };
    const { response } = await call("POST", `${api}/session/`, session, headers);
    headers.Cookie = response.headers.getSetCookie().map((cookie) => cookie.split(";")[0]).join("; ");
    const { integrations } = await call(
      "POST",
      `${api}/integrations/?include=api_keys,webhooks`,
      { integrations: [{ name: "Hooklatch" }] },
      headers,
    );
    const hook = (event) => {
      const webhook = { name: event, event, target_url: url, secret, integration_id: integrations[0].id };
      return call("POST", `${api}/webhooks/`, { webhooks: [webhook] }, headers);
    };
    await hook("tag.added");
    let ofSite;
    return {
      async send(n) {
        if (ofSite) await call("DELETE", `${api}/webhooks/${ofSite}/`, undefined, headers);
        ofSite = undefined;
        const name = `tag-${n}-of-tests`;
        await call("POST", `${api}/tags/`, { tags: [{ name }] }, headers);
        return name;
      },
      /** A published post changes the site, and says nothing else. */
      async equal() {
        ofSite ??= (await hook("site.changed")).webhooks[0].id;
        const post = { title: "a post", status: "published", lexical: null };
        await call("POST", `${api}/posts/`, { posts: [post] }, headers);
        return '{"event":"site.changed"}';
      },
    };
  },
};
