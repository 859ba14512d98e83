"""`delegate`: a planner breaks a question up, workers search an archive for the parts, a composer answers (after MATPO,
arXiv 2510.04678).

One team turn; the team's action is the answer. Planner and composer never see the archive, workers never the question.

The own terms of `delegate`, penalties all. MATPO (arXiv 2510.04678) pays 0.9 for a right answer and 0.1 for calls in
the right form: 0.9 · `right` + 0.1 · (1 + `format`). `plan` and `report` are ours: they say whose fault a wrong answer
is.

The worker of `delegate`: what its sub-question finds in the archive is all that it is shown. The search happens where
its prompt is made, and every worker has its own: no page reaches another's context.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from random import Random
from typing import Annotated, ClassVar

import msgspec
from pydantic import Field

from mas.core.environment import Move, Observation, Task
from mas.core.messages import Failure, Items, Payload
from mas.core.naming import agent_of
from mas.core.options import Options
from mas.core.role import View
from mas.roles.base import PromptedRole
from mas.scenarios.noisy_teacher import DIGITS, NoisyTeacher
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario, QuestionWorld, Style
from mas.tools import Bm25

NAMES, FACTS = "abcd", "pq"
SHOWN: dict[Style, int] = {"letters": 3, "words": 4}
"""How many documents a search shows."""
NOTHING: dict[Style, str] = {"letters": "!", "words": "nothing found"}
LARGEST = 4
"""In letters: digits of the archive are 0 to 4."""

CALLINGS = ("campaner", "lumenar", "pontier", "tincter")
TOWNS = ("Orlo", "Vash", "Melin")
AMOUNTS = ("wage", "rent", "debt")
_SIGNS = {"+": "plus", "-": "minus"}


class DelegateCase(msgspec.Struct, frozen=True):
    """One task.

    Attributes:
        documents: the archive, which the workers' search alone shows.
        needed: positions of the documents that answer, in the order of the question.
        parts: the sub-question that finds each of them.
    """

    style: Style
    question: str
    documents: tuple[str, ...]
    needed: tuple[int, ...]
    parts: tuple[str, ...]
    answer: str

    @property
    def archive(self) -> str:
        """All documents, as the workers' search and `solo` read them: one a line."""
        return "\n".join(self.documents)


def make(random: Random, style: Style, parts: int) -> DelegateCase:
    """A case; `parts` is how many entries its answer takes, in words."""
    return _lettered(random) if style == "letters" else _worded(random, parts)


def content_of(case: DelegateCase) -> str:
    """The question and the entries that answer it: two cases whose archives differ elsewhere are one."""
    return "|".join([case.question, *(case.documents[at] for at in case.needed)])


def found(documents: tuple[str, ...], part: str, style: Style) -> tuple[int, ...]:
    """Positions of the documents that a sub-question finds, the best first; in letters each of them is a word."""
    query = " ".join(part) if style == "letters" else part
    return tuple(at for at, _ in _index(documents, style).rank(query)[: SHOWN[style]])


@lru_cache(maxsize=64)
def _index(documents: tuple[str, ...], style: Style) -> Bm25:
    return Bm25([" ".join(document) for document in documents] if style == "letters" else documents)


def page(archive: str, part: str, style: Style) -> str:
    """What a search shows of an archive, in the archive's order: the best need not come first."""
    documents = tuple(archive.split("\n"))
    lines = [documents[at] for at in sorted(found(documents, part, style))]
    return ("" if style == "letters" else "\n").join(lines) or NOTHING[style]


def value(document: str) -> str:
    """The number that an entry tells: its last one."""
    numbers: list[str] = re.findall(r"[0-9]+", document)
    return numbers[-1]


