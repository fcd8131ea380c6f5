// Prints which of the pinned libraries have newer releases, and with --write pins those in package.json and
// requirements.txt instead: then `npm install`, run.mjs --all, and the versions in the provider files' [facts].

import { execFile } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { promisify } from "node:util";

const run = promisify(execFile);
const file = (name) => new URL(name, import.meta.url);
const [manifest, requirements] = ["package.json", "requirements.txt"].map((name) => readFileSync(file(name), "utf8"));
const { dependencies, optionalDependencies } = JSON.parse(manifest);
const npm = Object.entries({ ...dependencies, ...optionalDependencies }).map(([name, pinned]) => ({
  name,
  pinned,
  newest: () => run("npm", ["view", name, "version"]).then(({ stdout }) => stdout.trim()),
}));
const pypi = [...requirements.matchAll(/^([\w.-]+)==(\S+)$/gm)].map(([, name, pinned]) => ({
  name,
  pinned,
  newest: () => run("pip", ["index", "versions", name]).then(({ stdout }) => stdout.match(/\((.*?)\)/)[1]),
}));

let [texts, newer] = [{ manifest, requirements }, 0];
for (const { name, pinned, newest } of [...npm, ...pypi]) {
  const now = await newest();
  if (now === pinned) continue;
  newer += 1;
  console.log(`${name} ${pinned}: ${now}`);
  texts.manifest = texts.manifest.replace(`"${name}": "${pinned}"`, `"${name}": "${now}"`);
  texts.requirements = texts.requirements.replace(`${name}==${pinned}`, `${name}==${now}`);
}
console.log(`${newer} of ${npm.length + pypi.length} have a newer release`);
if (process.argv.includes("--write")) {
  writeFileSync(file("package.json"), texts.manifest);
  writeFileSync(file("requirements.txt"), texts.requirements);
}
