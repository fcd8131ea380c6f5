// Stands between a sender and the receiver: keeps each request and its answer, and answers in the receiver's place
// where a check asks for that.

import { createServer, request as httpRequest } from "node:http";

import { inTime } from "./process.mjs";

/** The headers of one connection. */
const HOPS = new Set(["connection", "keep-alive", "transfer-encoding", "content-length", "expect"]);

export class Proxy {
  #server;
  #port;
  #seen = 0;
  #wake = [];
  /** What becomes of the next requests: a status in the receiver's place, "lost", or a function. */
  plan = [];
  /** Each request with what became of it, in the order in which they ended. */
  exchanges = [];

  /** Starts one in front of the receiver at `port`. */
  static async start(port) {
    const proxy = new Proxy();
    proxy.#port = port;
    proxy.#server = createServer((incoming, outgoing) => void proxy.#take(incoming, outgoing));
    await new Promise((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  get url() {
    return `http://127.0.0.1:${this.#server.address().port}`;
  }

  /** Sends one request to the receiver. Gives its answer; undefined if the receiver is dead, or dies. */
  forward({ method, url, headers, body }, sent = () => undefined) {
    return new Promise((resolve) => {
      const all = [...headers.flat(), "Content-Length", String(body.length), "Connection", "close"];
      const options = { host: "127.0.0.1", port: this.#port, method, path: url, headers: all, agent: false };
      const request = httpRequest(options, async (response) => {
        const parts = [];
        try {
          for await (const part of response) parts.push(part);
        } catch {
          return resolve(undefined);
        }
        const { statusCode: status, headers } = response;
        const [verdict, event] = [headers["hooklatch-status"], headers["hooklatch-event"]];
        resolve({ status, verdict, event, type: headers["content-type"], body: Buffer.concat(parts) });
      });
      request.once("error", () => resolve(undefined));
      request.end(body, sent);
    });
  }

  async #take(incoming, outgoing) {
    const parts = [];
    try {
      for await (const part of incoming) parts.push(part);
    } catch {
      return; // The sender left in the middle of its request.
    }
    const raw = incoming.rawHeaders;
    const pairs = raw.flatMap((name, at) => (at % 2 === 0 ? [[name, raw[at + 1]]] : []));
    const exchange = {
      method: incoming.method,
      url: incoming.url,
      headers: pairs.filter(([name]) => !HOPS.has(name.toLowerCase())),
      body: Buffer.concat(parts),
    };
    const step = this.plan.shift();
    if (typeof step === "number") {
      exchange.answered = step;
      outgoing.writeHead(step).end();
    } else {
      exchange.answer = await this.forward(exchange, typeof step === "function" ? step : undefined);
      if (step === "lost") {
        exchange.answered = 503;
        outgoing.writeHead(503).end();
      } else if (exchange.answer === undefined || step !== undefined) {
        exchange.answered = "broken";
        incoming.socket.destroy();
      } else {
        exchange.answered = exchange.answer.status;
        const { status, type, body } = exchange.answer;
        outgoing.writeHead(status, type ? { "Content-Type": type } : {}).end(body);
      }
    }
    this.exchanges.push(exchange);
    this.#wake.splice(0).forEach((wake) => wake());
  }

  /** The next exchange that has not been looked at, when it is over. */
  async next(what) {
    while (this.exchanges.length <= this.#seen) {
      const woken = new Promise((resolve) => this.#wake.push(resolve));
      await inTime(woken, () => `no request came: ${what}`);
    }
    this.#seen += 1;
    return this.exchanges[this.#seen - 1];
  }

  /** The exchanges that nothing has looked at. */
  get unseen() {
    return this.exchanges.slice(this.#seen);
  }

  stop() {
    this.#server.closeAllConnections();
    return new Promise((resolve) => this.#server.close(resolve));
  }
}
