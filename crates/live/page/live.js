// Takes documents in and keeps a section for each panel.
import { panelKinds } from "./panels.js";
import { plotKinds } from "./plots.js";

const VERSION = 1;
const STALE = 5000;
const kinds = { ...panelKinds, ...plotKinds };
const shown = new Map();
const main = document.getElementById("panels");
const news = document.getElementById("news");
let last = 0;

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
  const note = document.createElement("p");
  note.className = "note";
  element.append(note);
  return { element, view, note, kind: panel.kind };
}

function show(page) {
  document.title = `${page.verdictMark}${page.name}`;
  document.getElementById("name").textContent = page.name;
  document.getElementById("program").textContent = page.program;
  const panels = page.panels.filter((panel) => panel.kind in kinds);
  const known = new Set(panels.map((panel) => panel.id));
  for (const [id, old] of shown) {
    if (!known.has(id)) {
      old.element.remove();
      shown.delete(id);
    }
  }
  const by = new Map(panels.map((panel) => [panel.id, panel]));
  panels.forEach((panel, index) => {
    let entry = shown.get(panel.id);
    if (!entry || entry.kind !== panel.kind) {
      entry?.element.remove();
      entry = section(panel);
      shown.set(panel.id, entry);
    }
    if (main.children[index] !== entry.element) main.insertBefore(entry.element, main.children[index] ?? null);
    entry.view(panel, by, page);
    entry.note.textContent = panel.note ?? "";
  });
}

function take(event) {
  if (!event.data) return;
  const page = JSON.parse(event.data);
  if (page.version !== VERSION) {
    news.textContent = `the program speaks version ${page.version}: reload this page`;
    return;
  }
  last = Date.now();
  const verdict = page.panels.find((panel) => panel.kind === "verdict");
  page.verdictMark = { well: "✓ ", warning: "! ", bad: "✗ " }[verdict?.state] ?? "";
  document.body.classList.remove("stale");
  news.textContent = new Date(page.time * 1000).toLocaleTimeString();
  show(page);
  document.body.dataset.documents = Number(document.body.dataset.documents ?? 0) + 1;
}

function connect() {
  const events = new EventSource("events");
  events.onmessage = take;
  events.onerror = () => {
    // Where the program refuses, the browser does not try again by itself.
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
  };
}

setInterval(() => {
  if (last && Date.now() - last > STALE) {
    document.body.classList.add("stale");
    document.title = `? ${document.getElementById("name").textContent}`;
    news.textContent = `no answer since ${new Date(last).toLocaleTimeString()}`;
  }
}, 1000);
connect();
