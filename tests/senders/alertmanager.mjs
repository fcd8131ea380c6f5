// Alertmanager, whose alerts come through its API. Each alert is a group, and so a notification.

import { writeFileSync } from "node:fs";
import { join } from "node:path";

import { call } from "./install.mjs";
import { freePort } from "./process.mjs";

const VERSION = "0.25.0-1+b4";

/** Debian's Alertmanager reads it at its start. */
const TEMPLATE = "/usr/share/prometheus/alertmanager/default.tmpl";

/** Alertmanager with the provider's way to authenticate, as a table of its `http_config`. */
export const alertmanager = (provider, authentication) => ({
  version: `prometheus-alertmanager ${VERSION} (Debian)`,
  provider,
  type: "firing",
  id: "digest",
  repeated: "duplicate",
  resends: { 503: true, 401: true, broken: true },

  install: (place) => place.debian("prometheus-alertmanager", VERSION, TEMPLATE),

  async start({ place, program, url, secret, folder }) {
    const config = join(folder, "alertmanager.yml");
    // A refused notification is made again at each group_interval.
    writeFileSync(
      config,
      `route:
  receiver: hooklatch
  group_by: [alertname]
  group_wait: 0s
  group_interval: 1s
  repeat_interval: 4h
receivers:
  - name: hooklatch
    webhook_configs:
      - url: ${url}
        send_resolved: false
        http_config:
          ${authentication(secret)}
`,
    );
    const port = await freePort();
    const args = [`--config.file=${config}`, `--storage.path=${join(folder, "data")}`];
    const listen = [`--web.listen-address=127.0.0.1:${port}`, "--cluster.listen-address="];
    const path = join(program, "usr/bin/prometheus-alertmanager");
    await place.start(path, [...args, ...listen]).says(/Listening on/);
    return {
      async send(n) {
        const labels = { alertname: `disk-${n}-full` };
        await call("POST", `http://127.0.0.1:${port}/api/v2/alerts`, [{ labels }]);
        return labels.alertname;
      },
    };
  },
});

export const sender = {
  ...alertmanager("alertmanager", (secret) => `authorization: { credentials: "${secret}" }`),
  cheap: true,
};
