// What happened, in a few lines for people.

import { grouped } from "./delivery.mjs";
import { ownMark } from "./guard.mjs";

/** `a ×2, b`: each word once, with its number. */
function counted(words) {
  const counts = [...grouped(words, (word) => word)]
    .sort()
    .map(([word, { length }]) => (length > 1 ? `${word} ×${length}` : word));
  return counts.join(", ") || "none";
}

const NOTHING = "NOTHING OF THEIR OWN";

const COLUMNS = ["SOURCE", "PAYLOADS", "TYPES", "ACCEPTED", "DUPLICATE", "STORED", "RUN", "FLAGGED", "HELD"];

/** One line per source, then what the replay guard did and why. */
export function printLedger({
  deliveries,
  answers,
  replays,
  forgeries,
  refusals,
  stored,
  jobs,
  ledger,
  repeated,
}) {
  const replayed = new Set(replays.map(({ id }) => id));
  const line = (source) => {
    const own = (list) =>
      list.filter((one) => one.source === source && !replayed.has(one.event_id ?? one.id));
    const sent = own(deliveries);
    const said = (which, status) =>
      deliveries.filter(
        (delivery, index) => delivery.source === source && answers[index][which].status === status,
      ).length;
    const ran = ledger.filter(
      ([handler, from, id]) => handler === "every" && from === source && !replayed.has(id),
    );
    return [
      source,
      sent.length,
      new Set(sent.map(({ type }) => type)).size,
      said("first", "accepted"),
      said("again", "duplicate"),
      own(stored).length,
      ran.length,
      own(stored).filter(({ flagged }) => flagged).length,
      own(jobs).filter(({ handler, state }) => handler === "every" && state === "held").length,
    ];
  };
  const lines = [...new Set(deliveries.map(({ source }) => source))].map(line);
  const total = COLUMNS.map((_, column) =>
    column === 0 ? "all" : lines.reduce((sum, line) => sum + line[column], 0),
  );
  const width = (column) =>
    Math.max(...[COLUMNS, ...lines, total].map((line) => String(line[column]).length));
  for (const line of [COLUMNS, ...lines, total]) {
    console.log(
      line
        .map((cell, column) => (column ? String(cell).padStart(width(column)) : cell.padEnd(width(0))))
        .join("  "),
    );
  }

  const fate = (wanted) => repeated.filter((delivery) => delivery.fate === wanted);
  console.log("\nExamples that their package has twice, byte for byte, came under two ids:");
  console.log(`flagged, as flag_types has them: ${counted(fate("flagged").map(({ type }) => type))}`);
  console.log("held, since an honest second one has other bytes, by");
  const marks = grouped(fate("held"), ({ type, payload }) => ownMark(type, payload) ?? NOTHING);
  for (const [mark, found] of marks) console.log(`  ${mark}: ${counted(found.map(({ type }) => type))}`);
  console.log(`false positives of the guard: ${marks.get(NOTHING)?.length ?? 0}`);
  console.log(
    `replays of captured requests: ${replays.map(({ what, fate }) => `${what} ${fate}`).join("; ")}`,
  );
  console.log(
    `forgeries: ${forgeries.length} sent, ${refusals.filter(({ code }) => code === 401).length} refused`,
  );
}
