// Takes documents in and keeps a section for each panel.
import { clock, say, span, zone } from "./draw.js";
import { network } from "./network.js";
import { panelKinds } from "./panels.js";
import { plotKinds } from "./plots.js";

const VERSION = 1;
const STALE = 5000;
const kinds = { ...panelKinds, ...plotKinds, network };
const shown = new Map();
const top = document.getElementById("top");
const columns = [...document.querySelectorAll("#panels > div")];
const WIDE = new Set(["verdict", "figures", "network"]);
let placed = "";
const news = document.getElementById("news");
const gone = document.getElementById("gone");
const told = document.getElementById("told");
let last = 0;
// Milliseconds since the browser began to load, which no clock that is set changes.
const now = () => performance.now();
let shownState = "";
let latest = null;

function section(panel) {
  const element = document.createElement("section");
  element.id = `panel-${panel.id}`;
  element.className = panel.kind;
  const title = document.createElement("h2");
  const text = document.createElement("span");
  text.textContent = panel.title;
  title.append(text);
  element.append(title);
  const view = kinds[panel.kind](element, title, panel);
  const file = document.createElement("a");
  title.append(file);
  const note = document.createElement("p");
  note.className = "note";
  element.append(note);
  return { element, view, note, file, kind: panel.kind };
}

// How many columns the screen has room for.
function columnCount() {
  return window.innerWidth > 1800 ? 3 : window.innerWidth > 800 ? 2 : 1;
}

// The column that ends first, so that none has a hole.
function shortest(count) {
  const end = (column) => column.lastElementChild?.getBoundingClientRect().bottom ?? 0;
  return columns.slice(0, count).reduce((best, column) => (end(column) < end(best) ? column : best));
}

function show(page) {
  if (document.title !== page.verdictMark + page.name) document.title = page.verdictMark + page.name;
  say(document.getElementById("name"), page.name);
  say(document.getElementById("program"), page.program);
  const panels = page.panels.filter((panel) => panel.kind in kinds);
  const by = new Map(panels.map((panel) => [panel.id, panel]));
  for (const [id, old] of shown) {
    if (by.get(id)?.kind !== old.kind) {
      old.element.remove();
      shown.delete(id);
    }
  }
  const count = columnCount();
  const order = [count, ...panels.map((panel) => panel.id)].join("\n");
  // Panels stay where they are while there are the same ones.
  const anew = order !== placed;
  placed = order;
  if (anew) {
    for (const { element } of shown.values()) element.remove();
    columns.forEach((column, index) => { column.hidden = index >= count; });
  }
  for (const panel of panels) {
    const entry = shown.get(panel.id) ?? section(panel);
    shown.set(panel.id, entry);
    if (anew) (WIDE.has(panel.kind) ? top : shortest(count)).append(entry.element);
    entry.view(panel, by, page);
    say(entry.note, panel.note ?? "");
    entry.file.hidden = !panel.file;
    if (panel.file) entry.file.href = panel.file;
    say(entry.file, panel.file ?? "");
  }
}

// Says over all else that what is below is of another time.
function warn(words) {
  gone.hidden = !words;
  say(gone, words);
}

function take(event) {
  if (!event.data) return;
  const page = JSON.parse(event.data);
  if (page.version !== VERSION) {
    warn(`The program speaks version ${page.version}: reload this page.`);
    return;
  }
  last = now();
  const verdict = page.panels.find((panel) => panel.kind === "verdict");
  page.verdictMark = { well: "✓ ", warning: "! ", bad: "✗ " }[verdict?.state] ?? "";
  document.body.classList.remove("stale");
  warn("");
  say(news, `${clock(page.time)} ${zone(page.time)}`);
  // Spoken once for each change, not each second.
  if (verdict && verdict.state !== shownState) {
    shownState = verdict.state;
    say(told, `${{ well: "Well", warning: "Warning", bad: "Bad" }[verdict.state]}: ${verdict.text}`);
  }
  latest = page;
  show(page);
  document.body.dataset.documents = Number(document.body.dataset.documents ?? 0) + 1;
}

function connect() {
  const events = new EventSource("events");
  events.onmessage = take;
  events.onerror = () => {
    // Where the program refuses, the browser does not try again by itself.
    const refused = events.readyState === EventSource.CLOSED;
    if (!last) warn(refused ? "Refused: as many pages are open as may be. Trying again." : "No answer. Trying again.");
    if (refused) setTimeout(connect, 3000);
  };
}

const again = () => { if (latest) show(latest); };
window.addEventListener("resize", again);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
say(document.getElementById("name"), window.location.host);
setInterval(() => {
  if (!latest || now() - last <= STALE) return;
  document.body.classList.add("stale");
  shownState = "";
  say(told, "No answer");
  document.title = `? ${latest.name}`;
  say(news, "");
  warn(`No answer for ${span((now() - last) / 1000)}, since ${clock(latest.time)}. What is below is of then.`);
}, 1000);
connect();
