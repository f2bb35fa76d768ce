// A network of boxes with arrows between them: boxes fill as they work, arrows as queues fill.
import { add } from "./draw.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 170;
const GAP = 110;
const LINE = 15;

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

export function network(element) {
  const box = add(element, "div", "scroll");
  return (panel) => {
    const columns = columnsOf(panel.nodes.length, panel.arrows);
    const ends = new Map();
    const places = panel.nodes.map((node, index) => {
      const column = columns[index];
      const y = (ends.get(column) ?? 0) + 12;
      const height = (node.lines.length + 2) * LINE + 10;
      ends.set(column, y + height + 24);
      return { x: 4 + column * (WIDTH + GAP), y, height };
    });
    const width = 8 + (Math.max(0, ...columns) + 1) * WIDTH + Math.max(0, ...columns) * GAP;
    const height = Math.max(40, ...ends.values()) + 40;
    const picture = document.createElementNS(SVG, "svg");
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("class", "network");
    picture.setAttribute("role", "img");
    for (const arrow of panel.arrows) {
      const [from, to] = [places[arrow.from], places[arrow.to]];
      if (!from || !to) continue;
      const [x1, y1] = [from.x + WIDTH, from.y + from.height / 2];
      const [x2, y2] = [to.x, to.y + to.height / 2];
      // What goes back goes below.
      const low = x2 > x1 ? 0 : Math.max(from.height, to.height) / 2 + 24;
      const curve = `M${x1} ${y1}C${x1 + GAP / 2} ${y1 + low} ${x2 - GAP / 2} ${y2 + low} ${x2} ${y2}`;
      const share = Math.max(0, Math.min(1, arrow.share));
      svg(picture, "path", { d: curve, class: "arrow", "stroke-width": 1 + 4 * share });
      svg(picture, "path", { d: `M${x2 - 7} ${y2 - 4}L${x2} ${y2}L${x2 - 7} ${y2 + 4}z`, class: "tip" });
      const middle = { x: (x1 + x2) / 2, y: (y1 + y2) / 2 + low * 0.75 - 5, "text-anchor": "middle" };
      svg(picture, "text", { ...middle, class: "label" }, arrow.label);
    }
    panel.nodes.forEach((node, index) => {
      const { x, y, height: tall } = places[index];
      const share = Math.max(0, Math.min(1, node.share));
      svg(picture, "rect", { x, y, width: WIDTH, height: tall, class: node.marked ? "box marked" : "box" });
      svg(picture, "rect", { x, y: y + tall - 5, width: WIDTH * share, height: 5, class: node.marked ? "share marked" : "share" });
      svg(picture, "text", { x: x + 7, y: y + LINE + 2, class: "name" }, node.name);
      svg(picture, "text", { x: x + 7, y: y + 2 * LINE + 2, class: "label" }, `${(100 * share).toFixed(0)} % busy`);
      node.lines.forEach((line, number) => {
        const text = svg(picture, "text", { x: x + 7, y: y + (number + 3) * LINE + 2, class: "label" });
        text.textContent = line.length > 26 ? `…${line.slice(-25)}` : line;
        svg(text, "title", {}, line);
      });
    });
    box.replaceChildren(picture);
  };
}
