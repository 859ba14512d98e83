"""A class of TRL's `environment_factory` as a scenario: `file.py:CLASS` with rows from a file. TRL is not needed.

    def reset(self, **row) -> str | None       # begin the task of a row; what it returns is added to the prompt
    def get_reward(self) -> float              # what the rollout is worth, asked when it is over
    def search(self, query: str) -> str        # every other public method is a tool, with type hints and a docstring

An episode is one rollout with an instance of its own. An action is a call of a tool, `{"name": ..., "arguments": ...}`,
alone or within `<tool_call>` and `</tool_call>`; any other text is the answer, which ends the episode.

Leaves out: asynchronous methods, pictures, and a class for each row (TRL's field `environment`).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from mas.core.environment import Environment, Step, Task, check_finite
from mas.core.errors import ConfigError, EnvironmentFault
from mas.core.options import Options
from mas.core.scenario import Split
from mas.core.seeds import digest
from mas.core.team import TeamSpec
from mas.roles.chat import written_call
from mas.scenarios.bridges.packages import OwnChance
from mas.scenarios.replay import ReplayedWorld, ReplayToolEnvironment
from mas.scenarios.rows import DataRow, read_rows, shown
from mas.scenarios.tool_methods import GameTools, public_methods, result_text, tool_teams
from mas.scenarios.user_class import TEAM, VIEWS, source_of
from mas.scenarios.world import NoOwnTerms, is_held_out, one_seat

TERM = "reward"
LONGEST = 20_000
"""Characters of an action."""
_RESERVED = ("reset", "get_reward")


class ToolClassOptions(Options):
    """`rows`: the file or data set whose rows `reset` is called with, see `mas.scenarios.rows`. `split`: the field that
    says `train` or `eval` of each row; None: what the data set itself has, or a fifth is held out by content.
    `max_turns`: actions after which an episode is over. `max_tokens`: of an action."""

    rows: Annotated[str, Field(min_length=1)]
    split: str | None = None
    max_turns: Annotated[int, Field(ge=1, le=1000)] = 8
    max_tokens: Annotated[int, Field(ge=1)] = 512


class ToolPlay(ReplayedWorld):
    """One rollout. Satisfies `mas.scenarios.replay.ToolGame`.

    Raises:
        EnvironmentFault: the constructor or `reset` raises.
    """

    def __init__(self, kind: type, rows: tuple[DataRow, ...], max_turns: int, seed: int) -> None:
        self._row, self._kind, self._left = rows[seed], kind, max_turns
        self._chance = OwnChance(seed % 2**32)
        self._paid: float | None = None
        self._made: Any = self._called("the constructor", kind)
        said = self._called("reset", partial(self._made.reset, **self._row.values))
        if said is not None and not isinstance(said, str | list):
            raise self._fault("reset", f"returned {shown(said)}: return a text or None")
        prompt = self._row.values.get("prompt", "")
        if isinstance(prompt, list):
            prompt = "\n".join(result_text(message.get("content", "")) for message in prompt)
        self._prompt = str(prompt) + ("" if said is None else result_text(said))
        self.tools = GameTools(self._made, public_methods(kind, *_RESERVED))

    def to_move(self) -> str | None:
        return TEAM if self._paid is None else None

    def act(self, action: str) -> Step:
        call, is_legal = written_call(action), True
        if call is not None:
            with self._chance:
                is_legal = self.tools.perform(call)
        elif action:
            self.tools.told.append(f"answer: {action}")
        return self._ended(is_over=call is None and bool(action), is_legal=is_legal)

    def deny(self, action: str, answer: str) -> Step:
        self.tools.note(written_call(action) or action, answer)
        return self._ended(is_over=False, is_legal=False)

    def _ended(self, *, is_over: bool, is_legal: bool) -> Step:
        self._left -= 1
        illegal = () if is_legal else (TEAM,)
        if self._left > 0 and not is_over:
            return Step(rewards={TEAM: {}}, illegal=illegal)
        self._paid = self._reward()
        return Step(rewards={TEAM: {TERM: self._paid}}, illegal=illegal)

    def fields(self, view: str) -> Mapping[str, str]:
        return {"prompt": self._prompt, **self.tools.fields()}

    def success(self) -> bool:
        return self._paid is not None and self._paid >= 1

    def render(self) -> str:
        return "\n".join([self._prompt, *self.tools.told, f"reward: {self._paid}"])

    def _reward(self) -> float:
        found = self._called("get_reward", self._made.get_reward)
        try:
            paid = float(found)
        except (TypeError, ValueError):
            raise self._fault("get_reward", f"returned {shown(found)}: return a number") from None
        check_finite({TERM: paid}, f"{self._kind.__name__}.get_reward")
        return paid

    def _called(self, name: str, function: Callable[[], Any]) -> Any:
        try:
            with self._chance:
                return function()
        except Exception as error:  # a user's code
            raise self._fault(name, f"raised {type(error).__name__}: {error}") from error

    def _fault(self, name: str, why: str) -> EnvironmentFault:
        return EnvironmentFault(f"{self._kind.__name__}: {name} {why} ({self._row.where})")


class ToolClassScenario:
    """Satisfies `mas.core.scenario.Scenario`, `Finite` and `SplitByContent`. A task's seed is the number of its row.

    Raises:
        ConfigError: the rows cannot be read, a split has none, or the class cannot begin the first of them.
    """

    def __init__(self, kind: type, options: ToolClassOptions) -> None:
        self.kind, self.name, self.reward = kind, kind.__name__, NoOwnTerms()
        self._options, self._rows = options, tuple(read_rows(options.rows))
        self._contents = tuple(_content(row, options.split) for row in self._rows)
        self._splits: dict[Split, list[int]] = {"train": [], "eval": []}
        for number, row in enumerate(self._rows):
            self._splits[_split(row, options.split, self._contents[number])].append(number)
        for split, numbers in self._splits.items():
            if not numbers:
                raise ConfigError(
                    f"{options.rows}: no row is in split {split!r}; add more, or name the field that says it of each "
                    "row, scenario.options.split=FIELD"
                )
        both = {self._contents[number] for number in self._splits["train"]} & set(self._held_out())
        if both:
            raise ConfigError(f"{options.rows} has equal rows in both splits: what is evaluated would be trained on")
        self.teams: Mapping[str, TeamSpec] = getattr(kind, "teams", None) or tool_teams(
            kind, options.max_tokens, "{prompt}|{tools}|{history}"
        )
        try:
            self.environment().reset(self.task("train", 0))
        except EnvironmentFault as error:
            raise ConfigError(f"scenario {self.name!r}: {error}") from error

    def environment(self) -> Environment:
        spec = one_seat(self.name, VIEWS, self._options.max_turns, (TERM,))
        begin = partial(ToolPlay, self.kind, self._rows, self._options.max_turns)
        names = public_methods(self.kind, *_RESERVED)
        return ReplayToolEnvironment(spec, begin, longest=LONGEST, tool_names=names)

    def size(self, split: Split) -> int:
        return len(self._splits[split])

    def task(self, split: Split, index: int) -> Task:
        numbers = self._splits[split]
        if not 0 <= index < len(numbers):
            raise ConfigError(f"{self.name} has {len(numbers)} tasks in split {split!r}; there is no {index}")
        return Task(id=f"{split}-{index}", seed=numbers[index], split=split)

    def content_of(self, task: Task) -> str:
        return self._contents[task.seed]

    def holds_out(self, content: str) -> bool:
        return content in self._held_out()

    def demonstrations(self, seed: int, *, expert: bool) -> Iterator[tuple[str, str]]:
        raise ConfigError(
            f"scenario {self.name!r} has no demonstrations: its tools are called in JSON, which the tiny base cannot "
            "write. Name a model that can, model.path=MODEL"
        )

    def fingerprint(self) -> str:
        return digest(self.name, source_of(self.kind), self._options.model_dump_json(), *self._contents)

    def _held_out(self) -> frozenset[str]:
        return frozenset(self._contents[number] for number in self._splits["eval"])


def build(kind: type, options: ToolClassOptions) -> ToolClassScenario:
    """The scenario of a class with these options. ConfigError: as `ToolClassScenario`."""
    return ToolClassScenario(kind, options)


def _content(row: DataRow, split: str | None) -> str:
    """What tells a row from others: all that it has, but which split it belongs to."""
    values = {name: value for name, value in row.values.items() if name != split}
    return digest(json.dumps(values, sort_keys=True, default=str))


def _split(row: DataRow, field: str | None, content: str) -> Split:
    named = row.split if field is None else row.values.get(field)
    if field is None and named is None:
        return "eval" if is_held_out("rows", content) else "train"
    if named == "train":
        return "train"
    if named in ("eval", "test", "validation"):
        return "eval"
    raise ConfigError(f"{row.where}: its split is {shown(named)}; possible: train, eval, test, validation")
