// The dashboard's script: follows the page, shows changes as dialogs, and gives the keyboard its ways. Everything
// works without it.

const make = { createHTML: (text) => text };
const html = globalThis.trustedTypes?.createPolicy("hl", make) ?? make;
const parse = (text) => new DOMParser().parseFromString(html.createHTML(text), "text/html");
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const set = (node, text) => node && node.textContent !== text && (node.textContent = text);

// Following: the server sends the page again where it has changed. Each part that differs takes its place, unless a
// person is at work in it.
const sent = new Map();
const waiting = new Map();
let source;
let paused = false;
// The visitor has left the page: what still arrives for it is dropped.
let isLeft = false;

const busy = (part) => {
  const chosen = getSelection();
  const focused = document.activeElement;
  const isRead = part.matches("[data-rows]") && (part.matches(":hover") || scrollY > 240);
  const isSelected = !chosen.isCollapsed && part.contains(chosen.anchorNode);
  return (part !== focused && part.contains(focused)) || isSelected || isRead || $(":checked", part);
};

const swap = (name, text) => {
  const old = $(`[data-part="${CSS.escape(name)}"]`);
  if (!old) return;
  if (paused || busy(old)) return waiting.set(name, text);
  waiting.delete(name);
  const fresh = parse(text).body.firstElementChild;
  const atEnd = (pre) => pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 4;
  const places = $$("pre", old).map((pre) => (pre.matches(".flow") && atEnd(pre) ? 1e9 : pre.scrollTop));
  const open = $$("details[open]", old).map((details) => details.id);
  old.replaceWith(fresh);
  open.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
  $$("pre", fresh).forEach((pre, nth) => (pre.scrollTop = places[nth] ?? 0));
};

const show = (text) => {
  const page = parse(text);
  const names = (root) => $$("[data-part]", root).map((part) => part.dataset.part).join();
  const isOther = names(page) !== names(document);
  if (isOther && (busy($("#main")) || $("dialog[open]"))) return;
  for (const part of $$("[data-part]", page)) {
    const isNew = sent.get(part.dataset.part) !== part.outerHTML;
    sent.set(part.dataset.part, part.outerHTML);
    if (isNew && !isOther) swap(part.dataset.part, part.outerHTML);
  }
  if (isOther) $("#main").replaceChildren(...$("#main", page).childNodes);
  document.title = page.title;
  note("");
};

const note = (text) => {
  set($("#gone"), text);
  document.body.classList.toggle("old", text !== "");
};

const follow = () => {
  const live = document.body.dataset.live;
  if (!live || source) return;
  source = new EventSource(`/live?of=${encodeURIComponent(live)}`);
  source.addEventListener("page", (event) => isLeft || show(event.data));
  source.addEventListener("gone", (event) => {
    if (isLeft) return;
    note(`Not up to date: ${$("main p", parse(event.data))?.textContent ?? event.data}`);
  });
  source.onerror = () => {
    note("Not up to date: this dashboard does not answer. It is asked again.");
    if (source.readyState !== EventSource.CLOSED) return;
    source = undefined;
    setTimeout(follow, 2000);
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
addEventListener("pagehide", () => {
  isLeft = true;
  source?.close();
  source = undefined;
});
addEventListener("pageshow", () => {
  isLeft = false;
  follow();
});
setInterval(() => {
  if (!document.body.dataset.live) return;
  for (const [name, text] of [...waiting]) swap(name, text);
  const isOld = document.body.matches(".old");
  set($(".clock"), new Date().toTimeString().slice(0, 8));
  set($("#following"), isOld ? "Old" : waiting.size ? `Paused, ${waiting.size} changed` : paused ? "Paused" : "Following");
}, 1000);

// A change is a page of its own; here it is a dialog over this one.
const open = (content, label) => {
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-label", label);
  dialog.append(content);
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
};

const ask = async (to) => {
  const text = await (await fetch(to)).text();
  if (isLeft) return;
  const form = $("form.change", parse(text));
  if (!form) return location.assign(to);
  open(form, $("h1", form).textContent);
};

document.addEventListener("click", (event) => {
  const at = (selector) => event.target.closest(selector);
  const link = at("a[data-dialog], dialog a.cancel");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    return link.matches(".cancel") ? $("dialog").close() : ask(link.href);
  }
  if (at("[data-copy]")) navigator.clipboard.writeText(at("[data-copy]").dataset.copy);
  const all = at("[data-all]");
  if (all) $$("input[name=job]").forEach((box) => (box.checked = all.checked));
});
document.addEventListener("submit", (event) => {
  const buttons = $$("form.change button", event.target);
  // Not before the form is sent with the button that was pressed.
  setTimeout(() => buttons.forEach((button) => (button.disabled = true)));
});

// The keyboard.
const PLACES = { o: "/", i: "/inbox", e: "/events", h: "/handlers", s: "/sources", q: "/quarantine", a: "/audit" };
const KEYS = `<dl class=kv><dt>/<dd>find an event<dt>g, then o i e h s q a<dd>overview, inbox, events,
  handlers, sources, quarantine, audit<dt>j k Enter<dd>next row, the row before, open it<dt>x<dd>choose
  the row<dt>r d<dd>replay, drop the chosen<dt>p<dd>pause or follow<dt>t<dd>light or dark<dt>?<dd>this
  list</dl>`;
let before = "";

const row = (step) => {
  const rows = $$("a.row");
  const at = rows.indexOf(document.activeElement) + step;
  rows[Math.min(Math.max(at, 0), rows.length - 1)]?.focus();
};

const theme = () => {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const root = document.documentElement.dataset;
  root.theme = (root.theme ?? (isDark ? "dark" : "light")) === "dark" ? "light" : "dark";
  document.cookie = `hooklatch_theme=${root.theme}; Path=/; SameSite=Strict; Max-Age=31536000`;
};

const ACTS = {
  "/": () => $("#q")?.focus(),
  j: () => row(1),
  k: () => row(-1),
  x: () => $("input[name=job]", document.activeElement.closest("tr") ?? document)?.click(),
  r: () => $("[data-key=replay]")?.click(),
  d: () => $("[data-key=drop]")?.click(),
  p: () => (paused = !paused),
  t: theme,
  "?": () => open($("dl", parse(KEYS)), "Keyboard"),
};

document.addEventListener("keydown", (event) => {
  const isTyped = event.target.closest("input, select, textarea, dialog");
  if (event.ctrlKey || event.metaKey || event.altKey || isTyped) return;
  if (event.key === "Escape") return document.activeElement.blur();
  const to = before === "g" && PLACES[event.key];
  before = event.key;
  if (to) return location.assign(to);
  if (!ACTS[event.key]) return;
  event.preventDefault();
  ACTS[event.key]();
});
