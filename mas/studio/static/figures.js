// Draws figures as SVG, each with a legend that shows the values under the pointer, and a table of its numbers.
const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 230;
const FEW = 12; // points that are marked by a dot each
const LEFT = 46;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 36;

export function drawFigures(place, sections) {
  if (!sections.length) return;
  place.querySelector("[data-empty]")?.remove();
  const seen = new Set();
  for (const section of sections) {
    const id = `section ${section.title}`;
    const [element, isNew] = child(place, id, () => {
      const made = html("section");
      made.append(html("h2", "", section.title), html("div", "grid"));
      return made;
    });
    if (isNew) place.append(element);
    seen.add(element);
    const grid = element.querySelector(".grid");
    for (const figure of section.figures) seen.add(drawFigure(grid, figure));
  }
  for (const old of place.querySelectorAll("section, figure")) if (!seen.has(old)) old.remove();
}

function child(parent, key, make) {
  for (const one of parent.children) if (one.dataset.key === key) return [one, false];
  const made = make();
  made.dataset.key = key;
  return [made, true];
}

function drawFigure(grid, figure) {
  const [element, isNew] = child(grid, figure.title, () => newFigure(figure));
  if (isNew) {
    grid.append(element);
    element.resizes = new ResizeObserver(() => paint(element));
    element.resizes.observe(element.querySelector(".plot"));
  }
  element.figure = figure;
  paint(element);
  if (element.querySelector("details").open) fillTable(element);
  return element;
}

function newFigure(figure) {
  const element = html("figure", "card");
  const heading = html("h3", "", figure.title);
  const text = html("figcaption", "note", figure.text);
  if (figure.healthy) {
    text.append(figure.text ? ". " : "", html("b", "", "Healthy: "), figure.healthy);
  }
  const details = html("details");
  details.append(html("summary", "", "Numbers"), html("div", "scroll"));
  details.addEventListener("toggle", () => details.open && fillTable(element));
  element.append(heading, html("ul", "legend"), html("div", "plot"), text, details);
  return element;
}

function paint(element) {
  const { figure } = element;
  const plot = element.querySelector(".plot");
  const width = Math.max(plot.clientWidth, 200);
  const x = scale(figure.lines.flatMap((line) => line.xs), null, LEFT, width - RIGHT, true);
  const y = scale(figure.lines.flatMap((line) => [...line.ys, ...line.lows, ...line.highs]), figure.range, HEIGHT - BOTTOM, TOP, false);
  const svg = node("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": described(figure) });
  for (const tick of ticks(y.low, y.high, 4)) {
    svg.append(node("line", { class: "gridline", x1: LEFT, x2: width - RIGHT, y1: y.at(tick), y2: y.at(tick) }));
    svg.append(node("text", { class: "tick end", x: LEFT - 7, y: y.at(tick) + 4 }, short(tick)));
  }
  for (const tick of ticks(x.low, x.high, Math.min(6, Math.floor(width / 80)), true)) {
    svg.append(node("text", { class: "tick middle", x: x.at(tick), y: HEIGHT - BOTTOM + 17 }, short(tick)));
  }
  svg.append(node("text", { class: "axis", x: LEFT, y: HEIGHT - 3 }, `${figure.unit}, over ${figure.x_label}`));
  for (const line of figure.lines) if (line.lows.length) drawBand(svg, line, x, y);
  for (const line of figure.lines) drawLine(svg, line, x, y);
  const cursor = node("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  svg.append(cursor);
  plot.replaceChildren(svg);
  fillLegend(element, null);
  svg.addEventListener("pointermove", (event) => {
    const place = svg.getBoundingClientRect();
    const wanted = x.from(((event.clientX - place.left) / place.width) * width);
    const at = nearest(figure.lines.flatMap((line) => line.xs), wanted);
    for (const name of ["x1", "x2"]) cursor.setAttribute(name, x.at(at));
    cursor.setAttribute("visibility", "visible");
    fillLegend(element, at);
  });
  svg.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    fillLegend(element, null);
  });
}

// From the least to the greatest of the runs that a line is the mean of.
function drawBand(svg, line, x, y) {
  const at = (values) => line.xs.map((value, index) => [value, values[index]]).filter(([, value]) => value !== null);
  const points = [...at(line.lows), ...at(line.highs).reverse()].map(([px, py]) => `${x.at(px).toFixed(1)} ${y.at(py).toFixed(1)}`);
  if (points.length) svg.append(node("path", { class: `band series-${line.colour}`, d: `M${points.join("L")}Z` }));
}

// The value of a point, with the ends of its band.
function told(line, index) {
  const value = short(line.ys[index]);
  return line.lows.length ? `${value} (${short(line.lows[index])} to ${short(line.highs[index])})` : value;
}

