// A receiver with its handlers, and a dashboard, in a folder of their own.

import { spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const SECRET = "a secret for tests only";

const CONFIGURATION = `
[server]
listen = "127.0.0.1:0"
[storage]
path = "store.db"
[sources.shop]
provider = "stripe"
secrets = ["file:secret"]
max_body = "8 MiB"
[sources.code]
provider = "github"
secrets = ["file:secret"]
[handlers.build]
source = "code"
events = ["push"]
command = ["/bin/sh", "-c", "exit 65"]
[handlers.fulfil]
source = "shop"
events = ["order.*"]
command = ["/bin/sh", "-c", 'test -e fixed || { echo "warehouse: connection refused" >&2; exit 1; }; echo done']
cwd = "FOLDER"
max_attempts = 1
[handlers.label]
source = "shop"
events = ["label.*"]
command = ["/bin/sh", "-c", "echo request sent; kill -9 $$"]
[handlers.slow]
source = "shop"
events = ["slow.*"]
command = ["/bin/sh", "-c", "n=0; while [ -e FOLDER/secret ]; do n=$((n+1)); echo line $n at $(date +%s%3N); sleep 0.2; done"]
`;

export class Stage {
  static async make(binary) {
    const stage = new Stage();
    stage.binary = binary;
    stage.processes = [];
    stage.folder = await mkdtemp(join(tmpdir(), "hooklatch-ui-"));
    await writeFile(join(stage.folder, "secret"), SECRET, { mode: 0o600 });
    await writeFile(stage.config(), CONFIGURATION.replaceAll("FOLDER", stage.folder));
    await stage.serve();
    return stage;
  }

  config() {
    return join(this.folder, "hooklatch.toml");
  }

  run(args) {
    const process = spawn(this.binary, [...args, "--config", this.config()], { stdio: ["ignore", "pipe", "pipe"] });
    this.processes.push(process);
    return process;
  }

  async serve() {
    this.receiver = this.run(["serve"]);
    const lines = createInterface({ input: this.receiver.stderr });
    const listed = createInterface({ input: this.receiver.stdout });
    const address = await new Promise((found, failed) => {
      const look = (line) => {
        const parsed = line.startsWith("{") ? JSON.parse(line) : {};
        if (parsed.message === "serving") found(parsed.address);
      };
      lines.on("line", look);
      listed.on("line", look);
      this.receiver.on("exit", () => failed(new Error("the receiver has ended")));
    });
    this.address = address;
  }

  async kill() {
    this.receiver.kill("SIGKILL");
    await new Promise((ended) => this.receiver.on("exit", ended));
  }

  // Starts a dashboard. Returns its link.
  async dashboard(...options) {
    const lines = createInterface({ input: this.run(["ui", "--port", "0", ...options]).stdout });
    return await new Promise((found) => lines.once("line", found));
  }

  async deliver(id, type, data = {}) {
    const body = JSON.stringify({ id, type, created: 1, data: { object: data } });
    return await this.deliverBody(body);
  }

  async deliverBody(body) {
    const time = Math.floor(Date.now() / 1000);
    const signature = createHmac("sha256", SECRET).update(`${time}.`).update(body).digest("hex");
    const headers = { "stripe-signature": `t=${time},v1=${signature}` };
    const answer = await fetch(`http://${this.address}/hooks/shop`, { method: "POST", body, headers });
    return answer.status;
  }

  // Bytes as GitHub would send them. A wrong secret makes a forgery.
  async push(id, body, secret = SECRET, type = "push") {
    const signature = createHmac("sha256", secret).update(body).digest("hex");
    const headers = { "x-github-event": type, "x-github-delivery": id, "x-hub-signature-256": `sha256=${signature}`, "content-type": "application/json" };
    const answer = await fetch(`http://${this.address}/hooks/code`, { method: "POST", body, headers });
    return answer.status;
  }

  // What a command answers with --json.
  async json(...args) {
    const process = this.run([...args, "--json"]);
    let text = "";
    process.stdout.on("data", (part) => (text += part));
    await new Promise((ended) => process.on("close", ended));
    return JSON.parse(text);
  }

  // Jobs as the command line lists them.
  async jobs(...args) {
    return await this.json("jobs", ...args);
  }

  async until(wanted, ...args) {
    for (const end = Date.now() + 60_000; Date.now() < end; ) {
      const jobs = await this.jobs(...args);
      if (wanted(jobs)) return jobs;
    }
    throw new Error(`the jobs are not as expected: ${wanted}`);
  }

  // The slow command ends with the folder, and its runner a while later.
  async end() {
    for (const process of this.processes) process.kill("SIGTERM");
    await rm(this.folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 250 });
  }
}
