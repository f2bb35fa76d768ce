// Elements, numbers and axes that all panels share.
export function add(parent, tag, name) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  parent.append(element);
  return element;
}

// An element that is nowhere yet.
export function make(tag, name, text) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
}

// Writes only what is new: what stays can be selected and copied.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function attribute(element, name, value) {
  if (element.getAttribute(name) !== `${value}`) element.setAttribute(name, value);
}

// The children of `parent` for these items. Those whose key was there before stay as they are.
export function keep(parent, items, keyOf, create) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const times = new Map();
  const keys = items.map((item) => {
    const key = keyOf(item);
    const before = times.get(key) ?? 0;
    times.set(key, before + 1);
    return `${key}\n${before}`;
  });
  const wanted = new Set(keys);
  for (const [key, child] of old) if (!wanted.has(key)) child.remove();
  let place = parent.firstElementChild;
  return items.map((item, index) => {
    let child = old.get(keys[index]);
    if (!child) {
      child = create(item);
      child.dataset.key = keys[index];
    }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    return child;
  });
}

// Names with their colours: each the next one, unless `kind` says which.
export function legend(title, kind = (_name, index) => `k${index % 8}`) {
  const box = add(title, "span", "legend");
  return (names) => {
    keep(box, names, (name) => `${name} ${kind(name, names.indexOf(name))}`, (name) => make("span", `key ${kind(name, names.indexOf(name))}`, name));
  };
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export function clock(unix) {
  return new Date(unix * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

// The same with the day, where it is not today's.
export function when(unix, now) {
  const [day, today] = [new Date(unix * 1000), new Date(now * 1000)];
  if (day.toDateString() === today.toDateString()) return clock(unix);
  const two = (number) => `${number}`.padStart(2, "0");
  return `${day.getFullYear()}-${two(day.getMonth() + 1)}-${two(day.getDate())} ${clock(unix)}`;
}

// The zone that times are shown in, such as UTC+2.
export function zone(unix) {
  const minutes = -new Date(unix * 1000).getTimezoneOffset();
  const rest = Math.abs(minutes) % 60;
  const hours = `${minutes < 0 ? "−" : "+"}${Math.floor(Math.abs(minutes) / 60)}${rest ? `:${rest}` : ""}`;
  return minutes === 0 ? "UTC" : `UTC${hours}`;
}

// Ages of what is measured at some times, by the program's clock.
//
// The time of the first that is seen may be of another clock, such as a digitiser's. From the second on the age
// counts from the document that brought it.
export function ageing() {
  let last = null;
  return (time, now, period) => {
    if (!last || time !== last.time) {
      const since = last || !(time <= now) ? now : time;
      last = { time, since, learnt: last ? Math.min(now - last.seen, 60) : 1, seen: now };
    }
    const each = period ?? last.learnt;
    const age = now - last.since;
    return { old: age > Math.max(5, 3 * each), words: age > each + 3 ? `measured ${span(age)} ago` : "" };
  };
}

// Shows the age of a panel that has a time, and makes it paler if it is old. Returns words of it.
export function showAge(element, age, panel, page) {
  const { old, words } = typeof panel.time === "number" ? age(panel.time, page.time, panel.period) : { old: false, words: "" };
  element.classList.toggle("old", old);
  return words ? `; ${words}` : "";
}

export function span(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return `${Math.floor(whole / 60)} min`;
  if (whole < 172800) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} days`;
}

const PREFIXES = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"], [1e-12, "p"]];
const SCALED = new Set(["Hz", "s", "B", "b/s", "B/s", "S/s"]);

// A number with three to five digits, and a prefix where the unit takes one.
export function figure(value, unit) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && SCALED.has(unit)) {
    const size = Math.abs(value);
    const [scale, prefix] = PREFIXES.find(([scale]) => size >= scale * 0.9999) ?? PREFIXES.at(-1);
    return `${Number((value / scale).toPrecision(4))} ${prefix}${unit}`;
  }
  const text = Math.abs(value) >= 1e4 ? Math.round(value).toLocaleString("en").replaceAll(",", " ") : `${Number(value.toPrecision(4))}`;
  return unit ? `${text} ${unit}` : text;
}

// The same at an axis, where there is little room: with a prefix, without the unit but of time.
export function tick(value, unit) {
  if (SCALED.has(unit)) return figure(value, unit);
  const size = Math.abs(value);
  const [scale, prefix] = size < 1e4 ? [1, ""] : PREFIXES.find(([scale]) => size >= scale);
  return `${Number((value / scale).toPrecision(4))}${prefix}`;
}

// Numbers such as 0, 20, 40 that cover a range in about so many steps.
export function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
  const found = [];
  for (let at = Math.ceil(low / step); at * step <= high + step * 1e-9; at += 1) found.push(Number((at * step).toPrecision(12)));
  return found;
}

// A canvas as sharp as the screen is. Returns its context, with its width and height in CSS pixels.
export function prepare(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth || 300;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11px system-ui, sans-serif";
  return { context, width, height };
}

export const EDGE = { left: 46, right: 8, top: 6, bottom: 20 };

// Draws axes. Returns what turns values into places.
export function axes({ context, width, height }, x, y, xText, yText) {
  const { left, right, top, bottom } = EDGE;
  const inner = { width: width - left - right, height: height - top - bottom };
  const toX = (value) => left + ((value - x.low) / (x.high - x.low || 1)) * inner.width;
  const toY = (value) => top + inner.height - ((value - y.low) / (y.high - y.low || 1)) * inner.height;
  context.strokeStyle = colour("grid");
  context.fillStyle = colour("faint");
  context.lineWidth = 1;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const value of ticks(y.low, y.high, inner.height / 32)) {
    const at = Math.round(toY(value)) + 0.5;
    context.beginPath();
    context.moveTo(left, at);
    context.lineTo(width - right, at);
    context.stroke();
    context.fillText(yText(value), left - 4, at);
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const value of ticks(x.low, x.high, inner.width / 80)) {
    context.fillText(xText(value), Math.min(width - right - 16, toX(value)), height - bottom + 5);
  }
  return { toX, toY, inner };
}

// Words in the middle of a plot.
export function says({ context, width, height }, text) {
  context.fillStyle = colour("faint");
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(text, width / 2, height / 2);
}

// A curve through the values that are known.
export function curve(context, values, toX, toY, style, thickness) {
  context.strokeStyle = style;
  context.lineWidth = thickness;
  context.beginPath();
  let drawing = false;
  values.forEach((value, index) => {
    if (value === null) {
      drawing = false;
    } else if (drawing) {
      context.lineTo(toX(index), toY(value));
    } else {
      context.moveTo(toX(index) - 0.5, toY(value));
      context.lineTo(toX(index), toY(value));
      drawing = true;
    }
  });
  context.stroke();
}
