#!/usr/bin/env node
// Where the time of `cargo test` goes: builds it from clean in target/times, runs each test program, and prints what the
// parts take. `node tests/times.mjs [THREADS]`: so many tests of a program run at once, 6 if it is left out. Needs what
// `cargo test` needs, and bash; the machine should do nothing else.
//
// The time of a single test needs RUSTC_BOOTSTRAP=1. It is set only while the tests run: in the build, build scripts of
// dependencies would take the compiler for a nightly one.

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const THREADS = process.argv[2] ?? "6";
/** How many units and tests are listed. */
const SHOWN = 15;

// Some tests run the programs as other users, so no parent of it may be private, as a temporary folder is.
const folder = join(ROOT, "target", "times");
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });

/**
 * Runs a command in the repository. Returns what it printed, and its time and processor time in seconds.
 * Only what bash's `time` prints comes by standard error.
 */
function run(command, env = {}) {
  return new Promise((resolve) => {
    const timed = ["-c", 'TIMEFORMAT="%R %U %S"; time "$0" "$@" 2>&1', ...command];
    const child = spawn("bash", timed, { cwd: ROOT, env: { ...process.env, ...env } });
    let [printed, times] = ["", ""];
    child.stdout.on("data", (data) => (printed += data));
    child.stderr.on("data", (data) => (times += data));
    child.on("close", (code) => {
      if (code !== 0) {
        console.log(`${printed.slice(printed.indexOf("\nfailures:"))}${command[0]} ended with ${code}`);
        process.exitCode = 1;
      }
      const [wall, user, system] = times.trim().split("\n").at(-1).split(" ").map(Number);
      resolve({ printed, wall, busy: user + system });
    });
  });
}

const seconds = (number) => `${number.toFixed(1).padStart(7)} s`;
const line = (what, ...times) => console.log(`  ${what.padEnd(42)}${times.map(seconds).join("")}`);

// Calls the compiler's own linker and appends the seconds of each link to `links`. Descriptor 3 is its standard error.
const linker = join(folder, "linker");
const links = join(folder, "links");
const script = `#!/bin/bash\nTIMEFORMAT=%R; { time cc "$@" 2>&3; } 3>&2 2>>'${links}'\n`;
writeFileSync(linker, script, { mode: 0o755 });
const host = execFileSync("rustc", ["-vV"], { encoding: "utf8" }).match(/^host: (.*)$/m)[1];
const targetFolder = join(folder, "target");
const build = await run(["cargo", "test", "--no-run", "--locked", "--timings", "--message-format=json"], {
  CARGO_TARGET_DIR: targetFolder,
  [`CARGO_TARGET_${host.toUpperCase().replaceAll("-", "_")}_LINKER`]: linker,
});
if (process.exitCode) process.exit();
// The report has a line `const UNIT_DATA = [`, JSON, and `];`.
const report = readFileSync(join(targetFolder, "cargo-timings", "cargo-timing.html"), "utf8");
const units = JSON.parse(report.match(/^const UNIT_DATA = (\[[^]*?\n?\]);$/m)[1]);
const own = units.filter((unit) => unit.name === "hooklatch");
const ownBegan = Math.min(...own.map((unit) => unit.start));
const linked = readFileSync(links, "utf8").trim().split("\n").map(Number);
console.log(`build: ${build.wall.toFixed(0)} s, processors busy for ${build.busy.toFixed(0)} s`);
line("dependencies, before this crate begins", ownBegan);
line("this crate, and its tests", build.wall - ownBegan);
line(`${linked.length} links, part of both, in sum`, linked.reduce((sum, one) => sum + one));
console.log("  the longest:");
for (const unit of units.sort((a, b) => b.duration - a.duration).slice(0, SHOWN))
  line(`  ${unit.name}${unit.target}`, unit.duration);

const messages = build.printed.split("\n").filter((text) => text.startsWith("{")).map((text) => JSON.parse(text));
const programs = messages.filter((message) => message.executable && message.profile.test);
const tests = [];
const runs = [];
for (const { executable, target } of programs) {
  const done = await run([executable, "-Zunstable-options", "--report-time"], {
    RUSTC_BOOTSTRAP: "1",
    RUST_TEST_THREADS: THREADS,
  });
  runs.push({ name: target.name, ...done });
  for (const [, name, took] of done.printed.matchAll(/^test (\S+).*<([0-9.]+)s>$/gm))
    tests.push({ name: `${target.name} ${name}`, took: Number(took) });
}
const total = (of) => runs.reduce((all, one) => all + one[of], 0);
console.log(`\ntests: ${total("wall").toFixed(0)} s, processors busy for ${total("busy").toFixed(0)} s`);
console.log(`  ${"".padEnd(42)}     time     busy     idle (of all processors)`);
for (const { name, wall, busy } of runs)
  line(name, wall, busy, Math.max(0, wall * availableParallelism() - busy));
console.log("  the longest:");
for (const { name, took } of tests.sort((a, b) => b.took - a.took).slice(0, SHOWN)) {
  console.log(`  ${seconds(took)}  ${name}`);
}
