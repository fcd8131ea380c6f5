// Processes that this program starts, and their end.

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { createServer } from "node:net";

/** How long an awaited event may take. */
export const PATIENCE_MS = 300_000;

/** The last lines that a failure shows. */
const SHOWN_LINES = 30;

/** What `promise` gives, or an error with `what` if it takes longer than the patience. */
export function inTime(promise, what, patience = PATIENCE_MS) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what()} within ${patience / 1000} s`)), patience);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** A port of the loopback interface that nothing uses now. */
export function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** A program in a separate process group, so that its children end with it. */
export class Process {
  #child;
  #lines = [];
  #waiting = new Set();

  constructor(name, program, args, options = {}) {
    this.name = name;
    const { env = {}, ...rest } = options;
    this.#child = spawn(program, args, {
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
      env: { ...process.env, ...env },
      ...rest,
    });
    this.ended = new Promise((resolve) => {
      this.#child.once("error", (error) => resolve(String(error)));
      this.#child.once("close", (code, signal) => resolve(code ?? signal));
    });
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      createInterface({ input: stream }).on("line", (line) => {
        this.#lines.push(line);
        for (const look of this.#waiting) look(line);
      });
    }
  }

  /** The first line from here on, or before, that matches. An error if the program ends without it. */
  says(pattern) {
    const before = this.#lines.find((line) => pattern.test(line));
    return before === undefined ? this.next(pattern) : Promise.resolve(before);
  }

  /** The first line from here on that matches. */
  async next(pattern) {
    let look;
    const said = new Promise((resolve) => {
      look = (line) => pattern.test(line) && resolve(line);
      this.#waiting.add(look);
    });
    const ended = this.ended.then((how) => {
      throw new Error(`${this.name} ended with ${how} before it said ${pattern}:\n${this.log()}`);
    });
    try {
      return await inTime(
        Promise.race([said, ended]),
        () => `${this.name} did not say ${pattern}:\n${this.log()}\n`,
      );
    } finally {
      this.#waiting.delete(look);
    }
  }

  /** The end of what it has printed. */
  log() {
    return this.#lines.slice(-SHOWN_LINES).join("\n");
  }

  /** How it ended, by itself. */
  exit() {
    return inTime(this.ended, () => `${this.name} did not end:\n${this.log()}\n`);
  }

  signal(name) {
    try {
      process.kill(-this.#child.pid, name);
    } catch (error) {
      if (error.code !== "ESRCH") throw error;
    }
  }

  /** SIGKILL, and its end. */
  async kill() {
    this.signal("SIGKILL");
    await this.exit();
  }

  /** SIGTERM, and after ten seconds SIGKILL. */
  async stop() {
    if (this.#child.pid === undefined) return;
    this.signal("SIGTERM");
    await inTime(this.ended, () => this.name, 10_000).catch(() => undefined);
    this.signal("SIGKILL"); // Children that did not leave with it.
    await this.exit();
  }
}

/** Runs a program to its end. An error if it fails. Gives what it printed. */
export async function run(program, args, options = {}) {
  const { env = {}, ...rest } = options;
  const child = spawn(program, args, {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, ...env },
    ...rest,
  });
  const out = [];
  const all = [];
  child.stdout.on("data", (part) => (out.push(part), all.push(part)));
  child.stderr.on("data", (part) => all.push(part));
  const how = await new Promise((resolve) => {
    child.once("error", (error) => resolve(String(error)));
    child.once("close", (code, signal) => resolve(code ?? signal));
  });
  if (how !== 0) {
    const said = Buffer.concat(all).toString().split("\n").slice(-SHOWN_LINES).join("\n");
    throw new Error(`${program} ${args.join(" ")} ended with ${how}:\n${said}`);
  }
  return Buffer.concat(out).toString();
}
