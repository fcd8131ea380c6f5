// A receiver and its runner in a temporary folder, behind a proxy. The receiver can be killed and started again.

import { chmodSync, cpSync, mkdtempSync, readFileSync, rmSync, watch, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { freePort, inTime, Process, run } from "./process.mjs";
import { Proxy } from "./proxy.mjs";

/** All rows of a listing. */
const LIST_COUNT = 10_000;

/** Its last act is one line in the ledger. The type comes last, as it may have spaces. */
const HANDLER = `#!/bin/sh
cat > /dev/null
echo "$HOOKLATCH_EVENT_ID $HOOKLATCH_EVENT_TYPE" >> ledger.txt
`;

export class Site {
  #binary;
  #runner;
  #receiver;
  folder = mkdtempSync(join(tmpdir(), "hooklatch-senders-"));

  /** Starts one with a single source, `source`, of the sender's provider. */
  static async start(binary, { provider, settings = "" }, secret) {
    const site = new Site();
    site.#binary = binary;
    const port = await freePort();
    const write = (name, text, mode) => {
      writeFileSync(join(site.folder, name), text);
      chmodSync(join(site.folder, name), mode);
    };
    write("secret", secret, 0o600);
    write("handler", HANDLER, 0o700);
    write("ledger.txt", "", 0o600);
    write(
      "hooklatch.toml",
      `[server]
listen = "127.0.0.1:${port}"

[storage]
path = "store.db"

[limits]
list_count = ${LIST_COUNT}

[sources.source]
provider = "${provider}"
secrets = ["file:secret"]
path = "/source"
${settings}
[handlers.ledger]
source = "source"
events = ["*"]
command = ["./handler"]
cwd = "."
`,
      0o600,
    );
    const own = process.env.HOOKLATCH_PROVIDERS;
    if (own) cpSync(own, join(site.folder, "providers"), { recursive: true });
    site.proxy = await Proxy.start(port);
    try {
      site.#runner = site.#started("runner");
      await site.#runner.says(/"message":"running commands"/);
      await site.restart();
    } catch (error) {
      await site.stop();
      throw error;
    }
    return site;
  }

  #started(command) {
    return new Process(`hooklatch ${command}`, this.#binary, [command, ...this.#config]);
  }

  get #config() {
    return ["--config", join(this.folder, "hooklatch.toml")];
  }

  /** Where senders send to. */
  get url() {
    return `${this.proxy.url}/source`;
  }

  /** kill -9, while nothing is under way. */
  kill() {
    return this.#receiver.kill();
  }

  /** kill -9 at once; `restart` awaits its end. */
  killNow() {
    this.#receiver.signal("SIGKILL");
  }

  /** Starts the receiver, again if it was killed. */
  async restart() {
    await this.#receiver?.exit();
    this.#receiver = this.#started("serve");
    await this.#receiver.says(/"message":"serving"/);
  }

  /** What a command of the operator prints with --json. */
  async ask(...command) {
    const args = [...command, "--json", "--limit", String(LIST_COUNT), ...this.#config];
    return JSON.parse(await run(this.#binary, args));
  }

  /** The runs so far: event and type of each. */
  ledger() {
    const lines = readFileSync(join(this.folder, "ledger.txt"), "utf8").split("\n").slice(0, -1);
    return lines.map((line) => {
      const space = line.indexOf(" ");
      return { event: line.slice(0, space), type: line.slice(space + 1) };
    });
  }

  /** The run of an event, when it is over. */
  async ran(event) {
    const found = () => this.ledger().find((one) => one.event === event);
    let watcher;
    const run = new Promise((resolve) => {
      const look = () => found() && resolve(found());
      watcher = watch(join(this.folder, "ledger.txt"), look);
      look();
    });
    return inTime(run, () => `event ${event} did not run`).finally(() => watcher.close());
  }

  /** Ends all of it, and removes the folder. */
  async stop() {
    for (const process of [this.#receiver, this.#runner]) await process?.stop();
    await this.proxy?.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
