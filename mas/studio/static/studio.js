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
  let took = 0;
  for (;;) {
    // A page that takes long to make is asked for less often: the league or run it shows needs the processor, too.
    await wait(Math.max(4 * took, Math.min(...parts.map((part) => Number(part.dataset.live)))));
    await whileVisible();
    const begin = performance.now();
    try {
      const answer = await fetch(location.href);
      if (answer.ok) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        for (const part of parts) replace(part, fresh.getElementById(part.id));
      }
      took = performance.now() - begin;
      lost(false);
    } catch {
      lost(true);
    }
  }
}

// What names an element before and after it was replaced; a field that is filled in has no name.
function nameOf(element) {
  if (!element.matches("a, summary, [role=region]")) return null;
  return [element.tagName, element.getAttribute("href") ?? element.ariaLabel ?? element.textContent].join(" ");
}

// What is open, chosen, scrolled or has the focus stays so; where the focus would be lost, all stays as it is.
function replace(part, fresh) {
  if (!fresh || part.dataset.shown === fresh.innerHTML) return;
  const used = part !== document.activeElement && part.contains(document.activeElement) ? document.activeElement : null;
  const name = used && nameOf(used);
  const next = name && [...fresh.querySelectorAll("a, summary, [role=region]")].find((one) => nameOf(one) === name);
  if (used && !next) return;
  const chosen = new Set([...part.querySelectorAll("input:checked")].map((input) => input.id));
  const open = new Set([...part.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent));
  const regions = () => [...part.querySelectorAll("[role=region]")];
  const places = new Map(regions().map((region) => [region.ariaLabel, [region.scrollLeft, region.scrollTop]]));
  part.dataset.shown = fresh.innerHTML;
  part.replaceChildren(...fresh.childNodes);
  for (const input of part.querySelectorAll("input[type=checkbox]")) input.checked = chosen.has(input.id);
  for (const summary of part.querySelectorAll("summary")) summary.parentElement.open = open.has(summary.textContent);
  for (const region of regions()) [region.scrollLeft, region.scrollTop] = places.get(region.ariaLabel) ?? [0, 0];
  if (next) next.focus({ preventScroll: true });
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
