// verdaccio, an npm registry, to which packages are published through its API. What it sends is a template.

import { writeFileSync } from "node:fs";
import { join } from "node:path";

import { call, NODE } from "./install.mjs";
import { freePort } from "./process.mjs";

export const sender = {
  version: "verdaccio 6.10.4 (npm)",
  provider: "header-token",
  type: "publish",
  id: "made",
  repeated: "accepted",
  resends: {},

  install: (place) => place.npm(),

  async start({ place, program, url, secret, folder }) {
    const port = await freePort();
    const config = join(folder, "config.yaml");
    writeFileSync(
      config,
      `storage: ${join(folder, "storage")}
auth:
  htpasswd:
    file: ${join(folder, "htpasswd")}
packages:
  "**":
    access: $all
    publish: $anonymous
    unpublish: $anonymous
log: { type: stdout, format: json, level: http }
notify:
  method: POST
  headers: [{ Authorization: "${secret}" }, { X-Event-Type: publish }]
  endpoint: ${url}
  content: '{"name":"{{ name }}"}'
`,
    );
    const bin = join(program, "node_modules/verdaccio/bin/verdaccio");
    await place.start(NODE, [bin, "--config", config, "--listen", `127.0.0.1:${port}`]).says(/http address/);
    const publish = async (name, version) => {
      const file = `${name}-${version}.tgz`;
      const data = Buffer.from(`not really a package: ${name}`).toString("base64");
      const body = {
        _id: name,
        name,
        "dist-tags": { latest: version },
        versions: { [version]: { name, version, dist: { tarball: `http://127.0.0.1:${port}/${name}/-/${file}` } } },
        _attachments: { [file]: { content_type: "application/octet-stream", data, length: data.length } },
      };
      await call("PUT", `http://127.0.0.1:${port}/${name}`, body);
      return name;
    };
    let versions = 0;
    return {
      send: (n) => publish(`package-${n}-of-tests`, "1.0.0"),
      equal: () => publish("package-in-two-versions", `1.0.${(versions += 1)}`),
    };
  },

  equal: "accepted",
};
