// Panels that are drawn: each is (section, title, panel) => update(panel).
import {
  EDGE, add, ageing, attribute, axes, clock, colour, curve, figure, legend, prepare, say, says, showAge, tick,
} from "./draw.js";

// Rows of a waterfall: as many as are kept, and for how many there is room from the start.
const ROWS = 150;
const FIRST_ROWS = 60;
// Of so many of the usual times between two rows, a gap is blank.
const GAP = 2.5;

function highestOf(values) {
  let at = -1;
  values.forEach((value, index) => {
    if (value !== null && (at < 0 || value > values[at])) at = index;
  });
  return at;
}

// The range of values, with some room, that does not jump with each of them.
function range(lists, before, least) {
  let low = Infinity;
  let high = -Infinity;
  for (const list of lists) {
    for (const value of list) {
      if (value === null) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  if (low > high) return before ?? { low: 0, high: 1 };
  const room = Math.max(0.06 * (high - low), least);
  const wanted = { low: low - room, high: high + room };
  if (!before) return wanted;
  const ease = (old, now, outside) => (outside ? now : old + 0.1 * (now - old));
  return { low: ease(before.low, wanted.low, low < before.low), high: ease(before.high, wanted.high, high > before.high) };
}

// A share of which the logarithm is given.
function percent(logarithm) {
  return `${Number((100 * 10 ** logarithm).toPrecision(2))}%`;
}

function frequency(x, value) {
  return figure(value, x.unit);
}

function spectrum(element, title) {
  const keys = legend(title);
  const reset = add(title, "button");
  reset.textContent = "reset peaks";
  const link = add(title, "a");
  link.textContent = ".npy";
  const canvas = add(element, "canvas");
  canvas.setAttribute("role", "img");
  const read = add(element, "p", "read");
  const age = ageing();
  let aged = "";
  let peaks = [];
  let shape = "";
  let limits = null;
  let pointed = null;
  let latest = null;
  let latestPage = null;
  const draw = () => {
    const panel = latest;
    const { x } = panel;
    const length = Math.max(2, ...panel.series.map((series) => series.values.length));
    const place = prepare(canvas, 230);
    const span = { low: x.first, high: x.first + (length - 1) * x.step };
    const { toX, toY, inner } = axes(place, span, limits, (value) => frequency(x, value), (value) => `${value}`);
    const at = (index) => toX(x.first + index * x.step);
    panel.series.forEach((series, index) => {
      const style = colour(`c${index % 8}`);
      place.context.globalAlpha = 0.35;
      curve(place.context, peaks[index], at, toY, style, 1);
      place.context.globalAlpha = 1;
      curve(place.context, series.values, at, toY, style, 1.4);
    });
    const words = panel.series.map((series, index) => {
      const list = series.highest?.length ? series.highest : series.values;
      const top = highestOf(list);
      if (top < 0) return `${series.name}: nothing`;
      if (index === 0) canvas.dataset.peak = x.first + top * x.step;
      return `${series.name}: highest ${list[top].toFixed(1)} ${panel.unit} at ${frequency(x, x.first + top * x.step)}`;
    });
    if (pointed !== null) {
      const share = Math.max(0, Math.min(1, (pointed - EDGE.left) / inner.width));
      const index = Math.round(share * (length - 1));
      const value = (series) => `${series.name} ${series.values[index] ?? "–"} ${panel.unit}`;
      say(read, `${frequency(x, x.first + index * x.step)}: ${panel.series.map(value).join(", ")}${aged}`);
    } else {
      say(read, words.join("; ") + aged);
    }
    attribute(canvas, "aria-label", `${panel.title}, ${words.join("; ")}${aged}`);
  };
  reset.onclick = () => { peaks = []; latest && update(latest, null, latestPage); };
  canvas.onpointermove = (event) => { pointed = event.offsetX; latest && draw(); };
  canvas.onpointerleave = () => { pointed = null; latest && draw(); };
  const update = (panel, _by, page) => {
    aged = showAge(element, age, panel, page);
    latestPage = page;
    const now = `${panel.x.first} ${panel.x.step} ${panel.series.map((series) => `${series.name} ${series.values.length}`)}`;
    if (now !== shape) {
      shape = now;
      peaks = [];
      limits = null;
    }
    latest = panel;
    panel.series.forEach((series, index) => {
      const list = series.highest?.length ? series.highest : series.values;
      const held = peaks[index] ?? [];
      peaks[index] = list.map((value, channel) => Math.max(value ?? -Infinity, held[channel] ?? -Infinity));
      peaks[index] = peaks[index].map((value) => (value === -Infinity ? null : value));
    });
    keys(panel.series.map((series) => series.name));
    link.hidden = !panel.array;
    if (panel.array) link.href = panel.array;
    limits = range([...panel.series.map((series) => series.values), ...peaks], limits, panel.unit === "dB" ? 0.5 : 0.05);
    draw();
  };
  return update;
}

// From dark blue over green to yellow: lightness rises evenly.
const STOPS = [[22, 11, 57], [62, 31, 122], [45, 92, 160], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

function shade(share) {
  const place = Math.max(0, Math.min(0.9999, share)) * (STOPS.length - 1);
  const [from, to] = [STOPS[Math.floor(place)], STOPS[Math.floor(place) + 1]];
  return from.map((value, index) => value + (place % 1) * (to[index] - value));
}

// As many values as there are pixels, each the highest of those behind it: a narrow line stays.
function highestOfEach(list, count) {
  if (count >= list.length) return list;
  const edge = (index) => Math.floor((index * list.length) / count);
  return Array.from({ length: count }, (_, index) => {
    const behind = list.slice(edge(index), edge(index + 1)).filter((value) => value !== null);
    return behind.length ? Math.max(...behind) : null;
  });
}

// Rows that are known, newest first, with the times of their edges: a row lasts from the one before it, unless that is
// so long ago that there was none in between.
function placeRows(rows, each) {
  return rows.map(({ list, time }, index) => {
    const gap = time - (rows[index + 1]?.time ?? time - each);
    return { list, to: time, from: gap > GAP * each ? time - each : time - gap };
  });
}

// The usual time from one row to the next.
function usualStep(rows) {
  const steps = rows.slice(1).map((row, index) => rows[index].time - row.time).sort((a, b) => a - b);
  return steps.length ? steps[Math.floor(steps.length / 2)] : 1;
}

function waterfall(element) {
  const canvas = add(element, "canvas");
  canvas.setAttribute("role", "img");
  const read = add(element, "p", "read");
  const age = ageing();
  let rows = [];
  let limits = null;
  return (panel, by, page) => {
    const source = by.get(panel.of);
    const series = source?.series[panel.series];
    if (!series) return;
    const list = series.highest?.length ? series.highest : series.values;
    const time = source.time ?? page.time;
    if (rows.length && (rows[0].list.length !== list.length || time < rows[0].time)) rows = [];
    // What was seen already is no news.
    if (rows[0]?.time !== time) rows.unshift({ list, time });
    const each = Math.max(1e-3, source.period ?? usualStep(rows));
    rows = rows.filter((row) => time - row.time < ROWS * each).slice(0, ROWS);
    const first = rows[rows.length - 1];
    const sorted = list.filter((value) => value !== null).sort((a, b) => a - b);
    const share = (part) => sorted[Math.floor(part * (sorted.length - 1))];
    const wanted = sorted.length ? { low: share(0.02) - 0.5, high: share(0.998) + 1 } : { low: 0, high: 1 };
    limits = limits ? { low: limits.low + 0.1 * (wanted.low - limits.low), high: Math.max(wanted.high, limits.high - 0.02 * (limits.high - wanted.high)) } : wanted;
    const room = Math.max(FIRST_ROWS * each, time - first.time + each);
    const place = prepare(canvas, 230);
    const { x } = source;
    const span = { low: x.first, high: x.first + Math.max(1, list.length - 1) * x.step };
    const { toY, inner } = axes(place, span, { low: -room, high: 0 }, (value) => frequency(x, value), (value) => `${value} s`);
    const wide = Math.max(1, Math.min(list.length, Math.floor((inner.width * canvas.width) / place.width)));
    const picture = new OffscreenCanvas(wide, 1);
    const context = picture.getContext("2d");
    const image = context.createImageData(wide, 1);
    place.context.imageSmoothingEnabled = false;
    const ratio = canvas.height / place.height;
    const whole = (seconds) => Math.round(toY(seconds - time) * ratio) / ratio;
    let shown = 0;
    for (const row of placeRows(rows, each)) {
      image.data.fill(0);
      highestOfEach(row.list, wide).forEach((value, index) => {
        if (value === null) return;
        const rgb = shade((value - limits.low) / (limits.high - limits.low || 1));
        image.data.set([...rgb, 255], 4 * index);
      });
      context.putImageData(image, 0, 0);
      const top = whole(row.to);
      place.context.drawImage(picture, EDGE.left, top, inner.width, Math.max(1 / ratio, whole(row.from) - top));
      shown += row.to - row.from;
    }
    const aged = showAge(element, age, { time: source.time, period: source.period }, page);
    say(read, `${series.name}, from ${clock(first.time)}; dark ${limits.low.toFixed(1)}, bright ${limits.high.toFixed(1)} ${source.unit}${aged}`);
    attribute(canvas, "aria-label", `${panel.title}: ${read.textContent}`);
    canvas.dataset.rows = rows.length;
    // Seconds within which nothing was measured.
    canvas.dataset.blank = (time - first.time + each - shown).toFixed(1);
  };
}

function histogram(element, title) {
  const keys = legend(title);
  const canvas = add(element, "canvas");
  canvas.setAttribute("role", "img");
  const read = add(element, "p", "read");
  const age = ageing();
  return (panel, _by, page) => {
    const aged = showAge(element, age, panel, page);
    const bins = Math.max(2, ...panel.series.map((series) => series.counts.length));
    const shares = panel.series.map((series) => {
      const all = series.counts.reduce((sum, count) => sum + count, 0) || 1;
      // Small shares matter: those of clipped values.
      return series.counts.map((count) => (count ? Math.log10(count / all) : null));
    });
    const place = prepare(canvas, 180);
    const span = { low: panel.first, high: panel.first + (bins - 1) * panel.step };
    const limits = range(shares, null, 0.2);
    const { toX, toY } = axes(place, span, limits, (value) => `${value}`, percent);
    shares.forEach((list, index) => {
      const at = (bin) => toX(panel.first + bin * panel.step);
      curve(place.context, list, at, toY, colour(`c${index % 8}`), 1.4);
    });
    keys(panel.series.map((series) => series.name));
    say(read, `share of samples with each value, ${panel.unit}; logarithmic${aged}`);
    attribute(canvas, "aria-label", `${panel.title}, ${read.textContent}`);
  };
}

function trace(element, title) {
  const keys = legend(title);
  const link = add(title, "a");
  link.textContent = ".npy";
  const canvas = add(element, "canvas");
  canvas.setAttribute("role", "img");
  const read = add(element, "p", "read");
  const age = ageing();
  return (panel, _by, page) => {
    const { x } = panel;
    const aged = showAge(element, age, panel, page);
    const values = panel.series.map((series) => series.values);
    const length = Math.max(2, ...values.map((list) => list.length));
    const limits = range(values, null, 0.5);
    const place = prepare(canvas, 170);
    const span = { low: x.first, high: x.first + (length - 1) * x.step };
    const { toX, toY } = axes(place, span, limits, (value) => figure(value, x.unit), (value) => `${value}`);
    const at = (index) => toX(x.first + index * x.step);
    values.forEach((list, index) => curve(place.context, list, at, toY, colour(`c${index % 8}`), 1.2));
    if (values.every((list) => list.length === 0)) says(place, "nothing yet");
    keys(panel.series.map((series) => series.name));
    link.hidden = !panel.array;
    if (panel.array) link.href = panel.array;
    say(read, panel.unit + (panel.time ? `, from ${clock(panel.time)}` : "") + aged);
    attribute(canvas, "aria-label", `${panel.title}, ${read.textContent}`);
  };
}

// What is shown of x if it has the scale of y around the same middle.
function sameScale(x, y, place) {
  const inner = { width: place.width - EDGE.left - EDGE.right, height: place.height - EDGE.top - EDGE.bottom };
  const half = (((y.high - y.low) / 2) * inner.width) / inner.height;
  const middle = (x.low + x.high) / 2;
  return { low: Math.min(x.low, middle - half), high: Math.max(x.high, middle + half) };
}

function points(element, title) {
  const keys = legend(title);
  const canvas = add(element, "canvas");
  canvas.setAttribute("role", "img");
  const read = add(element, "p", "read");
  const age = ageing();
  return (panel, _by, page) => {
    const aged = showAge(element, age, panel, page);
    const place = prepare(canvas, panel.same_scale ? 300 : 200);
    const across = panel.same_scale ? sameScale(panel.x, panel.y, place) : panel.x;
    const { toX, toY } = axes(place, across, panel.y, (value) => figure(value, panel.x.unit ?? ""), (value) => tick(value, panel.y.unit ?? ""));
    let seen = 0;
    panel.series.forEach((series, index) => {
      place.context.fillStyle = colour(`c${index % 8}`);
      for (const [x, y] of series.points) {
        if (x < across.low || x > across.high || y < panel.y.low || y > panel.y.high) continue;
        place.context.fillRect(toX(x) - 0.75, toY(y) - 0.75, 1.5, 1.5);
        seen += 1;
      }
    });
    if (seen === 0) says(place, "nothing yet");
    keys(panel.series.map((series) => series.name));
    say(read, `${panel.x.name} to the right, ${panel.y.name} upwards${aged}`);
    canvas.dataset.points = seen;
    attribute(canvas, "aria-label", `${panel.title}, ${seen} points, ${read.textContent}`);
  };
}

function timeSeries(element, title) {
  const keys = legend(title);
  const canvas = add(element, "canvas");
  canvas.setAttribute("role", "img");
  const read = add(element, "p", "read");
  return (panel) => {
    const length = Math.max(7, ...panel.series.map((series) => series.values.length));
    const place = prepare(canvas, 170);
    const values = panel.series.map((series) => series.values);
    const limits = range([...values, [0]], null, 0);
    limits.low = Math.max(limits.low, 0);
    // With nothing but zeros there is nothing to fit to.
    if (!(limits.high > limits.low)) limits.high = limits.low + 1;
    const [second, unit] = (length - 1) * panel.step < 120 ? [1, "s"] : [60, "min"];
    const past = { low: (-(length - 1) * panel.step) / second, high: 0 };
    const { toX, toY } = axes(place, past, limits, (value) => `${value} ${unit}`, (value) => tick(value, panel.unit));
    const at = (count) => (index) => toX(((index - count + 1) * panel.step) / second);
    panel.series.forEach((series, index) => curve(place.context, series.values, at(series.values.length), toY, colour(`c${index % 8}`), 1.4));
    if (values.every((list) => list.every((value) => value === null))) says(place, panel.series.length ? "nothing yet" : "nothing");
    keys(panel.series.map((series) => series.name));
    const now = (series) => `${series.name} ${figure(series.values.at(-1), panel.unit)}`;
    say(read, panel.series.map(now).join("; "));
    attribute(canvas, "aria-label", `${panel.title}, ${read.textContent}`);
  };
}

export const plotKinds = { spectrum, waterfall, trace, points, histogram, "time-series": timeSeries };
