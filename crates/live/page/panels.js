// Panels of words and numbers: each is (section, title, panel) => update(panel).
import { add, clock, figure, legend, span } from "./draw.js";

function verdict(element) {
  const words = add(element, "p", "words");
  const mends = add(element, "p");
  const book = add(element, "p", "book");
  const list = add(element, "ul");
  return (panel, _by, page) => {
    element.className = `verdict ${panel.state}`;
    element.dataset.state = panel.state;
    const since = panel.since ? `, since ${clock(panel.since)} (${span(page.time - panel.since)})` : "";
    words.textContent = panel.text + since;
    mends.textContent = panel.mends ?? "";
    const line = (cause) => (cause?.run_book ? `Run-book: ${cause.run_book}` : "");
    book.textContent = line(panel.causes[0]);
    list.replaceChildren();
    // The first cause is the verdict.
    for (const cause of panel.causes.slice(1)) {
      const count = cause.count ? `, ${cause.count.toLocaleString("en").replaceAll(",", " ")} so far` : "";
      const more = cause.mends ? ` ${cause.mends}` : "";
      const item = add(list, "li");
      item.textContent = `${cause.text}, since ${clock(cause.since)}${count}.${more}`;
      if (cause.run_book) add(item, "p", "book").textContent = line(cause);
    }
  };
}

function figures(element) {
  const values = add(element, "div", "values");
  return (panel) => {
    values.replaceChildren();
    for (const { name, value, unit, words } of panel.figures) {
      const box = add(values, "div");
      add(box, "span").textContent = name;
      add(box, "b").textContent = words ?? figure(value, unit ?? "");
    }
  };
}

function bars(element, title) {
  const keys = legend(title);
  const all = add(element, "div");
  const svg = "http://www.w3.org/2000/svg";
  return (panel) => {
    const names = [...new Set(panel.bars.flatMap((bar) => bar.parts.map((part) => part.name)))];
    keys(names);
    all.replaceChildren();
    for (const bar of panel.bars) {
      const row = add(all, "div", "bar");
      add(row, "span").textContent = bar.name;
      const picture = document.createElementNS(svg, "svg");
      picture.setAttribute("viewBox", "0 0 1000 10");
      picture.setAttribute("preserveAspectRatio", "none");
      let from = 0;
      for (const part of bar.parts) {
        const rect = document.createElementNS(svg, "rect");
        const width = Math.max(0, Math.min(1, part.share)) * 1000;
        rect.setAttribute("x", from);
        rect.setAttribute("width", width);
        rect.setAttribute("height", 10);
        rect.setAttribute("class", `k${names.indexOf(part.name) % 8}`);
        rect.setAttribute("fill", "var(--key)");
        const text = document.createElementNS(svg, "title");
        text.textContent = `${part.name}: ${(100 * part.share).toFixed(1)} %`;
        rect.append(text);
        picture.append(rect);
        from += width;
      }
      row.append(picture);
    }
  };
}

function table(element) {
  const table = add(add(element, "div", "scroll"), "table");
  const head = add(add(table, "thead"), "tr");
  const body = add(table, "tbody");
  return (panel) => {
    head.replaceChildren();
    for (const name of panel.columns) add(head, "th").textContent = name;
    body.replaceChildren();
    for (const cells of panel.rows) {
      const row = add(body, "tr");
      for (const cell of cells) add(row, "td").textContent = cell;
    }
  };
}

function log(element) {
  const list = add(add(element, "div", "scroll"), "ol", "entries");
  const none = add(element, "p", "read");
  return (panel) => {
    none.textContent = panel.entries.length ? "" : "nothing yet";
    list.replaceChildren();
    for (const entry of panel.entries) {
      const row = add(list, "li", entry.state);
      add(row, "span", "time").textContent = clock(entry.time);
      add(row, "span", "who").textContent = entry.who;
      add(row, "span", "text").textContent = entry.text;
    }
  };
}

export const panelKinds = { verdict, figures, bars, table, log };
