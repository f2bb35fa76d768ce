// A network of boxes with arrows between them: boxes fill as they work, arrows as queues fill.
import { add, attribute, say } from "./draw.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 160;
const GAP = 100;
const LINE = 15;
const SIDE = 24;
const LANE = 20;

function svg(parent, tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

// The column of each box: behind all that it has arrows from, but for those that go back.
function columnsOf(count, arrows) {
  const state = new Array(count).fill(0);
  const forward = [];
  const follow = (at) => {
    state[at] = 1;
    for (const { from, to } of arrows) {
      if (from !== at || to === at || !(to in state)) continue;
      if (state[to] !== 1) forward.push([from, to]);
      if (state[to] === 0) follow(to);
    }
    state[at] = 2;
  };
  for (let at = 0; at < count; at += 1) if (state[at] === 0) follow(at);
  const columns = new Array(count).fill(0);
  for (let round = 0; round < count; round += 1) {
    for (const [from, to] of forward) columns[to] = Math.max(columns[to], columns[from] + 1);
  }
  return columns;
}

// Boxes below each other in columns, with room for arrows that go back or far below all of them.
function layOut(nodes, arrows) {
  const columns = columnsOf(nodes.length, arrows);
  const ends = new Map();
  const places = nodes.map((node, index) => {
    const column = columns[index];
    const y = (ends.get(column) ?? 0) + 8;
    const height = (node.lines.length + 2) * LINE + 10;
    ends.set(column, y + height + 16);
    return { column, x: SIDE + column * (WIDTH + GAP), y, height };
  });
  const bottom = Math.max(40, ...ends.values());
  let lanes = 0;
  const ways = arrows.filter(({ from, to }) => places[from] && places[to]).map((arrow) => {
    const [from, to] = [places[arrow.from], places[arrow.to]];
    const [x1, y1] = [from.x + WIDTH, from.y + from.height / 2];
    const [x2, y2] = [to.x, to.y + to.height / 2];
    if (to.column === from.column + 1) {
      const curve = `M${x1} ${y1}C${x1 + GAP / 2} ${y1} ${x2 - GAP / 2} ${y2} ${x2} ${y2}`;
      return { arrow, curve, tip: [x2, y2], middle: [(x1 + x2) / 2, (y1 + y2) / 2 - 6] };
    }
    // Not through other boxes, and beside the arrows of neighbours.
    const lane = bottom + 8 + lanes * LANE;
    const [out, back] = [x1 + 8 + 4 * (lanes % 3), x2 - 12 - 4 * (lanes % 3)];
    lanes += 1;
    const curve = `M${x1} ${y1 + 10}H${out}V${lane}H${back}V${y2 + 10}H${x2}`;
    return { arrow, curve, tip: [x2, y2 + 10], middle: [(out + back) / 2, lane - 4] };
  });
  const last = Math.max(0, ...columns);
  return { places, ways, width: 2 * SIDE + (last + 1) * WIDTH + last * GAP, height: bottom + lanes * LANE + 8 };
}

function build(picture, panel) {
  const { places, ways, width, height } = layOut(panel.nodes, panel.arrows);
  picture.replaceChildren();
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.setAttribute("width", width);
  picture.setAttribute("height", height);
  const arrows = ways.map(({ arrow, curve, tip: [x, y], middle }) => {
    const line = svg(picture, "path", { d: curve, class: "arrow" });
    svg(picture, "path", { d: `M${x - 7} ${y - 4}L${x} ${y}L${x - 7} ${y + 4}z`, class: "tip" });
    const label = svg(picture, "text", { x: middle[0], y: middle[1], "text-anchor": "middle", class: "label" });
    return { index: panel.arrows.indexOf(arrow), line, label };
  });
  const boxes = panel.nodes.map((node, index) => {
    const { x, y, height: tall } = places[index];
    const box = svg(picture, "rect", { x, y, width: WIDTH, height: tall, class: "box" });
    const share = svg(picture, "rect", { x, y: y + tall - 5, width: 0, height: 5, class: "share" });
    svg(picture, "text", { x: x + 7, y: y + LINE + 2, class: "name" }, node.name);
    const does = svg(picture, "text", { x: x + 7, y: y + 2 * LINE + 2, class: "label" });
    node.lines.forEach((line, number) => {
      const text = svg(picture, "text", { x: x + 7, y: y + (number + 3) * LINE + 2, class: "label" });
      text.textContent = line.length > 24 ? `…${line.slice(-23)}` : line;
      svg(text, "title", {}, line);
    });
    return { box, share, does };
  });
  return { arrows, boxes };
}

export function network(element, title) {
  const scroll = add(element, "div", "graph");
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", title.textContent);
  const picture = svg(scroll, "svg", { class: "network", role: "img" });
  let shape = "";
  let parts = null;
  return (panel) => {
    const now = JSON.stringify([panel.nodes.map(({ name, lines }) => [name, lines]), panel.arrows.map(({ from, to }) => [from, to])]);
    if (now !== shape) {
      shape = now;
      parts = build(picture, panel);
    }
    for (const { index, line, label } of parts.arrows) {
      const arrow = panel.arrows[index];
      attribute(line, "stroke-width", 1 + 4 * Math.max(0, Math.min(1, arrow.share)));
      say(label, arrow.label);
    }
    const words = panel.nodes.map((node, index) => {
      const { box, share, does } = parts.boxes[index];
      const part = Math.max(0, Math.min(1, node.share));
      attribute(box, "class", node.marked ? "box marked" : "box");
      attribute(share, "class", node.marked ? "share marked" : "share");
      attribute(share, "width", WIDTH * part);
      say(does, node.says || `${(100 * part).toFixed(0)} % busy`);
      return `${node.name} ${does.textContent}${node.marked ? ", the limit" : ""}`;
    });
    attribute(picture, "aria-label", `${panel.title}: ${words.join("; ")}`);
  };
}
