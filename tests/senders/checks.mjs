// The checks that each sender goes through. Each prints a line; a check that fails adds faults.

/** The forms of an id that the receiver derives or makes. */
const IDS = {
  digest: (event) => /^sha256:[0-9a-f]{64}$/.test(event),
  made: (event) => event !== undefined && !event.startsWith("sha256:"),
};

export class Checks {
  #site;
  #sender;
  #running;
  #sent = 0;
  /** The check that is under way. */
  line = "";
  faults = [];

  constructor(site, sender, running) {
    [this.#site, this.#sender, this.#running] = [site, sender, running];
  }

  #expect(holds, fault) {
    if (!holds) this.faults.push(`${this.line}: ${fault}`);
  }

  /** Makes the sender send one more event. Gives the text by which its request is known. */
  async #send() {
    this.#sent += 1;
    return this.#running.send(this.#sent);
  }

  /** The next request, which must be the one of `mark`. */
  async #next(mark) {
    const exchange = await this.#site.proxy.next(`${this.line}, ${mark}`);
    const isIt = exchange.body.includes(mark);
    this.#expect(isIt, `the request is not that of ${mark}: ${exchange.body.subarray(0, 300)}`);
    return exchange;
  }

  /** The receiver's answer to an exchange must be this one; the event has then run. */
  async #answered(exchange, verdict) {
    const { status, verdict: said, event } = exchange.answer ?? {};
    const isSo = status === 200 && said === verdict;
    this.#expect(isSo, `answered ${status} ${said}, not ${verdict}`);
    if (event !== undefined) await this.#site.ran(event);
    return event;
  }

  async accepted() {
    const mark = await this.#send();
    const exchange = await this.#next(mark);
    const event = await this.#answered(exchange, "accepted");
    if (event === undefined) return;
    const { id, type } = this.#sender;
    const isNamed = typeof id === "function" ? event === id(exchange) : IDS[id](event);
    this.#expect(isNamed, `its id is ${event}`);
    const { type: own } = await this.#site.ran(event);
    this.#expect(own === type, `its type is ${own}, not ${type}`);
    return `${own}, ${event.slice(0, 24)}${event.length > 24 ? "…" : ""}`;
  }

  /** The same request again, byte for byte, as an attacker or a proxy sends it. */
  async repeated() {
    const mark = await this.#send();
    const exchange = await this.#next(mark);
    const first = await this.#answered(exchange, "accepted");
    const answer = await this.#site.proxy.forward(exchange);
    const second = await this.#answered({ answer }, this.#sender.repeated);
    const isSame = (first === second) === (this.#sender.repeated === "duplicate");
    this.#expect(isSame, `the events are ${first} and ${second}`);
    return this.#sender.repeated;
  }

  /** Two events with equal bodies, made by the sender itself. */
  async equal() {
    if (!this.#running.equal) return undefined;
    const verdicts = ["accepted", this.#sender.equal];
    const bodies = [];
    for (const verdict of verdicts) {
      const mark = await this.#running.equal();
      const exchange = await this.#next(mark);
      bodies.push(exchange.body);
      await this.#answered(exchange, verdict);
    }
    this.#expect(bodies[0].equals(bodies[1]), `the bodies differ: ${bodies.join(" and ")}`);
    return verdicts[1];
  }

  /** An answer of `status` in the receiver's place. */
  async refused(status) {
    this.#site.proxy.plan = [status];
    const mark = await this.#send();
    const first = await this.#next(mark);
    this.#expect(first.answered === status, `the first was answered ${first.answered}`);
    return this.#comesAgain(mark, this.#sender.resends[status]);
  }

  /** The receiver stores the event, and its answer is lost. */
  async lost() {
    this.#site.proxy.plan = ["lost"];
    const mark = await this.#send();
    const first = await this.#next(mark);
    await this.#answered(first, "accepted");
    if (!this.#sender.resends[503]) return "not sent again";
    const second = await this.#next(mark);
    const event = await this.#answered(second, "duplicate");
    this.#expect(event === first.answer?.event, `the second is another event, ${event}`);
    return "duplicate";
  }

  /** The receiver is dead when the event comes. */
  async dead() {
    await this.#site.kill();
    const mark = await this.#send();
    const first = await this.#next(mark);
    this.#expect(first.answered === "broken", `a dead receiver answered ${first.answered}`);
    await this.#site.restart();
    return this.#comesAgain(mark, this.#sender.resends.broken);
  }

  /** The receiver dies with the event in its hands. */
  async killed() {
    this.#site.proxy.plan = [() => this.#site.killNow()];
    const mark = await this.#send();
    const first = await this.#next(mark);
    await this.#site.restart();
    const before = first.answer === undefined ? "before" : "after";
    if (!this.#sender.resends.broken) return `killed ${before} its answer, not sent again`;
    const second = await this.#firstAnswered(mark);
    const event = await this.#answered(second, second.answer?.verdict);
    const isOnce = ["accepted", "duplicate"].includes(second.answer?.verdict);
    this.#expect(isOnce && event !== undefined, `the second was ${second.answer?.verdict}`);
    return `killed ${before} its answer, then ${second.answer?.verdict}`;
  }

  /** Whether the refused event comes again, as `resends` says, and is then accepted. */
  async #comesAgain(mark, resends) {
    if (resends) {
      await this.#answered(await this.#firstAnswered(mark), "accepted");
      return "sent again, accepted";
    }
    // The sender has had its answer. What it sends next is the next event.
    const after = await this.#send();
    await this.#answered(await this.#next(after), "accepted");
    return "not sent again: lost";
  }

  /** The next request that reached the receiver; before it, only those that did not. */
  async #firstAnswered(mark) {
    for (;;) {
      const exchange = await this.#next(mark);
      if (exchange.answered !== "broken") return exchange;
    }
  }

  /** Every event has run once, and nothing else has run or come. */
  async counted() {
    for (const { answered, body } of this.#site.proxy.unseen)
      this.#expect(false, `a request that nothing explains, answered ${answered}: ${body.subarray(0, 200)}`);
    const events = (await this.#site.ask("events")).map(({ event_id: event }) => event);
    for (const event of events) await this.#site.ran(event);
    const runs = this.#site.ledger().map(({ event }) => event);
    const [once, stored] = [new Set(runs), new Set(events)];
    this.#expect(once.size === runs.length, `${runs.length} runs of ${once.size} events`);
    this.#expect(events.length === stored.size, `${events.length} events with ${stored.size} ids`);
    const strays = [...once].filter((event) => !stored.has(event));
    this.#expect(strays.length === 0, `runs without an event: ${strays}`);
    const jobs = await this.#site.ask("jobs");
    const others = jobs.filter(({ state }) => !["succeeded", "running"].includes(state));
    this.#expect(others.length === 0, `jobs: ${JSON.stringify(others.slice(0, 2))}`);
    return `${events.length} events, ${runs.length} runs`;
  }

  /** All checks in their order: the name of each, and how it is done. */
  get all() {
    return [
      ["accepted and named", () => this.accepted()],
      ["the same request twice", () => this.repeated()],
      ["equal bodies", () => this.equal()],
      ["answered 503", () => this.refused(503)],
      ["answered 401", () => this.refused(401)],
      ["answer lost", () => this.lost()],
      ["receiver dead", () => this.dead()],
      ["receiver killed", () => this.killed()],
      ["counted once", () => this.counted()],
    ];
  }
}
