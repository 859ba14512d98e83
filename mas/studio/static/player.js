// The episode player: steps without a reload, the number of a token on focus, and word of new episodes.
const stage = document.getElementById("stage");
const readout = document.getElementById("readout");
let wanted = 0;
let place = null; // the step that was asked for last, while its answer is awaited

function target(key) {
  const field = document.getElementById("goto");
  if (!field) return null;
  const [here, last] = [place ?? Number(field.defaultValue), Number(field.max)];
  const to = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 1, End: last }[key];
  return to === undefined ? null : Math.min(Math.max(to, 1), last);
}

async function show(url, push) {
  const number = ++wanted;
  const focused = document.activeElement?.id;
  const part = new URL(url, location.href);
  place = Number(part.searchParams.get("at")) || 1;
  part.searchParams.set("part", "1");
  let answer;
  try {
    answer = await fetch(part);
  } catch {
    location.href = url; // the browser says why nothing comes
    return;
  }
  if (number !== wanted) return;
  if (!answer.ok) {
    location.href = url;
    return;
  }
  const text = await answer.text();
  if (number !== wanted) return;
  place = null;
  readout.hidden = true;
  stage.innerHTML = text; // escaped by the server's templates; scripts in it would not run either
  document.getElementById("now").textContent = document.getElementById("said")?.textContent.replace(/\s+/g, " ") ?? "";
  reveal();
  if (push) history.pushState(null, "", url);
  if (focused) {
    const again = document.getElementById(focused);
    (again && again.getAttribute("aria-disabled") !== "true" ? again : document.getElementById("goto"))?.focus({ preventScroll: true });
  }
}

function reveal() {
  const here = stage.querySelector(".strip [aria-current]");
  if (here) here.parentElement.scrollLeft = here.offsetLeft - (here.parentElement.clientWidth - here.offsetWidth) / 2;
}

function moveToken(token, key) {
  const tokens = [...token.parentElement.children];
  const at = tokens.indexOf(token);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tokens.length - 1 }[key];
  if (to === undefined) return false;
  const next = tokens[Math.min(Math.max(to, 0), tokens.length - 1)];
  token.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
  return true;
}

function read(event) {
  const token = event.target.closest?.("[data-tokens] > span");
  if (!token) return;
  token.parentElement.querySelector("[aria-selected=true]")?.setAttribute("aria-selected", "false");
  token.setAttribute("aria-selected", "true");
  token.removeAttribute("title"); // the box below says the same at once
  readout.textContent = token.getAttribute("aria-label");
  readout.hidden = false;
  const [at, size] = [token.getBoundingClientRect(), readout.getBoundingClientRect()];
  const above = at.top - size.height - 6;
  readout.style.top = `${above > 0 ? above : at.bottom + 6}px`;
  readout.style.left = `${Math.max(6, Math.min(at.left, innerWidth - size.width - 6))}px`;
}

function unread(event) {
  if (event.type !== "keydown" || event.key === "Escape") readout.hidden = true;
}

if (stage) {
  reveal();
  stage.addEventListener("click", (event) => {
    const link = event.target.closest("a[href]");
    const plain = !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey && event.button === 0;
    if (!link || !plain || new URL(link.href).pathname !== location.pathname) return;
    event.preventDefault();
    const to = link.dataset.key && target(link.dataset.key); // a fast second click means the step after the next
    show(to ? `${location.pathname}?at=${to}` : link.href, true);
  });
  stage.addEventListener("change", (event) => {
    if (event.target.id === "goto" && event.target.checkValidity()) show(`${location.pathname}?at=${event.target.value}`, true);
  });
  stage.addEventListener("submit", (event) => {
    event.preventDefault();
    const field = event.target.querySelector("input");
    if (field.reportValidity()) show(`${location.pathname}?at=${field.value}`, true);
  });
  stage.addEventListener("focusin", read);
  stage.addEventListener("pointerover", read);
  for (const name of ["focusout", "pointerout"]) stage.addEventListener(name, unread);
  document.addEventListener("scroll", unread, { capture: true, passive: true });
  document.addEventListener("keydown", unread);
  window.addEventListener("popstate", () => show(location.href, false));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const at = event.target;
    if (at.matches?.("input, select, textarea")) return;
    if (at.matches?.("[data-tokens] > span")) {
      if (moveToken(at, event.key)) event.preventDefault();
      return;
    }
    if (at.matches?.("pre") && at.scrollWidth > at.clientWidth) return; // arrow keys scroll it
    const to = target(event.key);
    if (to === null) return;
    event.preventDefault();
    if (to !== (place ?? Number(document.getElementById("goto").defaultValue))) show(`${location.pathname}?at=${to}`, true);
  });
}

const more = document.querySelector("[data-more]");
if (more) {
  setInterval(async () => {
    if (document.hidden) return;
    try {
      const { count } = await (await fetch(more.dataset.more)).json();
      const fresh = count - Number(more.dataset.count);
      if (!fresh || more.dataset.said === String(count)) return;
      more.dataset.said = String(count);
      const link = document.createElement("a");
      link.href = location.href;
      link.textContent = fresh > 0 ? `show ${fresh} new` : "the list has changed: show it";
      more.replaceChildren("· ", link);
    } catch {
      // the studio was ended, or is busy: asked again later
    }
  }, 3000);
}
