// Steps through the messages of an episode, or the moves of a game: the current one is shown, and its edges are lit on
// the drawing, where there is one.
const player = document.querySelector(".player");
const messages = [...player.querySelectorAll(".message")];
const controls = player.querySelector(".controls");
const drawing = player.querySelector("svg.team");
const still = matchMedia("(prefers-reduced-motion: reduce)");
const MOVE_MS = 700, PAUSE_MS = 1900;
let at = 0, timer = null, moves = [];

function light(edges, agent) {
  for (const one of moves) one.stop();
  moves = [];
  if (!drawing) return;
  for (const lit of drawing.querySelectorAll(".lit, .speaks, .reached")) lit.classList.remove("lit", "speaks", "reached");
  for (const node of drawing.querySelectorAll(".node")) {
    if (agent && node.dataset.node === agent.split("[")[0]) node.classList.add("speaks");
  }
  for (const edge of drawing.querySelectorAll(".edge")) {
    if (!edge.dataset.edges.split(" ").some((number) => edges.includes(number))) continue;
    edge.classList.add("lit");
    edge.parentNode.querySelectorAll(".node").forEach((node) => {
      if (node.dataset.node === edge.dataset.target) node.classList.add("reached");
    });
    if (!still.matches) moves.push(travel(edge.querySelector(".line")));
  }
  const lit = drawing.querySelector(".lit .line, .speaks"), frame = drawing.parentNode;
  if (lit && frame.scrollWidth > frame.clientWidth) {
    const box = lit.getBBox();
    frame.scrollTo({ left: box.x + box.width / 2 - frame.clientWidth / 2, behavior: still.matches ? "auto" : "smooth" });
  }
}

// A dot that moves along an arrow once.
function travel(line) {
  const dot = drawing.querySelector(".courier").cloneNode();
  const length = line.getTotalLength(), began = performance.now();
  let frame = 0;
  dot.classList.add("moves");
  drawing.append(dot);
  const stop = () => { cancelAnimationFrame(frame); dot.remove(); };
  const step = (now) => {
    const part = Math.max(0, Math.min(1, (now - began) / MOVE_MS));
    const eased = part * part * (3 - 2 * part);
    const point = line.getPointAtLength(length * eased);
    dot.setAttribute("cx", point.x);
    dot.setAttribute("cy", point.y);
    if (part < 1) frame = requestAnimationFrame(step); else stop();
  };
  frame = requestAnimationFrame(step);
  return { stop };
}

function show(number) {
  at = Math.max(0, Math.min(messages.length - 1, number));
  const every = controls.querySelector("[data-all]").checked;
  messages.forEach((message, place) => {
    message.hidden = !every && place !== at;
    message.classList.toggle("current", place === at);
  });
  const { edges, agent } = messages[at].dataset;
  light(edges.split(" "), agent);
  const range = controls.querySelector("[type=range]");
  range.value = at;
  const who = messages[at].querySelector(".who").innerText.replace(/\s+/g, " ");
  range.setAttribute("aria-valuetext", `${at + 1} of ${messages.length}: ${who}`);
  player.querySelector(".where").textContent = `${at + 1} of ${messages.length}`;
  for (const [go, off] of [["first", at === 0], ["back", at === 0], ["next", at === messages.length - 1],
    ["last", at === messages.length - 1]]) {
    controls.querySelector(`[data-go=${go}]`).setAttribute("aria-disabled", off);
  }
  if (every) messages[at].scrollIntoView({ block: "nearest", behavior: still.matches ? "auto" : "smooth" });
}

function play(on) {
  clearInterval(timer);
  timer = on ? setInterval(() => (at < messages.length - 1 ? show(at + 1) : play(false)), PAUSE_MS) : null;
  const button = controls.querySelector("[data-go=play]");
  button.setAttribute("aria-pressed", on);
  button.textContent = on ? "Pause" : "Play";
  if (on && at === messages.length - 1) show(0);
}

const go = {
  first: () => show(0), back: () => show(at - 1), next: () => show(at + 1), last: () => show(messages.length - 1),
};

if (controls) {
  controls.hidden = false;
  controls.addEventListener("click", (event) => {
    const name = event.target.closest("[data-go]")?.dataset.go;
    if (name === "play") play(timer === null);
    else if (name) { play(false); go[name](); }
  });
  controls.querySelector("[type=range]").addEventListener("input", (event) => { play(false); show(+event.target.value); });
  controls.querySelector("[data-all]").addEventListener("change", () => show(at));
  player.querySelector(".messages").addEventListener("click", (event) => {
    const message = event.target.closest(".message");
    if (message && !event.target.closest("details") && getSelection().isCollapsed) { play(false); show(messages.indexOf(message)); }
  });
  const keys = { ArrowRight: "next", ArrowLeft: "back", Home: "first", End: "last" };
  document.addEventListener("keydown", (event) => {
    const own = event.target.closest("input, select, textarea, [contenteditable], .scroll");
    const sideways = own?.matches(".scroll") && own.scrollWidth <= own.clientWidth;
    if ((own && !sideways) || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey || !keys[event.key]) return;
    event.preventDefault();
    play(false);
    go[keys[event.key]]();
  });
  show(0);
}
