// Each provider's own library beside the receiver, on the same requests: both take the genuine one, both refuse what is
// forged, altered, unsigned or old, and both read the same id and type in it. `libraries/` has one file per provider:
// `NAME.mjs` for a package of npm, `NAME.py` for one of PyPI, which `judges.py` runs.
//
// A file has `library` (the package), `secret`, `judge` (the event's id and type as its users read them; throws or gives
// false if it is not genuine), and where the library itself can sign, `sign` and `sample`. `settings` are further lines of
// the source; `differs` says, by case, why the receiver judges otherwise than the library; `unsent`, why it does not take
// what `hooklatch send` makes.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import { JSON_TYPE } from "./delivery.mjs";
import { Receiver } from "./receiver.mjs";

const HERE = new URL("libraries/", import.meta.url);
const PYTHON = fileURLToPath(new URL(".venv/bin/python", import.meta.url));
const JUDGES = fileURLToPath(new URL("judges.py", import.meta.url));

/** Those of the providers that most people use; .ci/run takes these alone. */
export const COMMONEST = [
  "adyen", "github", "gocardless", "mollie", "openai", "paddle", "sendgrid", "shopify", "slack", "stripe", "svix",
  "twilio",
];

/** Where the receiver is for providers that sign their URL. */
const PUBLIC = "https://hooks.example.org";

/** The Python libraries in one process: a line asked, a line answered. */
class Judges {
  #child = spawn(PYTHON, [JUDGES], { stdio: ["pipe", "pipe", "inherit"] });
  #lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();

  async ask(question) {
    this.#child.stdin.write(`${JSON.stringify(question)}\n`);
    const { value, done } = await this.#lines.next();
    if (done) throw new Error("judges.py ended");
    return JSON.parse(value);
  }