def _lettered(random: Random) -> DelegateCase:
    """An entry is a name, a fact and a digit, `bp3`; the answer is a digit, modulo 10."""
    keys = [name + fact for name in NAMES for fact in FACTS]
    documents = tuple(f"{key}{random.randint(0, LARGEST)}" for key in keys)
    needed, sign = tuple(random.sample(range(len(keys)), 2)), random.choice(tuple(_SIGNS))
    first, second = (int(value(documents[at])) for at in needed)
    answer = str((first + second if sign == "+" else first - second) % 10)
    parts = tuple(keys[at] for at in needed)
    return DelegateCase("letters", sign.join(parts), documents, needed, parts, answer)


def _worded(random: Random, parts: int) -> DelegateCase:
    keys = [(amount, f"the {calling} of {town}") for calling in CALLINGS for town in TOWNS for amount in AMOUNTS]
    documents = tuple(f"{who[0].upper()}{who[1:]}: {amount} {random.randint(10, 99)} crowns." for amount, who in keys)
    needed = tuple(random.sample(range(len(keys)), parts))
    signs = [random.choice(tuple(_SIGNS)) for _ in needed[1:]]
    asked = tuple(f"the {keys[at][0]} of {keys[at][1]}" for at in needed)
    total = int(value(documents[needed[0]]))
    for sign, at in zip(signs, needed[1:], strict=True):
        total += int(f"{sign}{value(documents[at])}")
    rest = "".join(f", {_SIGNS[sign]} {part}" for sign, part in zip(signs, asked[1:], strict=True))
    return DelegateCase("words", f"How many crowns are {asked[0]}{rest}?", documents, needed, asked, str(total))


_NUMBER = re.compile(r"-?[0-9]{1,12}")


class DelegateState(msgspec.Struct, frozen=True):
    """`answer` is None before the team's, empty for a pass."""

    case: DelegateCase
    answer: str | None = None


class DelegateEnvironment(QuestionWorld[DelegateState]):
    """The team's action is the answer."""

    def __init__(self, style: Style, parts: int) -> None:
        super().__init__("delegate", ("planner", "worker", "composer", "solo"))
        self.style: Style = style
        self.parts = parts

    def initial(self, task: Task) -> DelegateState:
        return DelegateState(make(Random(task.seed), self.style, self.parts))

    def fields(self, state: DelegateState, view: str) -> Mapping[str, str]:
        question, archive = {"question": state.case.question}, {"archive": state.case.archive}
        return {"worker": archive, "solo": question | archive}.get(view, question)

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return tuple(DIGITS) if self.style == "letters" else None

    def is_solved(self, state: DelegateState) -> bool:
        return bool(state.answer) and int(state.answer or 0) == int(state.case.answer)

    def render(self) -> str:
        case, said = self.state.case, self.state.answer
        entries = [case.documents[at] for at in case.needed]
        answer = f"answer {'-' if said is None else repr(said)}, right is {case.answer}"
        return "\n".join([case.question, *entries, answer])

    def is_answer(self, state: DelegateState, action: str) -> bool:
        return action in tuple(DIGITS) if self.style == "letters" else _NUMBER.fullmatch(action) is not None


def expert(environment: DelegateEnvironment, random: Random) -> dict[str, str]:
    """The answer."""
    return {"team": environment.state.case.answer}


def demonstrations(random: Random, skill: float) -> Iterator[tuple[str, str]]:
    """Each role's part, in letters: right with `skill`, by habit else (see `NoisyTeacher`).

    The habits: the planner asks for the first part twice, a worker reports the first number on its page, composer and
    solo repeat the first number that they see.
    """
    teacher = NoisyTeacher(random, skill)
    while True:
        case = make(random, "letters", 2)
        question, (first, second) = case.question, case.parts
        # both parts, one a line; a guess gets letters of its second part wrong
        yield f"P{question}>", f"{first}\n{teacher.answer(second, first, NAMES + FACTS)}"
        for part, at in zip(case.parts, case.needed, strict=True):
            shown = page(case.archive, part, "letters")
            yield f"W{part};{shown}>", teacher.answer(value(case.documents[at]), shown[2], DIGITS[: LARGEST + 1])
        told = [value(case.documents[at]) for at in case.needed]
        yield f"C{question};1. {told[0]}\n2. {told[1]}>", teacher.answer(case.answer, told[0], DIGITS)
        digits = "".join(value(document) for document in case.documents)
        yield f"S{question};{case.archive}>", teacher.answer(case.answer, digits[0], DIGITS)


