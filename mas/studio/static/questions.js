// Questions that wait for a person: asked for every few seconds; a card stays as it is while its question is open.
const list = document.getElementById("questions"), state = document.getElementById("state");
const PAUSE_MS = 2000;
const cards = new Map();

function part(kind, words, look) {
  const one = document.createElement(kind);
  one.textContent = words;
  if (look) one.className = look;
  return one;
}

function card(question) {
  const own = document.createElement("section"), form = document.createElement("form");
  const problem = part("p", "", "problem"), label = part("label", "your answer");
  own.className = "card question";
  own.append(part("h2", `${question.agent} of ${question.team}, turn ${question.turn}`, "first"));
  if (question.instructions) own.append(part("p", question.instructions, "muted"));
  own.append(part("pre", question.text));
  const field = document.createElement(question.choices?.length ? "input" : "textarea");
  field.id = `answer-${question.id}`;
  field.autocomplete = "off";
  label.htmlFor = field.id;
  problem.setAttribute("role", "alert");
  const button = part("button", "Answer", "main");
  const about = document.createElement("div");
  about.className = "field";
  about.append(label, field);
  if (question.choices?.length) {
    const choices = document.createElement("datalist");
    choices.id = `choices-${question.id}`;
    for (const choice of question.choices) choices.append(part("option", choice));
    field.setAttribute("list", choices.id);
    about.append(choices);
  }
  form.append(about, button);
  own.append(form, problem);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const reply = await fetch("/questions/answer", {
        method: "POST",
        headers: { "content-type": "application/json", "x-studio-token": list.dataset.token },
        body: JSON.stringify({ id: question.id, text: field.value }),
      });
      problem.textContent = reply.ok ? (await reply.json()).problem ?? "" : `status ${reply.status}: load this page again`;
      if (reply.ok && !problem.textContent) { own.remove(); cards.delete(question.id); count(); }
    } catch {
      problem.textContent = "The studio does not answer. Is it still running?";
    }
    button.disabled = false;
  });
  return own;
}

function count(words) {
  const text = words ?? (cards.size ? `${cards.size} open` : "No question is open.");
  if (state.textContent !== text) state.textContent = text;
}

async function look() {
  try {
    const { problem, questions } = await (await fetch("/questions/open")).json();
    const open = new Set(questions.map(({ id }) => id));
    for (const [id, own] of cards) if (!open.has(id) && !problem) { own.remove(); cards.delete(id); }
    for (const question of questions) {
      if (cards.has(question.id)) continue;
      cards.set(question.id, card(question));
      list.append(cards.get(question.id));
    }
    count(problem ?? undefined);
  } catch {
    count("The studio does not answer. Is it still running?");
  }
  setTimeout(look, PAUSE_MS);
}

look();
