// Panels of words and numbers: each is (section, title, panel) => update(panel).
import { add, attribute, clock, figure, keep, legend, make, say, span, when } from "./draw.js";

function grouped(count) {
  return count.toLocaleString("en").replaceAll(",", " ");
}

function verdict(element) {
  const words = add(element, "p", "words");
  const [text, since] = [add(words, "span"), add(words, "span", "since")];
  const mends = add(element, "p");
  const book = add(element, "p", "book");
  const list = add(element, "ul");
  return (panel, _by, page) => {
    const name = `verdict ${panel.state}`;
    if (element.className !== name) element.className = name;
    element.dataset.state = panel.state;
    say(text, panel.text);
    say(since, panel.since ? `, since ${when(panel.since, page.time)} (${span(page.time - panel.since)})` : "");
    say(mends, panel.mends ?? "");
    const line = (cause) => (cause?.run_book ? `Run-book: ${cause.run_book}` : "");
    say(book, line(panel.causes[0]));
    // The first cause is the verdict.
    const others = panel.causes.slice(1);
    const items = keep(list, others, (cause) => cause.name, () => {
      const item = make("li");
      for (const kind of ["what", "since", "mends"]) add(item, "span", kind);
      add(item, "p", "book");
      return item;
    });
    others.forEach((cause, index) => {
      const [what, from, help, more] = items[index].children;
      say(what, cause.text);
      say(from, `, since ${when(cause.since, page.time)}${cause.count ? `, ${grouped(cause.count)} so far` : ""}.`);
      say(help, cause.mends ? ` ${cause.mends}` : "");
      say(more, line(cause));
    });
  };
}

function figures(element) {
  const values = add(element, "div", "values");
  return (panel) => {
    const boxes = keep(values, panel.figures, ({ name }) => name, ({ name }) => {
      const box = make("div");
      add(box, "span").textContent = name;
      add(box, "b");
      return box;
    });
    panel.figures.forEach(({ value, unit, words }, index) => say(boxes[index].lastElementChild, words ?? figure(value, unit ?? "")));
  };
}

// What a name is shown as, in all documents alike: waiting is grey, the others have colours in the order in which they
// are known.
const PARTS = ["work", "compute", "busy", "working", "reading", "writing"];
const waits = (name) => /^(wait|sleep|idle)/.test(name);

function partKind(name) {
  if (waits(name)) return name.endsWith("outside") ? "w2" : /out|room|sleep|idle/.test(name) ? "w1" : "w0";
  if (!PARTS.includes(name)) PARTS.push(name);
  const order = {
    work: 0, working: 0, busy: 0, compute: 2, computing: 2, reading: 5, writing: 3,
    "reading queues": 1, "writing queues": 4,
  };
  return `k${order[name] ?? PARTS.indexOf(name) % 8}`;
}

function bars(element, title) {
  const keys = legend(title, partKind);
  const all = add(element, "div");
  const svg = "http://www.w3.org/2000/svg";
  return (panel) => {
    keys([...new Set(panel.bars.flatMap((bar) => bar.parts.map((part) => part.name)))]);
    const rows = keep(all, panel.bars, (bar) => bar.name, (bar) => {
      const row = make("div", "bar");
      add(row, "span").textContent = bar.name;
      const picture = document.createElementNS(svg, "svg");
      picture.setAttribute("viewBox", "0 0 1000 10");
      picture.setAttribute("preserveAspectRatio", "none");
      picture.setAttribute("role", "img");
      row.append(picture);
      add(row, "span", "share");
      return row;
    });
    panel.bars.forEach((bar, index) => {
      const [, picture, share] = rows[index].children;
      const rects = keep(picture, bar.parts, (part) => part.name, (part) => {
        const rect = document.createElementNS(svg, "rect");
        rect.setAttribute("height", 10);
        rect.setAttribute("class", partKind(part.name));
        rect.setAttribute("fill", "var(--key)");
        rect.append(document.createElementNS(svg, "title"));
        return rect;
      });
      let [from, works] = [0, 0];
      bar.parts.forEach((part, at) => {
        const width = Math.max(0, Math.min(1, part.share)) * 1000;
        attribute(rects[at], "x", from);
        attribute(rects[at], "width", width);
        say(rects[at].firstElementChild, `${part.name}: ${(100 * part.share).toFixed(1)} %`);
        from += width;
        if (!waits(part.name)) works += part.share;
      });
      // Who reads or writes may wait for what is outside, which is no work.
      const own = bar.parts.find((part) => part.name === "reading" || part.name === "writing");
      say(share, `${(100 * works).toFixed(0)} % ${own?.name ?? "work"}`);
      const words = bar.parts.map((part) => `${part.name} ${(100 * part.share).toFixed(0)} %`);
      attribute(picture, "aria-label", `${bar.name}: ${words.join(", ")}`);
    });
  };
}

// What scrolls can be reached with the keyboard.
function scroll(element, title) {
  const box = add(element, "div", "scroll");
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", title.textContent);
  return box;
}

function table(element, title) {
  const table = add(scroll(element, title), "table");
  const head = add(add(table, "thead"), "tr");
  const body = add(table, "tbody");
  const column = (name) => {
    const cell = make("th", "", name);
    cell.scope = "col";
    return cell;
  };
  return (panel) => {
    keep(head, panel.columns, (name) => name, column);
    const rows = keep(body, panel.rows, () => "", () => make("tr"));
    panel.rows.forEach((texts, index) => {
      const cells = keep(rows[index], texts, () => "", () => make("td"));
      texts.forEach((text, at) => say(cells[at], text));
    });
  };
}

function log(element, title) {
  const list = add(scroll(element, title), "ol", "entries");
  const none = add(element, "p", "read");
  return (panel, _by, page) => {
    say(none, panel.entries.length ? "" : "nothing yet");
    const items = keep(list, panel.entries, ({ time, who, text }) => `${time} ${who} ${text}`, (entry) => {
      const row = make("li", entry.state);
      const time = add(row, "time", "time");
      time.dateTime = new Date(entry.time * 1000).toISOString();
      time.title = time.dateTime;
      add(row, "span", "who").textContent = entry.who;
      add(row, "span", "text").textContent = entry.text;
      return row;
    });
    let dated = false;
    panel.entries.forEach((entry, index) => {
      const text = when(entry.time, page.time);
      dated ||= text !== clock(entry.time);
      say(items[index].firstElementChild, text);
    });
    list.classList.toggle("dated", dated);
  };
}

export const panelKinds = { verdict, figures, bars, table, log };