  async stop() {
    this.#child.stdin.end();
    await once(this.#child, "exit");
  }
}

/** A file of Python's with the members of a JavaScript module. */
async function pythons(judges, name) {
  const { version, library, secret, settings, differs, looks_at_time, type, sample, signs } = await judges.ask({ name });
  const text = (body) => Buffer.from(body).toString("base64");
  return {
    version, library, secret, settings, differs, type, sample,
    looksAtTime: looks_at_time,
    judge: ({ body, headers, url }, secret) =>
      judges.ask({ name, judge: { body: text(body), headers, url, secret } }),
    ...(signs && { sign: (event, secret) => judges.ask({ name, sign: { ...event, secret } }) }),
  };
}

/** The version of a package of npm. */
function version(library) {
  const file = new URL(`node_modules/${library}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(file, "utf8")).version;
}

/** All files, or the commonest alone: by the provider's name, which is the source's too. */
async function read(judges, whole) {
  const files = readdirSync(HERE).map((file) => file.match(/^([a-z0-9-]+)\.(mjs|py)$/));
  const wanted = files.filter((file) => file && (whole || COMMONEST.includes(file[1])));
  const libraries = {};
  for (const [file, name, language] of wanted) {
    libraries[name] =
      language === "py"
        ? await pythons(judges(), name)
        : await import(new URL(file, HERE)).then((module) => ({ ...module, version: version(module.library) }));
  }
  return libraries;
}

/** The type that the provider's file suggests for a test. */
function sampleType(name) {
  const file = readFileSync(new URL(`../../providers/${name}.toml`, import.meta.url), "utf8");
  return file.match(/^sample_type = "(.*)"/m)?.[1] ?? "test.event";
}

/** A server that keeps the last request. */
async function recorder() {
  let request;
  const server = createServer(async (incoming, response) => {
    const chunks = [];
    for await (const chunk of incoming) chunks.push(chunk);
    const { host, connection, "content-length": length, ...headers } = incoming.headers;
    request = { headers, body: Buffer.concat(chunks), path: incoming.url };
    response.writeHead(200).end();
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return {
    address: `127.0.0.1:${server.address().port}`,
    /** What came since the last question. */
    take: () => {
      const taken = request;
      request = undefined;
      return taken;
    },
    close: () => server.close(),
  };
}

/** The body with another byte near its end; inside a text of JSON, so that it can still be read. */
function altered(body) {
  const changed = Buffer.from(body);
  const at = Math.max(changed.findLastIndex((byte) => /[a-z0-9]/i.test(String.fromCharCode(byte))), 0);
  changed[at] = changed[at] === 0x31 ? 0x32 : 0x31;
  return changed;
}

/** The requests for one library by case, as far as there are any. */
async function cases(receiver, server, name, { library, sign, sample, secret, looksAtTime, unsent, type = sampleType(name) }) {
  const sent = async (...more) => {
    await receiver.sendTo(server.address, name, type, ...more);
    return server.take();
  };
  const requests = {};
  const genuine = unsent ? undefined : await sent();
  if (genuine) {
    requests.genuine = genuine;
    requests.forged = await sent("--forge");
    if (looksAtTime) requests.stale = await sent("--stale");
  }
  if (sign) {
    const at = Math.floor(Date.now() / 1000);
    const made = async (at) => {
      const signed = await sign({ ...sample, at, url: `${PUBLIC}/${name}` }, secret);
      const { headers, body = sample.body } = signed.headers ? signed : { headers: signed };
      const lower = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), String(value)]);
      return {
        headers: { "content-type": JSON_TYPE["Content-Type"], ...Object.fromEntries(lower) },
        body: Buffer.from(body),
        path: `/${name}`,
      };
    };
    requests.signed = await made(at);
    if (looksAtTime) requests["signed, stale"] = await made(at - 7 * 86400);
  }
  const first = requests.signed ?? requests.genuine;
  if (first === undefined) throw new Error(`nothing signs for ${name} (${library}): add sign`);
  requests.altered = { ...first, body: altered(first.body) };
  const kept = Object.entries(first.headers).filter(([name]) => name === "content-type");
  requests.unsigned = { ...first, headers: Object.fromEntries(kept) };
  return requests;
}

/** Judges every case twice. Adds to `faults` where the two differ. */
async function compare(faults, receiver, server, name, module) {
  const { library, secret, judge, differs = {} } = module;
  const requests = await cases(receiver, server, name, module);
  const row = {};
  for (const [label, request] of Object.entries(requests)) {
    const asked = { ...request, url: PUBLIC + request.path };
    const theirs = await Promise.resolve()
      .then(() => judge(asked, secret))
      .catch(() => false);
    const { code, event } = await receiver.post(name, request);
    const [taken, ours] = [theirs !== false && theirs !== undefined && theirs !== null, code >= 200 && code < 300];
    row[label] = taken ? "taken" : "refused";
    const what = `${name}, ${label}`;
    const genuine = label === "genuine" || label === "signed";
    faults.unless(taken === ours || differs[label], `${what}: ${library} ${row[label]} it, the receiver said ${code}`);
    faults.unless(!differs[label] || taken !== ours, `${what}: nothing differs any more: ${differs[label]}`);
    if (genuine) faults.unless(taken && ours, `${what}: ${library} ${row[label]} it, the receiver said ${code}`);
    if (label === "forged") faults.unless(!ours, `${what}: the receiver took it`);
    if (!genuine || !ours || !taken) continue;
    const { id, type } = theirs;
    const [stored] = (await receiver.ask("events", "--source", name)).filter(({ event_id }) => event_id === event);
    const read = { id: stored?.event_id, type: stored?.event_type };
    for (const [fact, value] of Object.entries({ id, type })) {
      if (value === undefined || value === null) continue;
      row[fact] = "same";
      const same = String(value) === read[fact] || differs[fact];
      faults.unless(same, `${what}: ${library} reads the ${fact} ${value}, the receiver ${read[fact]}`);
    }
  }
  return row;
}

/** The libraries of `libraries/`, all of them or the commonest. */
export async function checkLibraries(faults, binary, whole) {
  if (whole && !existsSync(PYTHON)) {
    const install = "python3 -m venv tests/compat/.venv && tests/compat/.venv/bin/pip install -r tests/compat/requirements.txt";
    throw new Error(`the libraries of PyPI are not installed: ${install}`);
  }
  let python;
  const judges = () => (python ??= new Judges());
  const libraries = await read(judges, whole);
  const sources = Object.entries(libraries).map(([name, { secret, settings = "" }]) => [
    name,
    { provider: name, secret, settings },
  ]);
  const server = await recorder();
  const receiver = await Receiver.start(binary, Object.fromEntries(sources), {});
  console.log("\nWhat the providers' own libraries and the receiver make of the same requests:\n");
  console.log("PROVIDER            LIBRARY                              TAKEN BY BOTH     REFUSED BY BOTH           ID  TYPE");
  try {
    for (const [name, module] of Object.entries(libraries)) {
      const row = await compare(faults, receiver, server, name, module).catch((error) => {
        faults.unless(false, `${name}: ${error.stack}`);
        return {};
      });
      const by = (verdict) => Object.keys(row).filter((label) => row[label] === verdict);
      const columns = [
        name.padEnd(19),
        `${module.library} ${module.version}`.padEnd(36),
        by("taken").join(" ").padEnd(17),
        by("refused").join(" ").padEnd(25),
        row.id ? "yes" : "-  ",
        row.type ? "yes" : "-",
      ];
      console.log(columns.join(" ").trimEnd());
    }
  } finally {
    await receiver.stop();
    server.close();
    await python?.stop();
  }
}
