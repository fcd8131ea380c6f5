// Real senders against a running receiver: server software of others, each made to send through its own interface.
// Each event is accepted, named and run once; then the receiver is killed, an answer is lost, or a sender is refused.
//
//   node run.mjs [BINARY] [NAME…]    NAME: a sender, or `cheap` for those that take a few seconds; else all
//
// It installs what it needs, each package in a pinned version, into target/senders (or the folder in
// HOOKLATCH_SENDERS), and keeps that; everything else is in temporary folders. A sender that needs what this machine
// lacks is left out and named. HOOKLATCH_PROVIDERS is a folder of provider files to try in place of the built-in ones.
// Exit 1 and a list of faults, where one did not do as its provider file says.

import { randomBytes } from "node:crypto";
import { accessSync, constants, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { Checks } from "./checks.mjs";
import { Missing, Place } from "./install.mjs";
import { Site } from "./site.mjs";

const HERE = new URL(".", import.meta.url);

/** The senders: the files here that are not named below. */
const COMMON = new Set(["run", "checks", "install", "process", "proxy", "site", "postgres"]);

const senders = readdirSync(HERE)
  .filter((file) => file.endsWith(".mjs"))
  .map((file) => file.slice(0, -".mjs".length))
  .filter((name) => !COMMON.has(name));

const given = process.argv.slice(2);
const isName = (word) => word === "cheap" || senders.includes(word);
const BINARY =
  (given.length > 0 && !isName(given[0]) ? given.shift() : undefined) ??
  process.env.HOOKLATCH_BINARY ??
  fileURLToPath(new URL("../../target/debug/hooklatch", HERE));
const unknown = given.filter((word) => !isName(word));
if (unknown.length > 0) {
  console.error(`${unknown.join(", ")}: the senders are ${senders.join(", ")}; or cheap`);
  process.exit(2);
}
accessSync(BINARY, constants.X_OK);
if (Number.parseInt(process.versions.node) < 22) {
  console.error(`the senders need Node.js 22, not ${process.versions.node}: npm ci --prefix tests/node`);
  process.exit(2);
}

/** To be stopped before this process ends; the last first. */
const started = [];
const stopAll = async () => {
  for (const one of started.splice(0).reverse()) await one.stop();
};
let last;
for (const [signal, code] of [
  ["SIGINT", 130],
  ["SIGTERM", 143],
]) {
  process.on(signal, () => void (last ??= stopAll().finally(() => process.exit(code))));
}

/** One sender through all checks. Gives the number of checks and the faults. */
async function check(name, sender) {
  const began = Date.now();
  const place = new Place(name, started);
  started.push(place);
  const program = await sender.install(place);
  const secret = sender.secret?.() ?? randomBytes(24).toString("hex");
  const site = await Site.start(BINARY, sender, secret);
  started.push(site);
  const tell = (what, said) => console.log(`${name}: ${what}: ${said}`);
  tell("version", sender.version);
  let count = 0;
  let faults = [];
  try {
    const folder = place.temporary();
    const running = await sender.start({ place, program, url: site.url, secret, folder });
    const checks = new Checks(site, sender, running);
    faults = checks.faults;
    for (const [what, how] of checks.all) {
      checks.line = what;
      const before = faults.length;
      const said = await how();
      if (said === undefined && faults.length === before) continue;
      count += 1;
      tell(what, faults.length === before ? said : "WRONG");
    }
  } catch (error) {
    faults.push(String(error?.stack ?? error));
  } finally {
    await stopAll();
  }
  tell("done", `${count} checks, ${((Date.now() - began) / 1000).toFixed(1)} s`);
  return { count, faults: faults.map((fault) => `${name}: ${fault}`) };
}

async function main() {
  const [faults, missing, done] = [[], [], []];
  let count = 0;
  for (const name of senders) {
    const { sender } = await import(new URL(`${name}.mjs`, HERE));
    const isMeant = given.length === 0 || given.includes(name) || (sender.cheap && given.includes("cheap"));
    if (!isMeant) continue;
    try {
      const result = await check(name, sender);
      count += result.count;
      faults.push(...result.faults);
      done.push(name);
    } catch (error) {
      await stopAll();
      if (error instanceof Missing) missing.push(`${name} needs ${error.message}`);
      else faults.push(`${name}: ${error?.stack ?? error}`);
    }
  }
  for (const line of missing) console.log(`left out: ${line}`);
  for (const fault of faults) console.error(`WRONG: ${fault}`);
  const isComplete = missing.length === 0 || process.env.HOOKLATCH_CI !== "1";
  console.log(`${done.length} senders, ${count} checks, ${faults.length} wrong, ${missing.length} left out`);
  return faults.length === 0 && isComplete ? 0 : 1;
}

process.exit(await main());
