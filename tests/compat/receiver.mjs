// A receiver and its runner, from a folder of their own that nothing else uses, and their end.

import { execFile } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

import { Process } from "../senders/process.mjs";

/** The whole of a listing, in one answer. */
const LIST_COUNT = 100_000;

/** Its last act is one line in the ledger, by one write to a file opened for appending. */
const HANDLER = `#!/bin/sh
body=$(sha256sum) || exit 75
echo "$HOOKLATCH_HANDLER $HOOKLATCH_SOURCE $HOOKLATCH_EVENT_ID $HOOKLATCH_EVENT_TYPE \${body%% *}" >> ledger.txt
`;

/** The handlers by name: what they ask for in the configuration. */
const handler = (name, sources, events) => `
[handlers.${name}]
source = ${JSON.stringify(sources)}
events = ${JSON.stringify(events)}
command = ["./handler"]
cwd = "."
concurrency = 64
`;

const source = ([name, { provider, settings = "" }]) => `
[sources.${name}]
provider = "${provider}"
path = "/${name}"
secrets = ["file:${name}.secret"]
${settings}
`;

/**
 * Writes the configuration: `sources` by name with provider and secret, `handlers` by name with the
 * types they want, `tables` as they are, and `files` by name with their text.
 */
function prepare(folder, sources, handlers, tables, files) {
  const names = Object.keys(sources);
  const write = (name, text, mode) => {
    writeFileSync(join(folder, name), text, { mode });
    chmodSync(join(folder, name), mode); // Whatever the umask is.
  };
  const parts = [
    `[server]\nlisten = "127.0.0.1:0"\n\n[storage]\npath = "store.db"\n\n[limits]\nlist_count = ${LIST_COUNT}\n`,
    ...Object.entries(sources).map(source),
    ...Object.entries(handlers).map(([name, events]) => handler(name, names, events)),
    tables,
  ];
  write("hooklatch.toml", parts.join(""), 0o600);
  write("handler", HANDLER, 0o700);
  for (const name of names) write(`${name}.secret`, sources[name].secret, 0o600);
  mkdirSync(join(folder, "providers"), { recursive: true });
  for (const [name, text] of Object.entries(files)) write(name, text, 0o600);
}

export class Receiver {
  #binary;
  #folder = mkdtempSync(join(tmpdir(), "hooklatch-compat-"));
  #runner;
  #receiver;
  #address;
  #prepare;

  /** Starts one. Where that fails, what was started is stopped. */
  static async start(binary, sources, handlers, tables = "", files = {}) {
    const receiver = new Receiver();
    receiver.#binary = binary;
    receiver.#prepare = (tables) => prepare(receiver.#folder, sources, handlers, tables, files);
    receiver.#prepare(tables);
    try {
      // Started here and not by `serve`, so that its process is ours to end.
      receiver.#runner = receiver.#started("runner");
      await receiver.#runner.says(/"message":"running commands"/);
      receiver.#receiver = receiver.#started("serve");
      ({ address: receiver.#address } = JSON.parse(await receiver.#receiver.says(/"message":"serving"/)));
    } catch (error) {
      await receiver.stop();
      throw error;
    }
    return receiver;
  }

  #started(command) {
    return new Process(`hooklatch ${command}`, this.#binary, [command, ...this.#config]);
  }

  get #config() {
    return ["--config", join(this.#folder, "hooklatch.toml")];
  }

  /** Sends one request to a source, or to `path`. The status, and what the headers `Hooklatch-NAME` and the body say. */
  async post(source, { headers, body, path = `/${source}` }) {
    const response = await fetch(`http://${this.#address}${path}`, { method: "POST", headers, body });
    const named = [...response.headers].filter(([name]) => name.startsWith("hooklatch-"));
    const facts = named.map(([name, value]) => [name.slice("hooklatch-".length), value]);
    const said = await response.text();
    return { code: response.status, ...Object.fromEntries(facts), ...(said && { said }) };
  }

  /** What a command of the operator's prints with --json. */
  async ask(...command) {
    const args = [...command, "--json", "--limit", String(LIST_COUNT), ...this.#config];
    const { stdout } = await promisify(execFile)(this.#binary, args, { maxBuffer: 1 << 28 });
    return JSON.parse(stdout);
  }

  /** Has `hooklatch send` deliver to another address. What it says of the answer does not matter. */
  async sendTo(address, ...args) {
    const command = ["send", ...args, "--no-wait", "--to", address, ...this.#config];
    await promisify(execFile)(this.#binary, command).catch(() => undefined);
  }

  /** Runs a command of the operator's that must succeed. */
  async run(...command) {
    await promisify(execFile)(this.#binary, [...command, ...this.#config]);
  }

  /** Puts other `tables` into the configuration, and in force. */
  async reload(tables) {
    this.#prepare(tables);
    await this.run("reload");
  }

  /** The handlers' ledger: one list of words per run. */
  ledger() {
    const text = readFileSync(join(this.#folder, "ledger.txt"), "utf8");
    return text
      .split("\n")
      .slice(0, -1)
      .map((line) => line.split(" "));
  }

  /** Ends both, the receiver first, and removes the folder. How each ended, by name. */
  async stop() {
    const ends = {};
    for (const process of [this.#receiver, this.#runner]) {
      await process?.stop();
      if (process) ends[process.name] = await process.ended;
    }
    rmSync(this.#folder, { recursive: true, force: true });
    return ends;
  }
}
