// The editor: the text is the team. A change of the form goes to the server with the text, and a new text comes back;
// whatever the text becomes is checked there. The server keeps nothing.
import { draggable } from "/static/team_drag.js";

const text = document.getElementById("text"), form = document.getElementById("form");
const numbers = document.getElementById("numbers"), drawing = document.getElementById("drawing");
const problems = document.getElementById("problems"), state = document.getElementById("state");
const undo = document.getElementById("undo");
const PAUSE_MS = 300, UNDOS = 100;
let name = "team", saved = text.value, earlier = [], timer = null, running = null, wrong = new Set();

function say(words, look) {
  state.textContent = words;
  state.className = `state ${look}`;
}

async function ask(change) {
  clearTimeout(timer);
  running?.abort();
  const own = running = new AbortController();
  const asked = text.value;
  try {
    const answer = await fetch("/teams/check", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(change ? { text: asked, change } : { text: asked }),
      signal: own.signal,
    });
    if (!answer.ok) return say(`The check did not work: status ${answer.status}`, "bad");
    const checked = await answer.json();
    if (own !== running) return;
    if (checked.refused !== null && change) { say(checked.refused, "bad"); refill(); return; }
    if (checked.text !== null) {
      keep(asked);
      text.value = checked.text;
    }
    show(checked);
  } catch (error) {
    if (error.name !== "AbortError") say("The studio does not answer. Is it still running?", "bad");
  }
}

// What a field shows again after its change was refused.
let lastForm = form.innerHTML;
function refill() {
  replace(lastForm);
}

function keep(before) {
  earlier = [...earlier.slice(-UNDOS), before];
  undo.disabled = false;
}

function show({ problems: found, svg, form: html, name: called }) {
  name = called || "team";
  if (svg) picture.redraw(svg);
  form.disabled = !html;
  if (html) replace(lastForm = html);
  document.getElementById("form-note").textContent = html
    ? "A change here writes the text anew; comments in it are not kept."
    : "The form comes back when the text can be read.";
  wrong = new Set(found.map(({ line }) => line));
  problems.replaceChildren(...found.map(row));
  number();
  const places = found.map(({ place }) => place);
  for (const node of drawing.querySelectorAll(".node")) {
    const own = node.dataset.node;
    node.classList.toggle("wrong", places.some((place) => place === `roles.${own}` || place.startsWith(`roles.${own}.`)));
  }
  for (const role of form.querySelectorAll(".role")) {
    const own = `roles.${role.dataset.role}`;
    role.classList.toggle("wrong", places.some((place) => place === own || place.startsWith(`${own}.`)));
  }
  for (const edge of form.querySelectorAll("[data-edge]")) {
    edge.classList.toggle("wrong", places.some((place) => place === edge.value || place === `edges.${edge.id.slice(5)}`));
  }
  const count = found.length;
  say(count ? `${count} ${count === 1 ? "problem" : "problems"}` : "No problems", count ? "bad" : "good");
}

function row({ text: words, line }) {
  const item = document.createElement("li");
  if (line !== null) {
    const go = document.createElement("button");
    go.type = "button";
    go.textContent = `line ${line}`;
    go.addEventListener("click", () => select(line));
    item.append(go);
  }
  const said = document.createElement("span");
  said.textContent = words;
  item.append(said);
  return item;
}

// The form anew, with the focus, the open roles and what is half written as they were.
function replace(html) {
  const active = document.activeElement, focus = active?.id, isInside = form.contains(active);
  const open = new Set([...form.querySelectorAll("details[open]")].map((role) => role.dataset.role));
  const half = new Map([...form.querySelectorAll("[data-form] input:not([type=checkbox])")].map((one) => [one.id, one.value]));
  if (isInside && active.type === "text" && ![active.defaultValue, active.dataset.sent].includes(active.value)) half.set(focus, active.value);
  form.innerHTML = html;
  for (const role of form.querySelectorAll("details")) role.open = open.has(role.dataset.role);
  for (const [id, value] of half) { const one = document.getElementById(id); if (one) one.value = value; }
  if (isInside && focus) document.getElementById(focus)?.focus({ preventScroll: true });
}

