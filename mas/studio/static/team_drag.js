// Boxes of a team's drawing are moved with the pointer and with the arrow keys, and a new edge is drawn from the handle of
// one box to another. Places are kept by this page alone: the text of a team has none.
const SVG = "http://www.w3.org/2000/svg";
const STEP = 12, FAR = 4, MARGIN = 22, LANE = 34;
const moved = new Map(); // name of a box -> how far it is from where it was drawn

// `onOpen(name)`: a box was chosen. `onEdge(source, target, isBack)`: an edge was drawn. `onMove(count)`: so many are moved.
export function draggable(drawing, { onOpen, onEdge, onMove }) {
  let svg = null, size = [0, 0], boxes = new Map(), drag = null, wasDragged = false;

  function redraw(html) {
    const focused = document.activeElement?.closest?.("#drawing .node")?.dataset.node;
    if (html) drawing.innerHTML = html;
    svg = drawing.querySelector("svg.team");
    boxes = new Map();
    if (!svg) return;
    svg.setAttribute("role", "group"); // a picture would hide its boxes from screen readers
    size = [svg.viewBox.baseVal.width, svg.viewBox.baseVal.height];
    for (const node of svg.querySelectorAll(".node")) prepare(node);
    for (const edge of svg.querySelectorAll(".edge")) edge.home = edge.innerHTML;
    for (const name of [...moved.keys()]) if (!boxes.has(name)) moved.delete(name);
    settle();
    if (focused) boxes.get(focused)?.node.focus({ preventScroll: true });
  }

  function prepare(node) {
    const name = node.dataset.node, rect = node.querySelector(".box");
    const [x, y, width, height] = ["x", "y", "width", "height"].map((key) => Number(rect.getAttribute(key)));
    boxes.set(name, { node, x: x + width / 2, y: y + height / 2, width, height });
    node.tabIndex = 0;
    node.setAttribute("role", "button");
    node.setAttribute("aria-label", node.querySelector("title").textContent.replace(/\n/g, ", "));
    node.setAttribute("aria-describedby", "drag-hint");
    if (!node.matches(".agent") && name !== "start") return;
    const handle = make("circle", { class: "handle", cx: x + width, cy: y + height / 2, r: 7 });
    handle.append(make("title", {}));
    handle.firstChild.textContent = "Drag to another box: a new edge";
    node.append(handle);
  }

  function place(name) {
    const box = boxes.get(name), [dx, dy] = moved.get(name) ?? [0, 0];
    return { ...box, x: box.x + dx, y: box.y + dy };
  }

  function paint(names) {
    for (const name of names) boxes.get(name).node.setAttribute("transform", `translate(${(moved.get(name) ?? [0, 0]).join(" ")})`);
    for (const edge of svg.querySelectorAll(".edge")) {
      const { source, target } = edge.dataset;
      if (![source, target].some((end) => names.includes(end)) || !boxes.has(source) || !boxes.has(target)) continue;
      edge.innerHTML = edge.home;
      edge.floor = 0;
      if (moved.has(source) || moved.has(target)) reroute(edge, place(source), place(target));
    }
  }

  // All as it is to be, and the picture as large as it has to be.
  function settle() {
    paint([...boxes.keys()]);
    let [left, top, right, bottom] = [0, 0, ...size];
    for (const name of moved.keys()) {
      const { x, y, width, height } = place(name);
      [left, top] = [Math.min(left, x - width / 2 - MARGIN), Math.min(top, y - height / 2 - MARGIN)];
      [right, bottom] = [Math.max(right, x + width / 2 + MARGIN), Math.max(bottom, y + height / 2 + MARGIN)];
    }
    for (const loop of svg.querySelectorAll(".edge.loop")) bottom = Math.max(bottom, (loop.floor ?? 0) + MARGIN);
    svg.setAttribute("viewBox", `${left} ${top} ${right - left} ${bottom - top}`);
    svg.setAttribute("width", right - left);
    svg.setAttribute("height", bottom - top);
    onMove(moved.size);
  }

  function shift(name, dx, dy) {
    if (Math.round(dx) || Math.round(dy)) moved.set(name, [Math.round(dx), Math.round(dy)]);
    else moved.delete(name);
  }

  const point = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  const under = (event) => document.elementFromPoint(event.clientX, event.clientY)?.closest("#drawing .node");

  function begin(event) {
    const node = event.target.closest(".node");
    wasDragged = false;
    if (!node || event.button !== 0) return;
    const name = node.dataset.node, from = point(event), [dx, dy] = moved.get(name) ?? [0, 0];
    drag = { name, from, dx, dy, screen: [event.clientX, event.clientY], line: null };
    if (event.target.closest(".handle")) svg.append((drag.line = make("path", { class: "line drawn" })));
    addEventListener("pointermove", go);
    addEventListener("pointerup", drop);
    addEventListener("pointercancel", drop);
  }

  function go(event) {
    if (Math.hypot(event.clientX - drag.screen[0], event.clientY - drag.screen[1]) > FAR) wasDragged = true;
    if (!wasDragged) return;
    const at = point(event);
    if (drag.line) {
      const { x, y, width } = place(drag.name);
      drag.line.setAttribute("d", `M${x + width / 2} ${y} L${at.x} ${at.y}`);
      const over = under(event);
      for (const { node } of boxes.values()) node.classList.toggle("reached", node === over && node.dataset.node !== "start");
      return;
    }
    const { x, y, width, height } = svg.viewBox.baseVal, box = boxes.get(drag.name);
    const inside = (value, low, size) => Math.min(Math.max(value, low), low + size);
    shift(drag.name, inside(box.x + drag.dx + at.x - drag.from.x, x, width) - box.x, inside(box.y + drag.dy + at.y - drag.from.y, y, height) - box.y);
    paint([drag.name]);
  }

  function drop(event) {
    removeEventListener("pointermove", go);
    removeEventListener("pointerup", drop);
    removeEventListener("pointercancel", drop);
    const { name, line } = drag, over = event.type === "pointerup" ? under(event)?.dataset.node : undefined;
    drag = null;
    line?.remove();
    for (const { node } of boxes.values()) node.classList.remove("reached");
    if (!wasDragged) return;
    setTimeout(() => { wasDragged = false; }); // after the click that follows
    if (!line) settle();
    else if (over && over !== "start") onEdge(name, over, leadsTo(over, name));
  }

  // Whether edges that are no loops lead from one box to another.
  function leadsTo(from, to) {
    const seen = new Set([from]);
    for (const name of seen) {
      for (const edge of svg.querySelectorAll(".edge:not(.loop)")) if (edge.dataset.source === name) seen.add(edge.dataset.target);
    }
    return seen.has(to);
  }

  drawing.addEventListener("pointerdown", begin);
  drawing.addEventListener("click", (event) => {
    const name = event.target.closest(".node")?.dataset.node;
    if (name && !wasDragged) onOpen(name);
  });
  drawing.addEventListener("keydown", (event) => {
    const name = event.target.closest(".node")?.dataset.node;
    if (!name || event.ctrlKey || event.altKey || event.metaKey) return;
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const [dx, dy] = moved.get(name) ?? [0, 0], step = event.shiftKey ? 5 * STEP : STEP;
    if (way) shift(name, dx + step * way[0], dy + step * way[1]);
    else if (event.key === "Escape") moved.delete(name);
    else if (event.key === "Enter" || event.key === " ") onOpen(name);
    else return;
    event.preventDefault();
    settle();
  });

  return { redraw, putBack: () => { moved.clear(); settle(); } };
}

