// The editor: the text is the team. A change of the form goes to the server with the text, and a new text comes back;
// whatever the text becomes is checked there. The server keeps nothing.
import { draggable } from "/static/team_drag.js";

const text = document.getElementById("text"), form = document.getElementById("form");
const numbers = document.getElementById("numbers"), drawing = document.getElementById("drawing");
const problems = document.getElementById("problems"), state = document.getElementById("state");
const undo = document.getElementById("undo");
const PAUSE_MS = 300, UNDOS = 100;
let name = "team", saved = text.value, typed = text.value, earlier = [], timer = null, wrong = new Set();

function say(words, look) {
  state.textContent = words;
  state.className = `state ${look}`;
}

// Each question begins with the text, so it waits for the answer to the one before; a check without a change is cut short.
let line = Promise.resolve(), running = null;
function ask(change, settle) {
  clearTimeout(timer);
  timer = null;
  if (running && !running.change) running.controller.abort();
  return line = line.then(() => send(change, settle));
}

async function send(change, settle) {
  const asked = text.value, controller = new AbortController();
  running = { change, controller };
  try {
    const answer = await fetch("/teams/check", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(change ? { text: asked, change } : { text: asked }),
      signal: controller.signal,
    });
    if (!answer.ok) return say(`The check did not work: status ${answer.status}`, "bad");
    const checked = await answer.json();
    if (controller.signal.aborted) return;
    if (change && text.value !== asked) return await send(change, settle);  // what was typed meanwhile gets the change, too
    settle?.();
    if (checked.refused !== null && change) { say(checked.refused, "bad"); refill(); return; }
    if (checked.text !== null) {
      keep(asked);
      const { selectionStart, selectionEnd } = text;
      text.value = typed = checked.text;
      text.setSelectionRange(selectionStart, selectionEnd);
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

// What was written in a field, by field, until the text has it.
const edits = new Map();
const FIELDS = "input, select, textarea, button, summary";

// The form anew, with the open roles as they were; a role with another name stays open while somebody writes in it.
function replace(html) {
  const open = new Set([...form.querySelectorAll("details[open]")].map((role) => role.dataset.role));
  const writing = document.activeElement?.closest("input, select, textarea")?.closest("details[open]");
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  renewChildren(form, fresh.content);
  for (const role of form.querySelectorAll("details")) role.open = open.has(role.dataset.role) || role === writing;
  for (const field of edits.keys()) if (!field.isConnected) edits.delete(field);
}

// A part becomes what it is in the new form and stays the same element, so that its focus, its caret and the keys that
// are pressed meanwhile stay, too. What is half written stays as it is.
function renew(part, fresh) {
  const half = edits.has(part) || part.closest("[data-form]") ? { value: part.value, checked: part.checked } : {};
  for (const { name } of [...part.attributes]) if (!fresh.hasAttribute(name) && name !== "open") part.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (part.getAttribute(name) !== value) part.setAttribute(name, value);
  if (fresh.querySelector(FIELDS)) renewChildren(part, fresh);
  else if (part.innerHTML !== fresh.innerHTML) part.innerHTML = fresh.innerHTML;
  if (!part.matches("input, select, textarea")) return;
  const value = half.value ?? fresh.value;
  if (part.value !== value) part.value = value;
  if (part.selectedIndex === -1) part.value = fresh.value;
  if (part.type === "checkbox") part.checked = half.checked ?? fresh.checked;
}

function renewChildren(part, fresh) {
  let at = part.firstElementChild;
  for (const next of [...fresh.children]) {
    let same = at;
    while (same && nameOf(same) !== nameOf(next)) same = same.nextElementSibling;
    if (!same) { part.insertBefore(next, at); continue; }
    while (at !== same) { const gone = at; at = at.nextElementSibling; gone.remove(); }
    renew(same, next);
    at = same.nextElementSibling;
  }
  while (at) { const gone = at; at = at.nextElementSibling; gone.remove(); }
}

// What a part of the form is found by in the next one.
function nameOf(part) {
  return `${part.tagName} ${part.id || part.querySelector("[id]")?.id}`;
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

form.addEventListener("input", ({ target }) => edits.set(target, { isSent: false }));

form.addEventListener("change", async ({ target }) => {
  const edit = edits.get(target);
  if (!target.dataset.change || !edit || edit.isSent) return;  // Enter, and then the browser's own
  edit.isSent = true;
  const change = { ...JSON.parse(target.dataset.change), [target.dataset.as ?? "value"]: target.value };
  await ask(change, () => { if (edits.get(target) === edit) edits.delete(target); });
  edit.isSent = false;
});

form.addEventListener("click", async ({ target }) => {
  if ("add" in target.dataset) add(target.closest("[data-form]"));
  if (!target.dataset.do) return;
  const { then } = target.dataset;
  await ask(JSON.parse(target.dataset.do));
  const active = document.activeElement;
  if (then && (active === target || !form.contains(active))) document.getElementById(then)?.focus();
});

form.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.target.tagName !== "INPUT") return;
  event.preventDefault();
  const adding = event.target.closest("[data-form]");
  if (adding) add(adding); else event.target.dispatchEvent(new Event("change", { bubbles: true }));
});

async function add(adding) {
  const what = { do: adding.dataset.form };
  const fields = [...adding.querySelectorAll("[data-key]")];
  for (const one of fields) what[one.dataset.key] = one.type === "checkbox" ? one.checked : one.value.trim();
  const before = fields.map((one) => edits.get(one));
  const count = () => form.querySelectorAll(".role, [data-edge]").length;
  let had = 0;
  await ask(what, () => { had = count(); });
  if (!had || count() === had) return;
  fields.forEach((one, at) => { if (edits.get(one) === before[at]) clear(one); });
}

function clear(field) {
  edits.delete(field);
  if (field.tagName === "SELECT") field.selectedIndex = 0;
  else if (field.type === "checkbox") field.checked = false;
  else field.value = "";
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
    if (!isBack || !loop) return ask({ do: "add_edge", source, target });
    document.getElementById("new-source").value = source;
    document.getElementById("new-target").value = target;
    loop.focus();
    say("This edge leads back: say how often at most, and press Enter", "muted");
  },
  onMove(count) { back.disabled = !count; },
});
back.addEventListener("click", () => picture.putBack());
picture.redraw("");

text.addEventListener("input", () => {
  if (timer === null) keep(typed);
  typed = text.value;
  number();
  clearTimeout(timer);
  timer = setTimeout(() => ask(), PAUSE_MS);
});
text.addEventListener("scroll", () => { numbers.scrollTop = text.scrollTop; });

undo.addEventListener("click", () => {
  const before = earlier.pop();
  undo.disabled = !earlier.length;
  if (before === undefined) return;
  running?.controller.abort();
  edits.clear();
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
