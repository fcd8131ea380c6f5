// The dashboard in Chromium: every screen and change, with and without a script, by keyboard, on a phone, in light and
// dark, and under attack. `node run.mjs BINARY [SCREENSHOTS]`

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import puppeteer from "puppeteer-core";
import { Stage } from "./stage.mjs";

const [binary, pictures] = process.argv.slice(2);
const AXE = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PAGES = ["/", "/inbox", "/events", "/handlers", "/sources", "/quarantine", "/audit", "/more"];
const CROSS = `"><img src=x onerror=alert(1)><script>alert(2)</script>\u202e\u0007'`;

const stage = await Stage.make(binary);
const browser = await puppeteer.launch({
  executablePath: "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--host-resolver-rules=MAP evil.test 127.0.0.1"],
});

// What no page may do: print, ask, load from elsewhere, break its policy.
const wrong = [];
const watch = async (page, origin) => {
  page.on("console", (line) => wrong.push(`console: ${line.text()}`));
  page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
  page.on("dialog", async (dialog) => {
    wrong.push(`dialog: ${dialog.message()}`);
    await dialog.dismiss();
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(origin)) wrong.push(`request to ${request.url()}`);
  });
};

// A page in a browser of its own that is logged in.
const visit = async (...options) => {
  const link = await stage.dashboard(...options);
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  await watch(page, new URL(link).origin);
  await page.setViewport({ width: 1280, height: 900 });
  await page.goto(link);
  page.to = (path) => page.goto(new URL(link).origin + path, { waitUntil: "domcontentloaded" });
  return page;
};

const axe = async (page) => {
  const session = await page.createCDPSession();
  const { frameTree } = await session.send("Page.getFrameTree");
  const world = await session.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id });
  const ask = (expression) =>
    session.send("Runtime.evaluate", { expression, contextId: world.executionContextId, awaitPromise: true, returnByValue: true });
  await ask(AXE);
  const { result } = await ask("axe.run().then((found) => JSON.stringify(found.violations.map((one) => [one.id, one.nodes.map((node) => node.html)])))");
  await session.detach();
  return JSON.parse(result.value);
};