function number() {
  const count = text.value.split("\n").length;
  numbers.replaceChildren(...Array.from({ length: count }, (_, at) => {
    const one = document.createElement("div");
    one.textContent = at + 1;
    if (wrong.has(at + 1)) one.className = "wrong";
    return one;
  }));
  numbers.scrollTop = text.scrollTop;
}

function select(line) {
  const lines = text.value.split("\n");
  const from = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
  text.focus();
  text.setSelectionRange(from, from + (lines[line - 1] ?? "").length);
  text.scrollTop = Math.max(0, (line - 6) * parseFloat(getComputedStyle(text).lineHeight));
}

// The next change comes after the answer to this one, as both begin with the text.
let line = Promise.resolve();
function change(what, then) {
  line = line.then(() => ask(what)).then(() => {
    if (then && !form.contains(document.activeElement)) document.getElementById(then)?.focus();
  });
}

form.addEventListener("change", ({ target }) => {
  if (!target.dataset.change || target.dataset.sent === target.value) return;  // Enter, and then the browser's own
  target.dataset.sent = target.value;
  change({ ...JSON.parse(target.dataset.change), [target.dataset.as ?? "value"]: target.value });
});

form.addEventListener("click", ({ target }) => {
  if (target.dataset.do) change(JSON.parse(target.dataset.do), target.dataset.then);
  if ("add" in target.dataset) add(target.closest("[data-form]"));
});

form.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.target.tagName !== "INPUT") return;
  event.preventDefault();
  const adding = event.target.closest("[data-form]");
  if (adding) add(adding); else event.target.dispatchEvent(new Event("change", { bubbles: true }));
});

function add(adding) {
  const what = { do: adding.dataset.form };
  for (const one of adding.querySelectorAll("[data-key]")) {
    what[one.dataset.key] = one.type === "checkbox" ? one.checked : one.value.trim();
  }
  const count = form.querySelectorAll(".role, [data-edge]").length;
  line = line.then(() => ask(what)).then(() => {
    if (form.querySelectorAll(".role, [data-edge]").length === count) return;
    for (const id of ["new-role", "new-when", "new-loop"]) {
      const one = document.getElementById(id);
      if (one && adding.querySelector(`#${id}`)) one.value = "";
    }
  });
}

const back = document.getElementById("put-back");
const picture = draggable(drawing, {
  onOpen(agent) {
    const role = [...form.querySelectorAll("details")].find((one) => one.dataset.role === agent);
    if (!role) return;
    role.open = true;
    role.querySelector("summary").focus();
    role.scrollIntoView({ block: "center" });
  },
  onEdge(source, target, isBack) {
    const loop = document.getElementById("new-loop");
    if (!isBack || !loop) return change({ do: "add_edge", source, target });
    document.getElementById("new-source").value = source;
    document.getElementById("new-target").value = target;
    loop.focus();
    say("This edge leads back: say how often at most, and press Enter", "muted");
  },
  onMove(count) { back.disabled = !count; },
});
back.addEventListener("click", () => picture.putBack());
picture.redraw("");

let typed = text.value;
text.addEventListener("input", () => {
  if (timer === null) keep(typed);
  typed = text.value;
  number();
  clearTimeout(timer);
  timer = setTimeout(() => { timer = null; ask(); }, PAUSE_MS);
});
text.addEventListener("scroll", () => { numbers.scrollTop = text.scrollTop; });

undo.addEventListener("click", () => {
  const before = earlier.pop();
  undo.disabled = !earlier.length;
  if (before === undefined) return;
  text.value = typed = before;
  ask();
});

document.getElementById("download").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text.value], { type: "application/yaml" }));
  link.download = `${name.replace(/[^\w-]+/g, "_").slice(0, 60) || "team"}.yaml`;
  link.click();
  URL.revokeObjectURL(link.href);
  saved = text.value;
});

addEventListener("beforeunload", (event) => { if (text.value !== saved) event.preventDefault(); });

number();
ask();
