// What the other modules hand to each other: a delivery as a provider would make it, and one that no
// provider made.

import { createHash } from "node:crypto";

/**
 * @typedef {object} Request
 * @property {Record<string, string>} headers
 * @property {string} body  as it is signed and sent, byte for byte
 *
 * @typedef {object} Delivery
 * @property {string} source   a source of the configuration; its path is `/` and the name
 * @property {string} id       the event's id
 * @property {string} type     the type by which the provider's users know it
 * @property {Request} first   must be answered `accepted`
 * @property {Request} again   what the provider sends when it sends again: `duplicate`
 * @property {object} [payload]  GitHub's alone: what the body says
 *
 * @typedef {object} Forgery
 * @property {string} source
 * @property {string} id       must not be stored
 * @property {string} what     for people
 * @property {Request} request must be answered 401
 * @property {() => unknown} library  the provider's own verification: false, or throws
 */

export const JSON_TYPE = { "Content-Type": "application/json" };

/** SHA-256 of a body, in hex, as `sha256sum` prints it. */
export const digest = (body) => createHash("sha256").update(body).digest("hex");

/** Lists of `items`, by what `of` says of each. */
export function grouped(items, of) {
  const groups = new Map();
  for (const item of items) {
    const name = of(item);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(item);
  }
  return groups;
}

/** What was not as it should be; said together at the end, so that one fault does not hide others. */
export class Faults {
  #most = 40;
  #lines = [];

  /** Notes `text` unless `holds`. */
  unless(holds, text) {
    if (!holds) this.#lines.push(text);
  }

  get count() {
    return this.#lines.length;
  }

  print() {
    for (const line of this.#lines.slice(0, this.#most)) console.error(`WRONG: ${line}`);
    if (this.count > this.#most) console.error(`and ${this.count - this.#most} more`);
  }
}
