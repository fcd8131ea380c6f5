// What `hooklatch send` sends in a provider's name, judged by that provider's own library: genuine requests must pass,
// forged ones must not, and old ones must not where the library looks at the time.

import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { VERIFIERS } from "./verifiers.mjs";

const PUBLIC = "https://hooks.example.org";

/** A server that hands each request to `judge`, and answers with its verdict. */
function listen(judge) {
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const good = await judge(Buffer.concat(chunks).toString(), request.headers, request.url);
    response.writeHead(good ? 200 : 401).end();
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}

/** Where the library's package is, with its version. */
function version(library) {
  const file = new URL(`node_modules/${library}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(file, "utf8")).version;
}

/** Sends what each library is to judge. Adds to `faults` what was judged otherwise. */
export async function checkVerifiers(faults, binary) {
  const folder = mkdtempSync(join(tmpdir(), "hooklatch-compat-"));
  const config = join(folder, "hooklatch.toml");
  const stanza = ([name, { secret }]) => {
    writeFileSync(join(folder, `${name}.secret`), secret, { mode: 0o600 });
    const more = name === "twilio" ? `public_url = "${PUBLIC}"\n` : "";
    const token = name === "meta" ? `verify_token = "file:${name}.secret"\n` : "";
    return `[sources.${name}]\nprovider = "${name}"\npath = "/${name}"\nsecrets = ["file:${name}.secret"]\n${more}${token}`;
  };
  const tables = Object.entries(VERIFIERS).map(stanza);
  writeFileSync(config, `[storage]\npath = "store.db"\n${tables.join("")}`, { mode: 0o600 });

  let verdict;
  const server = await listen(async (body, headers, path) => {
    const { judge, secret } = VERIFIERS[path.slice(1)];
    try {
      verdict = (await judge(body, headers, secret, PUBLIC + path)) === true;
    } catch {
      verdict = false;
    }
    return verdict;
  });
  const address = `127.0.0.1:${server.address().port}`;
  /** Whether the library takes what `send` sends; none if it sends nothing. */
  const taken = (name, type, ...more) =>
    new Promise((resolve) => {
      verdict = undefined;
      const args = ["send", name, type, "--no-wait", "--to", address, "--config", config, ...more];
      // The exit code is about a receiver's answer, which this server does not give.
      execFile(binary, args, () => resolve(verdict));
    });

  console.log("\nWhat `send` sends, judged by the provider's own library:\n");
  console.log("PROVIDER           LIBRARY                                  GENUINE FORGED  OLD");
  for (const [name, { library, stale, type = "test.event" }] of Object.entries(VERIFIERS)) {
    const [genuine, forged] = [await taken(name, type), await taken(name, type, "--forge")];
    const old = stale ? await taken(name, type, "--stale") : undefined;
    faults.unless(genuine === true, `${library} refuses what is sent for ${name}`);
    faults.unless(forged === false, `${library} takes what is forged for ${name}`);
    if (stale) faults.unless(old === false, `${library} takes what is old for ${name}`);
    const word = (good) => (good === undefined ? "-" : good ? "taken" : "refused").padEnd(8);
    const package_ = `${library} ${version(library)}`.padEnd(41);
    console.log(`${name.padEnd(19)}${package_}${word(genuine)}${word(forged)}${word(old)}`.trimEnd());
  }
  server.close();
  rmSync(folder, { recursive: true });
}
