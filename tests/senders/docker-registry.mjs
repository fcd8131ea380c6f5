// A registry, to which images of one empty layer are pushed through its API.

import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";

import { call } from "./install.mjs";
import { freePort } from "./process.mjs";

const VERSION = "2.8.2+ds1-1";
const MANIFEST = "application/vnd.docker.distribution.manifest.v2+json";

const digest = (bytes) => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

export const sender = {
  version: `docker-registry ${VERSION} (Debian)`,
  cheap: true,
  provider: "docker-registry",
  type: "push",
  id: ({ body }) => JSON.parse(body).events[0].id,
  repeated: "duplicate",
  resends: { 503: true, 401: true, broken: true },

  install: (place) => place.debian("docker-registry", VERSION),

  async start({ place, program, url, secret, folder }) {
    const port = await freePort();
    const config = join(folder, "config.yml");
    writeFileSync(
      config,
      `version: 0.1
storage:
  filesystem:
    rootdirectory: ${join(folder, "data")}
http:
  addr: 127.0.0.1:${port}
notifications:
  endpoints:
    - name: hooklatch
      url: ${url}
      headers:
        Authorization: [Bearer ${secret}]
      ignore:
        mediatypes: [application/octet-stream]
        actions: [pull]
`,
    );
    const registry = place.start(join(program, "usr/bin/docker-registry"), ["serve", config]);
    await registry.says(/listening on/);
    const api = `http://127.0.0.1:${port}/v2`;
    const blob = async (repository, bytes) => {
      const { response } = await call("POST", `${api}/${repository}/blobs/uploads/`);
      const at = new URL(response.headers.get("location"), api);
      at.searchParams.set("digest", digest(bytes));
      await call("PUT", at, bytes, { "Content-Type": "application/octet-stream" });
      return { size: bytes.length, digest: digest(bytes) };
    };
    return {
      async send(n) {
        const repository = `image-${n}-of-tests`;
        const config = await blob(repository, JSON.stringify({ n }));
        const layer = await blob(repository, `layer ${n}`);
        const manifest = {
          schemaVersion: 2,
          mediaType: MANIFEST,
          config: { mediaType: "application/vnd.docker.container.image.v1+json", ...config },
          layers: [{ mediaType: "application/vnd.docker.image.rootfs.diff.tar.gzip", ...layer }],
        };
        const headers = { "Content-Type": MANIFEST };
        await call("PUT", `${api}/${repository}/manifests/latest`, JSON.stringify(manifest), headers);
        return repository;
      },
    };
  },
};