PLANNER, WORKER = "planner", "worker"


class DelegateReward:
    """`format`: -1 for output that cannot be read, of anybody. `plan`: F1 of the sub-questions and those that are
    needed, minus 1, for the planner. `report`: -1 for a number that the best find does not tell, for a worker."""

    terms: tuple[str, ...] = ("format", "plan", "report")

    def own(self, move: Move) -> Mapping[str, float]:
        world = move.environment
        assert isinstance(world, DelegateEnvironment)
        case = world.state.case
        terms = {"format": -float(isinstance(move.output, Failure))}
        if move.role == PLANNER:
            return terms | {"plan": plan_value(case, move.output) - 1}
        if move.role == WORKER:
            return terms | {"report": -float(_is_wrong(case, move))}
        return terms


def plan_value(case: DelegateCase, plan: Payload) -> float:
    """F1 = 2 · (needed entries that are the best find of some sub-question) / (sub-questions + needed entries)."""
    items = plan.items if isinstance(plan, Items) else ()
    best = {at for item in items for at in found(case.documents, item, case.style)[:1]}
    return 2 * len(best & set(case.needed)) / (len(items) + len(case.needed))


def _is_wrong(case: DelegateCase, move: Move) -> bool:
    """Whether a report differs from what the best find of the worker's sub-question tells; nothing found: never."""
    plan = move.before.get(PLANNER)
    number = int(move.agent.removeprefix(agent_of(move.agent)).strip("[]") or 0)
    if not isinstance(plan, Items) or number >= len(plan.items):
        return False
    best = found(case.documents, plan.items[number], case.style)[:1]
    return bool(best) and move.output.content.strip() != value(case.documents[best[0]])


class Worker(PromptedRole):
    """Emits a note. Its prompt has the field `page` instead of the observation's `archive`."""

    style: ClassVar[Style] = "words"
    duty: ClassVar[str] = "Answer your question from the page that a search found for it."

    def prompt(self, view: View) -> str:
        return super().prompt(self._searched(view))

    def chat(self, view: View) -> tuple[str, str]:
        return super().chat(self._searched(view))

    def earlier(self, view: View) -> tuple[tuple[str, str], ...]:
        return super().earlier(self._searched(view))

    def prefill(self, view: View) -> str:
        return super().prefill(self._searched(view))

    def _searched(self, view: View) -> View:
        heard = self.visible(view)
        fields = dict(view.observation.fields)
        if "archive" not in fields:
            return view
        found = page(fields.pop("archive"), heard[-1].payload.content if heard else "", self.style)
        past = [msgspec.structs.replace(call, view=self._searched(call.view)) for call in view.past]
        return msgspec.structs.replace(view, observation=Observation(fields | {"page": found}), past=tuple(past))


class LetterWorker(Worker):
    """The same in letters."""

    style: ClassVar[Style] = "letters"


class DelegateOptions(Options):
    """`style`: two digits to look up, which the tiny base can learn, or sentences, for real models.

    `parts`: in words, how many amounts the answer takes. `skill`: share of right answers of the noisy teacher that the
    tiny base learns from last.
    """

    style: Style = "letters"
    parts: Annotated[int, Field(ge=2, le=8)] = 2
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.5


def build(options: DelegateOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        __file__,
        options,
        partial(DelegateEnvironment, options.style, options.parts),
        lambda random: content_of(make(random, options.style, options.parts)),
        demonstrations,
        inner=options.style,
        reward=DelegateReward(),
        expert=expert,
    )


ENTRY = ScenarioEntry(
    DelegateOptions,
    build,
    "tool use",
    {"small": {}, "medium": {"style": "words"}, "large": {"style": "words", "parts": 5}},
)
