// A PostgreSQL server in a temporary folder, for senders that need one.

import { chownSync, existsSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";

import { Missing } from "./install.mjs";
import { freePort, run } from "./process.mjs";

const DEBIAN = "/usr/lib/postgresql";

/** A program of the server: in the folder that HOOKLATCH_POSTGRES names, else of the newest version of Debian's. */
function installed(name) {
  const named = process.env.HOOKLATCH_POSTGRES;
  const versions = named || !existsSync(DEBIAN) ? [] : readdirSync(DEBIAN).sort().reverse();
  const folders = named ? [resolve(named)] : versions.map((version) => join(DEBIAN, version, "bin"));
  return folders.map((folder) => join(folder, name)).find((path) => existsSync(path));
}

/** Starts one for a sender. Gives its port; the user is `postgres`, the database `postgres`, without a password. */
export async function startPostgres(place) {
  const [initdb, postgres] = ["initdb", "postgres"].map(installed);
  if (!initdb || !postgres) throw new Missing("PostgreSQL: apt-get install postgresql");
  const folder = place.temporary();
  // It does not run as root.
  const options = { cwd: folder };
  if (process.getuid() === 0) {
    const ids = await Promise.all(["-u", "-g"].map((which) => run("id", [which, "postgres"])));
    [options.uid, options.gid] = ids.map(Number);
    chownSync(folder, options.uid, options.gid);
  }
  const data = join(folder, "data");
  await run(initdb, ["-D", data, "-U", "postgres", "-A", "trust", "--no-sync"], options);
  const port = await freePort();
  const settings = [`unix_socket_directories=${folder}`, "listen_addresses=127.0.0.1", "fsync=off"];
  const args = ["-D", data, "-p", String(port), ...settings.flatMap((one) => ["-c", one])];
  await place.start(postgres, args, options).says(/ready to accept connections/);
  return port;
}
