// The dashboard's script: follows the page, shows changes as dialogs, and gives the keyboard its ways. Everything
// works without it.

const html = globalThis.trustedTypes
  ? trustedTypes.createPolicy("hl", { createHTML: (text) => text })
  : { createHTML: (text) => text };
const parse = (text) => new DOMParser().parseFromString(html.createHTML(text), "text/html");
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

// Following: the server sends the page again where it has changed; each part that differs takes its place, unless
// a person is at work in it.
const sent = new Map();
const waiting = new Map();
let source;
let paused = false;

const busy = (part) => {
  const chosen = getSelection();
  return (
    (part !== document.activeElement && part.contains(document.activeElement)) ||
    (!chosen.isCollapsed && part.contains(chosen.anchorNode)) ||
    (part.matches("[data-rows]") && (part.matches(":hover") || scrollY > 240)) ||
    Boolean($(":checked", part))
  );
};

const say = (word) => {
  const status = $("#following");
  const clock = status?.parentElement.querySelector(".clock");
  if (clock) clock.textContent = new Date().toTimeString().slice(0, 8);
  if (status && status.textContent !== word) status.textContent = word;
};

const swap = (name, text) => {
  const old = $(`[data-part="${CSS.escape(name)}"]`);
  if (!old) return;
  if (paused || busy(old)) return waiting.set(name, text);
  waiting.delete(name);
  const fresh = parse(text).body.firstElementChild;
  const places = $$("pre", old).map((pre) => [pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 4, pre.scrollTop]);
  const open = $$("details[open]", old).map((details) => details.id);
  old.replaceWith(fresh);
  open.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
  $$("pre", fresh).forEach((pre, nth) => {
    const [atEnd, top] = places[nth] ?? [false, 0];
    pre.scrollTop = atEnd && pre.classList.contains("flow") ? pre.scrollHeight : top;
  });
};

const show = (text) => {
  const page = parse(text);
  const parts = $$("[data-part]", page);
  const names = (root) => $$("[data-part]", root).map((part) => part.dataset.part).join();
  if (names(page) !== names(document)) {
    const main = $("#main");
    if (busy(main) || $("dialog[open]")) return;
    main.replaceChildren(...$("#main", page).childNodes);
    parts.forEach((part) => sent.set(part.dataset.part, part.outerHTML));
  }
  for (const part of parts) {
    const name = part.dataset.part;
    if (sent.get(name) === part.outerHTML) continue;
    sent.set(name, part.outerHTML);
    swap(name, part.outerHTML);
  }
  document.title = page.title;
  note("");
};

const note = (text) => {
  const place = $("#gone");
  if (place && place.textContent !== text) place.textContent = text;
  document.body.classList.toggle("old", text !== "");
};

const follow = () => {
  const live = document.body.dataset.live;
  if (!live || source) return;
  source = new EventSource(`/live?of=${encodeURIComponent(live)}`);
  source.addEventListener("page", (event) => show(event.data));
  source.addEventListener("gone", (event) => {
    const why = $("main p", parse(event.data))?.textContent ?? event.data;
    note(`Not up to date: ${why}`);
  });
  source.onopen = () => note("");
  source.onerror = () => {
    note("Not up to date: this dashboard does not answer. It is asked again.");
    if (source.readyState === EventSource.CLOSED) {
      source = undefined;
      setTimeout(follow, 2000);
    }
  };
};

$$("[data-part]").forEach((part) => sent.set(part.dataset.part, part.outerHTML));
follow();
// A browser opens six connections to a host: a hidden page gives its own back.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) return follow();
  source?.close();
  source = undefined;
});
setInterval(() => {
  if (!document.body.dataset.live) return;
  for (const [name, text] of [...waiting]) swap(name, text);
  const gone = document.body.classList.contains("old");
  say(gone ? "Old" : waiting.size ? `Paused, ${waiting.size} changed` : paused ? "Paused" : "Following");
}, 1000);

// A change is a page of its own; here it is a dialog over this one.
const ask = async (to) => {
  const answer = await fetch(to);
  const page = parse(await answer.text());
  const form = $("form.change", page);
  if (!form) return location.assign(to);
  $("dialog")?.remove();
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-labelledby", "change");
  dialog.append(form);
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
  ($("[autofocus]", dialog) ?? $("button", dialog))?.focus();
};

document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-dialog]");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    return ask(link.href);
  }
  if (event.target.closest("dialog a.cancel")) {
    event.preventDefault();
    return $("dialog").close();
  }
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    await navigator.clipboard.writeText(copy.dataset.copy);
    copy.dataset.copied = "";
  }
  const all = event.target.closest("[data-all]");
  if (all) $$("input[name=job]").forEach((box) => (box.checked = all.checked));
});
document.addEventListener("submit", (event) => {
  if (event.target.matches("form.change")) $$("button", event.target).forEach((button) => setTimeout(() => (button.disabled = true)));
});

// The keyboard. `?` lists it.
const KEYS = {
  "/": "find", "g o": "overview", "g i": "inbox", "g e": "events", "g h": "handlers", "g s": "sources",
  "g q": "quarantine", "g a": "audit", "j k Enter": "next row, the row before, open it", x: "choose the row",
  r: "replay", d: "drop", p: "pause or follow", t: "light or dark", "?": "this list",
};
const PLACES = { o: "/", i: "/inbox", e: "/events", h: "/handlers", s: "/sources", q: "/quarantine", a: "/audit" };
let before = "";

const row = (step) => {
  const rows = $$("a.row");
  const at = rows.findIndex((link) => link === document.activeElement);
  rows[Math.min(Math.max(at + step, 0), rows.length - 1)]?.focus();
};

const theme = () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  document.cookie = `hooklatch_theme=${next}; Path=/; SameSite=Strict; Max-Age=31536000`;
};

const help = () => {
  const dialog = document.createElement("dialog");
  const list = document.createElement("dl");
  list.className = "kv";
  for (const [keys, what] of Object.entries(KEYS)) {
    const key = document.createElement("dt");
    const words = document.createElement("dd");
    key.textContent = keys;
    words.textContent = what;
    list.append(key, words);
  }
  dialog.setAttribute("aria-label", "Keyboard");
  dialog.append(list);
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) return;
  if (event.key === "Escape") return document.activeElement.blur();
  const after = before;
  before = event.key === "g" ? "g" : "";
  if (after === "g" && PLACES[event.key]) return location.assign(PLACES[event.key]);
  const acts = {
    "/": () => $("#q")?.focus(),
    j: () => row(1),
    k: () => row(-1),
    x: () => $("input[name=job]", document.activeElement.closest("tr") ?? undefined)?.click(),
    r: () => $("[data-key=replay]")?.click(),
    d: () => $("[data-key=drop]")?.click(),
    p: () => (paused = !paused),
    t: theme,
    "?": help,
  };
  if (!acts[event.key]) return;
  event.preventDefault();
  acts[event.key]();
});