const checks = {
  async "every screen is accessible, in light and dark, on three widths, and fits"() {
    const page = await visit();
    await page.to("/events");
    const event = await page.$eval("a.row", (row) => row.getAttribute("href"));
    await page.to("/inbox");
    const group = await page.$eval(".list a.btn", (link) => link.getAttribute("href"));
    await page.to(group);
    const change = await page.$eval("a[data-dialog]", (link) => link.getAttribute("href"));
    const hostile = "/event?source=shop&id=evt_hostile";
    let looked = 0;
    for (const scheme of ["light", "dark"]) {
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
      for (const width of [1280, 390, 320]) {
        await page.setViewport({ width, height: 900 });
        for (const path of [...PAGES, event, group, change, hostile]) {
          await page.to(path);
          const found = await axe(page);
          assert.deepEqual(found, [], `${path}, ${scheme}, ${width}`);
          const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          assert.ok(over <= 0, `${path} is ${over} px too wide at ${width}`);
          looked += 1;
        }
      }
    }
    console.log(`  axe-core: 0 violations on ${looked} pages`);
  },

  async "hostile texts show as texts"() {
    const page = await visit();
    for (const path of ["/", "/events", "/event?source=shop&id=evt_hostile", "/event?source=shop&id=evt_long", "/event?source=code&id=bytes"]) {
      await page.to(path);
      const tags = await page.evaluate(() => [document.scripts.length, document.images.length, document.querySelectorAll("b b, i").length]);
      assert.deepEqual(tags, [1, 0, 0], path);
    }
    await page.to("/event?source=shop&id=evt_hostile");
    const text = await page.$eval("pre.json", (pre) => pre.textContent);
    assert.ok(text.includes("onerror=alert(1)") && text.includes("\\u{202e}"), text);
  },

  async "keyboard alone finds the cause, replays one, then the others"() {
    const page = await visit();
    await page.to("/");
    await page.keyboard.press("g");
    await Promise.all([page.waitForNavigation(), page.keyboard.press("i")]);
    const tab = async (wanted) => {
      for (let nth = 0; nth < 80; nth += 1) {
        await page.keyboard.press("Tab");
        if (await page.evaluate((text) => document.activeElement.textContent.includes(text), wanted)) return;
      }
      assert.fail(`the keyboard does not reach ${wanted}`);
    };
    // Held groups come first: the second link is that of the dead one.
    await tab("Review");
    await tab("Review");
    await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
    await writeFile(join(stage.folder, "fixed"), "");
    await tab("Replay one first");
    await page.keyboard.press("Enter");
    await page.waitForSelector("dialog[open] button");
    await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
    await stage.until((jobs) => jobs.filter((job) => job.state === "succeeded").length === 1, "--handler", "fulfil");
    await page.waitForSelector("a[href^='/change/rest']");
    await tab("the other");
    await page.keyboard.press("Enter");
    await page.waitForSelector("dialog[open] button");
    await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
    await stage.until((jobs) => jobs.every((job) => job.state === "succeeded"), "--handler", "fulfil");
  },

  async "without a script a job is settled"() {
    const page = await visit();
    await page.setJavaScriptEnabled(false);
    await page.to("/event?source=shop&id=evt_label");
    const press = (selector) => Promise.all([page.waitForNavigation(), page.click(selector)]);
    await press("a[href^='/change/succeeded']");
    await page.type("input[name=note]", "the label is printed");
    await press("form.change button");
    assert.match(await page.$eval(".jobcard", (card) => card.textContent), /succeeded/);
    await stage.until((jobs) => jobs.every((job) => job.state === "succeeded"), "--handler", "label");
  },

  async "every other action does what its page says, with a script and without"() {
    for (const hasScript of [true, false]) {
      const page = await visit();
      await page.setJavaScriptEnabled(hasScript);
      const id = (name) => `evt_${name}_${hasScript}`;
      const of = (name) => `/event?source=shop&id=${id(name)}`;
      // Opens the page, follows the link to the change, fills the form in, submits it.
      const act = async (path, change, fields = {}) => {
        await page.to(path);
        const link = `a[href^='/change/${change}']`;
        await page.waitForSelector(link);
        // In one step: the page may be made again between two.
        const click = () => page.$eval(link, (element) => element.click());
        if (hasScript) {
          await click();
          // A dialog; or the page itself, where the change could not be made yet when the dialog asked.
          await page.waitForSelector("form.change");
        } else await Promise.all([page.waitForNavigation(), click()]);
        for (const [name, value] of Object.entries({ note: `for ${change}`, ...fields })) {
          await page.$$eval(`input[name=${name}]`, (inputs, text) => inputs.forEach((input) => (input.value = text)), value);
        }
        await Promise.all([page.waitForNavigation(), page.click("form.change button")]);
        assert.ok(!page.url().includes("/change/"), `${change}: ${await page.$eval("main", (main) => main.textContent)}`);
      };
      const state = (event, wanted) => stage.until((jobs) => jobs.some((job) => job.event_id === event && job.state === wanted));

      await act("/handlers", "pause?handler=build");
      // Another body each time: the replay guard holds one that came under another id.
      await stage.push(`paused-${hasScript}`, `{"ref":"main","after":"${hasScript}"}`);
      await state(`paused-${hasScript}`, "ready");
      await act("/handlers", "resume?handler=build");
      await state(`paused-${hasScript}`, "dead");
      await act("/handlers", "reload");
      await act(`/event?source=code&id=paused-${hasScript}`, "replay-event");
      await stage.until((jobs) => jobs.some((job) => job.event_id === `paused-${hasScript}` && job.replays === 1 && job.state === "dead"));
      await act(`/event?source=code&id=paused-${hasScript}`, "replay-job");
      await stage.until((jobs) => jobs.some((job) => job.event_id === `paused-${hasScript}` && job.replays === 2 && job.state === "dead"));
      await act(`/event?source=code&id=paused-${hasScript}`, "drop-job");
      await state(`paused-${hasScript}`, "dropped");

      await stage.deliver(id("label"), "label.wanted");
      await state(id("label"), "held");
      await act(of("label"), "failed");
      await state(id("label"), "dead");

      await stage.deliver(id("slow"), "slow.one");
      await state(id("slow"), "running");
      await act(of("slow"), "cancel");
      await state(id("slow"), "held");
      await act(of("slow"), "drop-job");

      for (const nth of [1, 2]) await stage.push(`many-${nth}-${hasScript}`, `{"ref":"${nth}","after":"${hasScript}"}`);
      for (const nth of [1, 2]) await state(`many-${nth}-${hasScript}`, "dead");
      const group = "/inbox?state=dead&handler=build&reason=rejected";
      await act(group, "drop", { number: "2" });
      for (const nth of [1, 2]) await state(`many-${nth}-${hasScript}`, "dropped");

      await stage.push(`forged-${hasScript}`, "{}", "another secret");
      await act("/quarantine?source=code", "accept");
      await act("/quarantine?source=code", "forget");
      assert.match(await page.$eval("main", (main) => main.textContent), /0 kept|No delivery/);

      await act("/sources", "test?source=shop", { type: "order.test" });
      assert.match(await page.$eval("main", (main) => main.textContent), /order\.test/);

      const rows = await stage.json("audit", "--limit", "30");
      const verbs = new Set(rows.filter((row) => row.via === "dashboard" && row.reason?.startsWith("for ")).map((row) => row.verb));
      for (const verb of ["pause", "resume", "reload", "replay", "drop", "resolve", "cancel"]) assert.ok(verbs.has(verb), `${verb} in ${[...verbs]}`);
    }
  },

  async "output appears within a second"() {
    const page = await visit();
    await stage.deliver("evt_slow", "slow.one");
    await stage.until((jobs) => jobs[0]?.state === "running", "--handler", "slow");
    await page.to("/event?source=shop&id=evt_slow");
    const last = () =>
      page.$eval("pre.flow span:last-child", (line) => [line.textContent.split(" ")[1], Date.now() - Number(line.textContent.split(" ").pop())]).catch(() => ["0", 0]);
    let [number, worst, seen] = ["0", 0, 0];
    for (const end = Date.now() + 8_000; Date.now() < end; ) {
      await page.waitForFunction((old) => document.querySelector("pre.flow span:last-child")?.textContent.split(" ")[1] !== old, { timeout: 5_000 }, number);
      const [next, age] = await last();
      // The first look is at what was there before.
      if (seen > 0) worst = Math.max(worst, age);
      [number, seen] = [next, seen + 1];
    }
    console.log(`  the newest line was ${worst} ms old at most, of ${seen} looks`);
    assert.ok(seen > 4 && worst < 1_500, `${worst} ms`);
  },

  async "a receiver that restarts is found again under an open page"() {
    const page = await visit();
    await page.to("/events");
    await page.waitForFunction(() => document.querySelector("#following")?.textContent === "Following");
    await stage.kill();
    await page.waitForFunction(() => document.querySelector("#gone").textContent.includes("hooklatch serve"));
    await stage.serve();
    await page.waitForFunction(() => document.querySelector("#gone").textContent === "");
    await stage.deliver("evt_after", "order.paid");
    await page.waitForFunction(() => document.body.textContent.includes("evt_after"));
  },

  async "another site can neither read nor change anything"() {
    const page = await visit();
    const origin = new URL(page.url()).origin;
    const { port } = new URL(origin);
    const attack = `<form method="post" action="${origin}/change/reload"><input name="form" value="x"></form>
      <iframe src="${origin}/"></iframe><script>document.forms[0].submit()</script>`;
    const server = createServer((_, answer) => answer.setHeader("content-type", "text/html").end(attack));
    await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
    const evil = await page.browserContext().newPage();
    const statuses = [];
    evil.on("response", (answer) => {
      const isAsset = /assets|favicon/.test(answer.url());
      if (answer.url().startsWith(origin) && !isAsset) statuses.push(answer.status());
    });
    // The last one is the same site: its requests carry the cookie.
    for (const site of ["127.0.0.1", "localhost", "evil.test", new URL(origin).hostname]) {
      await evil.goto(`http://${site}:${server.address().port}/`, { waitUntil: "load" });
      await evil.waitForFunction((own) => location.origin === own, {}, origin).catch(() => {});
    }
    assert.ok(statuses.length > 0 && statuses.every((status) => status === 403), `${statuses}`);
    // A name that leads to this machine is not this dashboard's name.
    const rebound = await evil.goto(`http://evil.test:${port}/`);
    assert.equal(rebound.status(), 421);
    server.close();
  },

  async "nothing was printed, asked or loaded from elsewhere"() {
    assert.deepEqual(wrong, []);
  },
};

