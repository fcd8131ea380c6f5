// smee-client, which passes on what a channel of smee.io has received. The channel here is a small server that sends
// deliveries of GitHub as such a channel does.

import { createHmac, randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { join } from "node:path";

import { NODE } from "./install.mjs";

/** A channel: a page of server-sent events, and its one reader. */
async function channel() {
  let connected;
  const reader = new Promise((resolve) => (connected = resolve));
  const server = createServer((_, response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write("event: ready\ndata: {}\n\n");
    connected(response);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}/channel`,
    send: async (data) => (await reader).write(`data: ${JSON.stringify(data)}\n\n`),
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

export const sender = {
  version: "smee-client 5.0.0 (npm)",
  provider: "github",
  type: "push",
  id: ({ headers }) => headers.find(([name]) => name.toLowerCase() === "x-github-delivery")[1],
  repeated: "duplicate",
  resends: {},

  install: (place) => place.npm(),

  async start({ place, program, url, secret }) {
    const source = place.keep(await channel());
    const bin = join(program, "node_modules/smee-client/bin/smee.js");
    const env = { NO_PROXY: "127.0.0.1" };
    const client = place.start(NODE, [bin, "--url", source.url, "--target", url], { env });
    await client.says(/Forwarding/);
    return {
      async send(n) {
        const body = { ref: `refs/heads/branch-${n}`, before: "0".repeat(40), after: randomUUID() };
        const text = JSON.stringify(body);
        const hmac = createHmac("sha256", secret).update(text).digest("hex");
        await source.send({
          "x-github-event": "push",
          "x-github-delivery": randomUUID(),
          "x-hub-signature-256": `sha256=${hmac}`,
          "user-agent": "GitHub-Hookshot/tests",
          body,
          query: {},
          timestamp: Date.now(),
        });
        return `branch-${n}`;
      },
    };
  },
};