function make(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

// An edge between boxes that were moved, with its label; as in mas/studio/team_svg.py where they stand side by side.
function reroute(edge, from, to) {
  const [path, x, y] = edge.matches(".loop") ? loop(edge, from, to) : curve(from, to);
  edge.querySelector(".line").setAttribute("d", path);
  const paper = edge.querySelector(".paper"), label = edge.querySelector(".label");
  if (!label) return;
  paper.setAttribute("x", x - Number(paper.getAttribute("width")) / 2);
  paper.setAttribute("y", y - 9);
  label.setAttribute("x", x);
  label.setAttribute("y", y + 4);
}

function curve(from, to) {
  const across = Math.abs(to.x - from.x) - (from.width + to.width) / 2, down = Math.abs(to.y - from.y) - (from.height + to.height) / 2;
  let [x, y, toX, toY] = [from.x, from.y, to.x, to.y], bend;
  if (across >= down) {
    const way = to.x >= from.x ? 1 : -1;
    [x, toX] = [x + (way * from.width) / 2, toX - way * (to.width / 2 + 2)];
    bend = `${(x + toX) / 2} ${y} ${(x + toX) / 2} ${toY}`;
  } else {
    const way = to.y >= from.y ? 1 : -1;
    [y, toY] = [y + (way * from.height) / 2, toY - way * (to.height / 2 + 2)];
    bend = `${x} ${(y + toY) / 2} ${toX} ${(y + toY) / 2}`;
  }
  return [`M${x} ${y} C${bend} ${toX} ${toY}`, x + 0.59 * (toX - x), y + 0.59 * (toY - y)];
}

function loop(edge, from, to) {
  const label = edge.querySelector(".label"), [low, toLow] = [from.y + from.height / 2, to.y + to.height / 2 + 3];
  const floor = Math.max(label ? Number(label.getAttribute("y")) - 4 : 0, low + LANE, toLow + LANE);
  const side = from.node === to.node ? -from.width / 5 : from.width / 5;
  const [x, toX] = [from.x - side, to.x + side], turn = toX > x ? 12 : -12;
  edge.floor = floor;
  const path = `M${x} ${low} L${x} ${floor - 12} Q${x} ${floor} ${x + turn} ${floor} L${toX - turn} ${floor} Q${toX} ${floor} ${toX} ${floor - 12} L${toX} ${toLow}`;
  return [path, (x + toX) / 2, floor];
}
