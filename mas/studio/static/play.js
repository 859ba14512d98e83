// A game against a player: moves go to the server, and how the game stands then comes back as a part of the page.
const stage = document.getElementById("stage"), problem = document.getElementById("problem");
let isBusy = false, keepsFocus = false;

function send(path, token, body) {
  return fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json", "x-studio-token": token },
    body: JSON.stringify(body),
  });
}

const refusal = (reply) => (reply.status === 403 ? "Load this page again: the studio was started anew." : `It did not work: status ${reply.status}.`);
const LOST = "The studio does not answer. Is it still running?";

for (const form of document.querySelectorAll("[data-begin]")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button");
    button.disabled = true;
    try {
      const reply = await send("/play/begin", form.dataset.token, Object.fromEntries(new FormData(form)));
      const answer = reply.ok ? await reply.json() : { problem: refusal(reply) };
      if (answer.path) { location.href = answer.path; return; }
      problem.textContent = answer.problem;
    } catch {
      problem.textContent = LOST;
    }
    button.disabled = false;
  });
}

async function put(reply) {
  if (!reply.ok) return say(refusal(reply));
  const active = document.activeElement;
  keepsFocus = stage.contains(active) || (keepsFocus && active === document.body);
  stage.innerHTML = await reply.text(); // escaped by the server's templates; scripts in it would not run either
  if (part("over")) { location.reload(); return; }
  document.getElementById("now").textContent = stage.querySelector("h2").textContent;
  if (keepsFocus) stage.querySelector("[data-move], #write")?.focus();
  if (part("thinks")) follow();
}

const part = (name) => stage.querySelector(`[data-${name}]`);
const say = (words) => { stage.querySelector("[role=alert]").textContent = words; };

async function follow() {
  try {
    await put(await fetch(`/play/${stage.dataset.key}/stage?after=${part("version").dataset.version}`));
  } catch {
    say(LOST);
    setTimeout(follow, 3000);
  }
}

async function move(text) {
  if (isBusy) return;
  isBusy = true;
  try {
    const version = Number(part("version").dataset.version);
    await put(await send(`/play/${stage.dataset.key}/move`, stage.dataset.token, { text, version }));
  } catch {
    say(LOST);
  }
  isBusy = false;
}

if (stage) {
  stage.addEventListener("click", ({ target }) => { if ("move" in target.dataset) move(target.dataset.move); });
  stage.addEventListener("submit", (event) => {
    event.preventDefault();
    move(stage.querySelector("#write").value);
  });
  document.getElementById("give-up").addEventListener("click", async () => {
    await send(`/play/${stage.dataset.key}/end`, stage.dataset.token, {});
    if (!part("thinks")) follow(); // otherwise it is being followed
  });
  if (part("thinks")) follow();
}
