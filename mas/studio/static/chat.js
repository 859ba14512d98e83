// A conversation with a served model. Everything that comes is put in as text.
const form = document.getElementById("ask"), log = document.getElementById("log"), say = document.getElementById("say");
const model = document.getElementById("model"), state = document.getElementById("state");
const stop = document.getElementById("stop"), send = document.getElementById("send"), example = document.getElementById("example");
let messages = [], running = null;

function tell(words, look = "muted") {
  state.textContent = words;
  state.className = `state ${look}`;
}

function row(who, look) {
  const item = document.createElement("li"), name = document.createElement("b"), text = document.createElement("pre");
  item.className = `message ${look}`;
  name.textContent = who;
  item.append(name, text);
  log.append(item);
  return text;
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    rest += value ?? "";
    const whole = rest.split("\n");
    rest = whole.pop();
    for (const line of whole) if (line) yield JSON.parse(line);
    if (done) return;
  }
}

async function ask(content) {
  const own = running = new AbortController(), chosen = model.value, members = new Map();
  const isTeam = chosen.startsWith("team:");
  messages.push({ role: "user", content });
  row("you", "series-7").textContent = content;
  const sent = isTeam ? messages.slice(-1) : messages.slice();
  send.disabled = true;
  stop.disabled = false;
  tell("…");
  let out = null, answer = "", problem = null;
  try {
    const reply = await fetch("/chat/answer", {
      method: "POST",
      headers: { "content-type": "application/json", "x-studio-token": form.dataset.token },
      body: JSON.stringify({ model: chosen, messages: sent, temperature: document.getElementById("greedy").checked ? 0 : null }),
      signal: own.signal,
    });
    if (!reply.ok) throw new Error(reply.status === 403 ? "Load this page again: the studio was started anew." : `status ${reply.status}`);
    for await (const event of lines(reply.body)) {
      if (event.member) {
        const { agent, content: piece, restart } = event.member;
        if (!members.has(agent)) members.set(agent, row(`${agent}, within the team`, "world"));
        const text = members.get(agent);
        text.textContent = (restart ? "" : text.textContent) + (piece ?? "");
      }
      if (event.part) {
        out ??= row(chosen, "series-0");
        answer += event.part;
        out.textContent = answer;
      }
      if (event.problem) problem = event.problem;
      log.parentNode.scrollTop = log.parentNode.scrollHeight;
    }
  } catch (error) {
    problem = error.name === "AbortError" ? "Stopped." : error.message;
  }
  if (!answer && !problem) row(chosen, "series-0").textContent = isTeam ? "(the team passed)" : "(nothing)";
  if (answer) messages.push({ role: "assistant", content: answer });
  else messages.pop();
  tell(problem ?? "", problem ? "bad" : "muted");
  send.disabled = false;
  stop.disabled = true;
  log.parentNode.scrollTop = log.parentNode.scrollHeight;
}

function choose() {
  messages = [];
  log.replaceChildren();
  tell("");
  example.hidden = !model.selectedOptions[0]?.dataset.example;
}

if (form) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const content = say.value.trim();
    if (!content || send.disabled) return;
    say.value = "";
    ask(content);
  });
  say.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  stop.addEventListener("click", () => running?.abort());
  model.addEventListener("change", () => { running?.abort(); choose(); });
  document.getElementById("anew").addEventListener("click", () => { running?.abort(); choose(); });
  example.addEventListener("click", () => { say.value = model.selectedOptions[0].dataset.example; say.focus(); });
  choose();
}
