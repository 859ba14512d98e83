"""The editor that is a language model: the run's own base, or a peer. What it answers is read, never evaluated.

Source: Training-Free GRPO, arXiv 2510.08191: every rollout is summarised, the group's semantic advantage is stated as
one or two experiences, these become operations on the library, and a pass over the batch consolidates them. Questions
in our own words; a batch of one group needs no consolidation. `ask_` functions write the questions; each answer goes
into the next one. `read_` functions read answers as JSON.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mas.algorithms.parts.experience.editor import ExperienceOptions, LessonGroup, LessonRollout, Proposal, Said
from mas.algorithms.parts.experience.library import Library, Operation, Refusal, one_line
from mas.core.concurrency import together
from mas.core.engine import Request, Sampling
from mas.core.errors import RefusedRequest
from mas.core.records import NO_COST, Cost, cost_of_call
from mas.core.seeds import derive_seed
from mas.runtime.agents import ModelEndpoint

COACH = (
    "You coach one member of a team of language-model agents. It never changes by itself: all it can learn is a short "
    "list of written experiences that stands in its instructions. You study its attempts and keep that list."
)
_FORM = (
    'Answer with a JSON list and nothing else. Its entries are {"operation": "ADD", "content": TEXT} for something '
    'new, {"operation": "UPDATE", "id": "G0", "content": TEXT} to put a better text in the place of G0, and '
    '{"operation": "DELETE", "id": "G0"} for an experience that is wrong or useless. [] changes nothing.'
)
MOST_CHARACTERS = 32_768
"""Of an answer; a longer one is not read at all."""
MOST_ENTRIES = 64
"""Of a list in an answer; further ones are refused."""
_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_KEYS = frozenset({"operation", "id", "content"})


@dataclass(slots=True)
class _Spent:
    """What one proposal has cost so far, and what of its answers could not be read."""

    cost: Cost = NO_COST
    refused: list[Refusal] = field(default_factory=list)

    def proposal(self, operations: Sequence[Operation] = ()) -> Proposal:
        """The operations with all that they cost."""
        return Proposal(tuple(operations), tuple(self.refused), self.cost)

    def proposal_of(self, answer: str) -> Proposal:
        """The operations that an answer holds."""
        operations, refused = read_operations(answer)
        self.refused += refused
        return self.proposal(operations)


class LanguageEditor:
    """Satisfies `mas.algorithms.parts.experience.editor.Editor`. A question that is too long is a recorded refusal."""

    def __init__(self, endpoint: ModelEndpoint, options: ExperienceOptions) -> None:
        self._endpoint, self._options = endpoint, options
        self._sampling = Sampling(
            temperature=options.temperature, max_tokens=options.max_tokens, stop=endpoint.engine.stop_ids
        )

    async def propose(self, group: LessonGroup, library: Library, *, seed: int) -> Proposal:
        """Summaries, then experiences, then operations: one question per rollout and two more."""
        spent, options = _Spent(), self._options
        try:
            asked = [
                self._ask(ask_summary(group, rollout), derive_seed("summary", seed, number), spent)
                for number, rollout in enumerate(group.rollouts)
            ]
            summaries = await together(asked, "summary")
            question = ask_experiences(group, summaries, library, options.per_group, options.characters)
            answer = await self._ask(question, derive_seed("experiences", seed), spent)
            texts, refused = read_experiences(answer, options.per_group)
            spent.refused += refused
            if not texts:
                return spent.proposal()
            question = ask_operations(group.role, texts, library, options.characters)
            answer = await self._ask(question, derive_seed("operations", seed), spent)
        except RefusedRequest as error:
            spent.refused.append(Refusal(f"the group of task {group.task}", f"its editor cannot be asked: {error}"))
            return spent.proposal()
        return spent.proposal_of(answer)

    async def consolidate(self, role: str, library: Library, proposals: Sequence[Proposal], *, seed: int) -> Proposal:
        """The operations of one group as they are, those of several by one more question."""
        spent, options = _Spent(), self._options
        wanted = [proposal.operations for proposal in proposals if proposal.operations]
        if len(wanted) < 2:
            return spent.proposal([one for operations in wanted for one in operations])
        question = ask_consolidation(role, library, wanted, options.most, options.characters)
        try:
            answer = await self._ask(question, derive_seed("consolidation", seed), spent)
        except RefusedRequest as error:
            spent.refused.append(Refusal(f"operations of {len(wanted)} groups", f"no editor can be asked: {error}"))
            return spent.proposal()
        return spent.proposal_of(answer)

    async def _ask(self, question: str, seed: int, spent: _Spent) -> str:
        engine = self._endpoint.engine
        tokenizer = engine.tokenizer
        if self._endpoint.chats:
            prompt_ids = tokenizer.chat(COACH, question)
        else:
            prompt_ids = tokenizer.begin + tokenizer.encode(f"{COACH}\n\n{question}\n\nAnswer:\n")
        request = Request(prompt_ids=prompt_ids, sampling=self._sampling, seeds=(seed,), adapter=self._endpoint.adapter)
        (generation,) = await engine.generate(request)
        ids = generation.token_ids
        spent.cost += cost_of_call(len(prompt_ids), len(ids))
        return tokenizer.decode(ids[:-1] if generation.finish == "stop" else ids).strip()


def ask_summary(group: LessonGroup, rollout: LessonRollout) -> str:
    """What happened in one episode."""
    return "\n\n".join(
        [
            f"One attempt of the member {group.role!r} at a task, with what it was shown and what it answered:",
            "\n\n".join(_told(said) for said in rollout.said),
            f"The attempt scored {rollout.score:g}.",
            "Summarise it in at most eight sentences: what mattered in what it was shown, what it did step by step and "
            "why that seems to have led to this score. Name the exact point at which it went right or wrong. Do not "
            "solve the task yourself.",
        ]
    )


def ask_experiences(group: LessonGroup, summaries: Sequence[str], library: Library, most: int, characters: int) -> str:
    """What the better ones of a group did otherwise than the worse ones."""
    ranked = sorted(zip(group.rollouts, summaries, strict=True), key=lambda pair: -pair[0].score)
    told = [f"Attempt {number}, score {one.score:g}:\n{text}" for number, (one, text) in enumerate(ranked, start=1)]
    return "\n\n".join(
        [
            f"The member {group.role!r} tried one task {len(ranked)} times, and not always with the same score:",
            *told,
            _known_lines(library),
            f"Compare the better attempts with the worse ones. What should it do in tasks of this kind that the better "
            f"ones did and the worse ones did not? Write at most {most} experiences, the fewer the better, of at most "
            f"{characters} characters each. Each says first in which situation it holds and then what to do; it must "
            "help with other tasks of this kind, so it names no detail of this one. Leave out what is known already.",
            "Answer with a JSON list of texts and nothing else, [] if there is nothing to learn.",
        ]
    )


def ask_operations(role: str, texts: Sequence[str], library: Library, characters: int) -> str:
    """What new experiences change in the library."""
    return "\n\n".join(
        [
            f"Experiences of the member {role!r} that were found now:\n" + "\n".join(f"- {text}" for text in texts),
            _known_lines(library),
            "Decide for each new one: add it; or, where a known one is about the same, put a text that joins both in "
            "its place; or delete a known one that the new one shows to be wrong; or do nothing, where it is known. A "
            f"text is one line of at most {characters} characters.",
            _FORM,
        ]
    )


def ask_consolidation(
    role: str, library: Library, operations: Sequence[Sequence[Operation]], most: int, characters: int
) -> str:
    """One list out of the operations that several groups want."""
    wanted = [json.dumps([_written(one) for one in group], ensure_ascii=False) for group in operations]
    return "\n\n".join(
        [
            f"Several tasks of the member {role!r} were studied apart from each other. Each study wants to change the "
            "known experiences:",
            "\n".join(f"Study {number}: {text}" for number, text in enumerate(wanted, start=1)),
            _known_lines(library),
            "Make one list of changes out of these: join those that say the same, settle those that contradict each "
            f"other, prefer what is general, change each known experience once at most. Afterwards at most {most} "
            f"experiences may be left, of one line and at most {characters} characters each.",
            _FORM,
        ]
    )


def _told(said: Said) -> str:
    who = "It" if said.is_own else f"Its team mate {said.agent!r}"
    failure = "" if said.failure is None else f"\n(This could not be used: {said.failure})"
    return f"{who} was shown:\n{said.shown}\n{who} answered:\n{said.answer}{failure}"


def _known_lines(library: Library) -> str:
    lines = [f"[{name}] {text}" for name, text in library.named().items()]
    return "\n".join(["Experiences that are known already:", *lines]) if lines else "No experience is known yet."


def _written(operation: Operation) -> dict[str, str]:
    fields = {"operation": operation.kind, "id": operation.target or "", "content": operation.text}
    return {name: text for name, text in fields.items() if text}


def read_operations(text: str) -> tuple[tuple[Operation, ...], tuple[Refusal, ...]]:
    """The operations of an answer, and what of it is none.

    The answer is a JSON list, alone or in a block fenced by three backticks, of objects such as
    `{"operation": "UPDATE", "id": "G0", "content": "..."}`; ADD has no id, DELETE needs no content.
    """
    entries, refused = _entries(text)
    operations: list[Operation] = []
    for entry in entries:
        read = _operation(entry)
        if isinstance(read, Operation):
            operations.append(read)
        else:
            refused.append(Refusal(_excerpt(entry), read))
    return tuple(operations), tuple(refused)


def read_experiences(text: str, most: int) -> tuple[tuple[str, ...], tuple[Refusal, ...]]:
    """The texts of an answer that is a JSON list of texts, the first `most` of them."""
    entries, refused = _entries(text)
    texts: list[str] = []
    for entry in entries:
        if not isinstance(entry, str) or not one_line(entry):
            refused.append(Refusal(_excerpt(entry), "it is no text"))
        elif len(texts) == most:
            refused.append(Refusal(_excerpt(entry), f"only {most} experiences were asked for"))
        else:
            texts.append(one_line(entry))
    return tuple(texts), tuple(refused)


def _entries(text: str) -> tuple[list[Any], list[Refusal]]:
    """The list that an answer is; empty, with the reason, where it is none."""
    if len(text) > MOST_CHARACTERS:
        return [], [
            Refusal(_excerpt(text), f"the answer has {len(text)} characters, at most {MOST_CHARACTERS} are read")
        ]
    fenced = _FENCE.findall(text)
    if len(fenced) > 1:
        return [], [Refusal(_excerpt(text), f"the answer has {len(fenced)} fenced blocks, one was asked for")]
    try:
        read = json.loads(fenced[0] if fenced else text, object_pairs_hook=_object, parse_constant=_no_number)
        json.dumps(read, ensure_ascii=False).encode()  # half a character could not be put into a prompt
    except (ValueError, RecursionError) as error:
        return [], [Refusal(_excerpt(text), f"the answer is no JSON: {error}")]
    if not isinstance(read, list):
        return [], [Refusal(_excerpt(text), "the answer is no JSON list")]
    rest = read[MOST_ENTRIES:]
    return read[:MOST_ENTRIES], [Refusal(_excerpt(one), f"only {MOST_ENTRIES} entries are read") for one in rest]


def _operation(entry: object) -> Operation | str:
    """The operation that an entry is, or why it is none."""
    if not isinstance(entry, dict):
        return "it is no JSON object"
    if unknown := sorted(entry.keys() - _KEYS):
        return f"it has the key {unknown[0]!r}; possible: {sorted(_KEYS)}"
    kind, target, text = entry.get("operation"), entry.get("id"), entry.get("content")
    if kind not in ("ADD", "UPDATE", "DELETE"):
        return f"its operation is {kind!r}; possible: 'ADD', 'UPDATE', 'DELETE'"
    if not isinstance(text, str | None) or not isinstance(target, str | None):
        return "its id or its content is no text"
    if kind == "ADD":
        return Operation("ADD", None, text or "") if target is None else "an ADD has no id"
    return Operation(kind, target, "" if kind == "DELETE" else text or "")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return read


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number in JSON")


def _excerpt(entry: object) -> str:
    return one_line(entry if isinstance(entry, str) else str(entry))[:120]