function drawLine(svg, line, x, y) {
  let path = "";
  let isGap = true;
  const group = node("g", { class: `line series-${line.colour} dash-${line.dash}` });
  line.ys.forEach((value, index) => {
    if (value === null) {
      isGap = true;
      return;
    }
    const [px, py] = [x.at(line.xs[index]).toFixed(1), y.at(value).toFixed(1)];
    path += `${isGap ? "M" : "L"}${px} ${py}`;
    isGap = false;
    if (line.xs.length <= FEW) group.append(node("circle", { cx: px, cy: py, r: 2.6 }));
  });
  group.prepend(node("path", { d: path }));
  svg.append(group);
}

// `at` null: the last value of each line.
function fillLegend(element, at) {
  const { figure } = element;
  const entries = figure.lines.map((line) => {
    const index = at === null ? line.xs.length - 1 : line.xs.indexOf(at);
    const entry = html("li");
    const value = index < 0 ? "–" : told(line, index);
    entry.append(html("i", `key series-${line.colour} dash-${line.dash}`), line.name, html("b", "", value));
    return entry;
  });
  if (at !== null) entries.push(html("li", "muted", `at ${short(at)}`));
  element.querySelector(".legend").replaceChildren(...entries);
}

function fillTable(element) {
  const { figure } = element;
  const rows = new Map();
  figure.lines.forEach((line, column) => {
    line.xs.forEach((x, index) => {
      if (!rows.has(x)) rows.set(x, new Array(figure.lines.length).fill(undefined));
      rows.get(x)[column] = told(line, index);
    });
  });
  const table = html("table");
  const head = html("tr");
  head.append(...[figure.x_label, ...figure.lines.map((line) => line.name)].map((text) => html("th", "num", text)));
  const caption = html("caption", "hidden", `${figure.title}: ${figure.unit}`);
  const body = html("tbody");
  for (const x of [...rows.keys()].sort((a, b) => a - b)) {
    const row = html("tr");
    row.append(html("td", "num", short(x)), ...rows.get(x).map((value) => html("td", "num", value ?? "")));
    body.append(row);
  }
  const top = html("thead");
  top.append(head);
  table.append(caption, top, body);
  const box = element.querySelector("details .scroll");
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", `Numbers of ${figure.title}`);
  box.replaceChildren(table);
}

function described(figure) {
  const lines = figure.lines.map((line) => {
    const last = line.xs.length - 1;
    return `${line.name} from ${short(line.ys[0])} at ${short(line.xs[0])} to ${told(line, last)} at ${short(line.xs[last])}`;
  });
  return `${figure.title}, ${figure.unit} over ${figure.x_label}: ${lines.join("; ")}`;
}

function scale(values, range, from, to, isTight) {
  const finite = values.filter((value) => value !== null);
  let low = finite.length ? Math.min(...finite) : 0;
  let high = finite.length ? Math.max(...finite) : 1;
  if (range) [low, high] = [Math.min(range[0], low), Math.max(range[1], high)];
  if (low === high) [low, high] = low === 0 ? [0, 1] : [low - Math.abs(low) / 2, high + Math.abs(high) / 2];
  else if (!isTight && !range) {
    const room = (high - low) * 0.06;
    low = low >= 0 && low < room * 8 ? 0 : low - room;
    high += room;
  }
  const at = (value) => from + ((value - low) / (high - low)) * (to - from);
  return { low, high, at, from: (place) => low + ((place - from) / (to - from)) * (high - low) };
}

function ticks(low, high, count, isWhole = false) {
  const rough = (high - low) / Math.max(count, 1);
  const size = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].map((factor) => factor * size).find((one) => one >= rough * 0.999);
  if (isWhole) step = Math.max(step, 1);
  const found = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9 && found.length < 20; tick += step) {
    found.push(Math.abs(tick) < step * 1e-9 ? 0 : tick);
  }
  return found;
}

function nearest(values, wanted) {
  return values.reduce((best, value) => (Math.abs(value - wanted) < Math.abs(best - wanted) ? value : best), values[0]);
}

// As `format_number` in mas/observe/progress.py, with no digits that say nothing.
export function short(value) {
  if (value === undefined) return "";
  if (value === null) return "not finite";
  for (const [limit, unit, divisor] of [[1e9, "G", 1e9], [1e6, "M", 1e6], [1e4, "k", 1e3]]) {
    if (Math.abs(value) >= limit && Math.abs(value) < 1e12) return `${Number((value / divisor).toFixed(1))}${unit}`;
  }
  if (Number.isInteger(value) && Math.abs(value) < 1e4) return String(value);
  if (value && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e12)) return value.toExponential(1);
  return String(Number(value.toFixed(3)));
}

function html(tag, classes = "", text = "") {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  if (text) element.textContent = text;
  return element;
}

function node(tag, attributes, text = "") {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text) element.textContent = text;
  return element;
}