const prepare = async () => {
  for (const number of [1, 2, 3]) await stage.deliver(`evt_order_${number}`, "order.paid", { id: 12345678901234567890n.toString() });
  await stage.deliver("evt_label", "label.wanted");
  await stage.deliver("evt_hostile", `other.${"<b>&'"}`, { note: CROSS, [CROSS]: [CROSS] });
  await stage.deliver("evt_long", "other.long", { line: "x".repeat(5 << 20) });
  await stage.push("bytes", Buffer.from([0x7b, 0x22, 0x61, 0x22, 0x3a, 0x22, 0xff, 0x22, 0x7d]), undefined, "ping");
  await fetch(`http://${stage.address}/hooks/shop`, { method: "POST", body: CROSS });
  await stage.until((jobs) => jobs.filter((job) => job.state === "dead").length === 3 && jobs.some((job) => job.state === "held"));
};

const picture = async () => {
  const page = await visit();
  for (const [name, path] of [["overview", "/"], ["inbox", "/inbox"], ["event", "/event?source=shop&id=evt_order_1"], ["handlers", "/handlers"]]) {
    await page.to(path);
    await page.screenshot({ path: join(pictures, `${name}.png`) });
  }
};

let failed = 0;
try {
  await prepare();
  if (pictures) await picture();
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
      console.log(`ok      ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${name}\n${error.stack}`);
    }
  }
} finally {
  await browser.close();
  await stage.end();
}
console.log(failed ? `${failed} checks failed` : `${Object.keys(checks).length} checks passed`);
process.exit(failed ? 1 : 0);
