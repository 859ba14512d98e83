// Own JavaScript of every page. `data-figures="URL"`: figures are drawn from that JSON, and again when it changes.
// `data-live="MS"`: the element is fetched again so often and put in its place. Texts only go in as text.
import { drawFigures } from "/static/figures.js";

const wait = (ms) => new Promise((done) => setTimeout(done, ms));

async function whileVisible() {
  if (!document.hidden) return;
  await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
}

async function followFigures(place) {
  const address = new URL(place.dataset.figures, location.href);
  for (;;) {
    try {
      const answer = await fetch(address);
      if (answer.status === 200) {
        const drawn = await answer.json();
        address.searchParams.set("version", drawn.version);
        drawFigures(place, drawn.sections);
      }
      lost(false);
    } catch {
      lost(true);
    }
    await wait(Number(place.dataset.period));
    await whileVisible();
  }
}

async function followParts(parts) {
  for (;;) {
    await wait(Math.min(...parts.map((part) => Number(part.dataset.live))));
    await whileVisible();
    try {
      const answer = await fetch(location.href);
      if (answer.ok) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        for (const part of parts) replace(part, fresh.getElementById(part.id));
      }
      lost(false);
    } catch {
      lost(true);
    }
  }
}

// What somebody uses right now stays as it is: the focus would be lost.
function replace(part, fresh) {
  if (!fresh || part.contains(document.activeElement) || part.dataset.shown === fresh.innerHTML) return;
  const chosen = new Set([...part.querySelectorAll("input:checked")].map((input) => input.id));
  part.dataset.shown = fresh.innerHTML;
  part.replaceChildren(...fresh.childNodes);
  for (const input of part.querySelectorAll("input[type=checkbox]")) input.checked = chosen.has(input.id);
  grow(part);
  for (const input of document.querySelectorAll("[data-filter]")) filter(input);
}

function lost(isLost) {
  const note = document.getElementById("lost");
  if (note && note.hidden === isLost) note.hidden = !isLost;
}

function grow(part) {
  for (const bar of part.querySelectorAll("[data-grow]")) bar.style.flexGrow = bar.dataset.grow;
}

function filter(input) {
  const words = input.value.toLowerCase().split(/\s+/);
  for (const row of document.querySelectorAll(input.dataset.filter)) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
}

for (const input of document.querySelectorAll("[data-filter]")) input.addEventListener("input", () => filter(input));
for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.querySelector(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });
}
grow(document);
for (const place of document.querySelectorAll("[data-figures]")) followFigures(place);
const parts = [...document.querySelectorAll("[data-live]")];
for (const part of parts) part.dataset.shown = part.innerHTML;
if (parts.length) followParts(parts);
