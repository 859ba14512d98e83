"""`program`: tasks that a program of the user's own plays, whose calls of models are the roles' turns.

The team has the program's roles and no graph that is played: which role is called when is up to the program. What plays
and pays is `mas.gateway`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field, StringConstraints, field_validator

from mas.core.environment import Environment, Move, Reward, Task
from mas.core.errors import ConfigError, EnvironmentFault
from mas.core.options import Options, Positive
from mas.core.role import RoleSpec
from mas.core.scenario import Split
from mas.core.seeds import derive_seed, digest
from mas.core.team import TeamSpec
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.rows import read_rows, split_of
from mas.scenarios.world import RecordEnvironment, one_seat

NAME = "program"
TERM = "reward"
"""What the program pays the whole team for an episode, `team.reward`."""
OWN_TERM = "role"
"""What it pays one role, `own.role`."""
RoleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class ProgramOptions(Options):
    """Which roles the program calls, and what tasks it gets.

    `roles`: the names of the models that it asks for, each with an adapter of its own. `path`: a file of tasks, see
    `mas.scenarios.rows`, whose rows are given to the program as they are; None: the program has tasks of its own, and
    nothing is evaluated. `split`: the field that says `train` or `eval` of each row; None: what the data set has, or
    `eval_share` of the rows, chosen by content. `max_tokens`: of one answer, at most. `compare`: whether a role's turns
    are compared with turns that have the same number in other episodes of the task (`turn`), or all of an episode
    together with all of another (`episode`).
    """

    roles: Annotated[tuple[RoleName, ...], Field(min_length=1, max_length=64)] = ("agent",)
    path: str | None = None
    split: Annotated[str, Field(min_length=1)] | None = None
    eval_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    max_tokens: Positive = 256
    compare: Literal["turn", "episode"] = "turn"

    @field_validator("roles")
    @classmethod
    def _differ(cls, roles: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(roles)) < len(roles):
            raise ValueError(f"roles={list(roles)} has a name twice")
        return roles


Rows = Mapping[Split, Sequence[Mapping[str, Any]]]


class ProgramState(msgspec.Struct, frozen=True):
    """A task as JSON."""

    task: str


class ProgramEnvironment(RecordEnvironment[ProgramState]):
    """Shows a task; nothing but the program can act on it."""

    def __init__(self, roles: Sequence[str], rows: Rows | None) -> None:
        super().__init__(one_seat(NAME, tuple(roles), 1, (TERM,)))
        self._rows = rows

    def initial(self, task: Task) -> ProgramState:
        row = {} if self._rows is None else self._rows[task.split][task.seed]
        return ProgramState(json.dumps(row, ensure_ascii=False))

    def fields(self, state: ProgramState, view: str) -> Mapping[str, str]:
        return {"task": state.task}

    def act(self, state: ProgramState, action: str) -> tuple[ProgramState, dict[str, float], bool]:
        raise EnvironmentFault("a program plays this scenario, not the team's graph: use mas gateway")

    def is_solved(self, state: ProgramState) -> bool:
        return False

    def render(self) -> str:
        return self.state.task


class ProgramReward:
    """Names the terms; the program says what they are."""

    terms: tuple[str, ...] = (OWN_TERM,)

    def own(self, move: Move) -> Mapping[str, float]:
        return {}


@dataclass(frozen=True, slots=True)
class ProgramScenario:
    """Satisfies `mas.core.scenario.Scenario`. `rows`: None: endless nameless tasks."""

    options: ProgramOptions
    rows: Rows | None
    name: str = NAME
    reward: Reward = field(default_factory=ProgramReward)
    teams: Mapping[str, TeamSpec] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "teams", {"team": _team(self.options.roles, self.options.max_tokens)})

    def environment(self) -> Environment:
        return ProgramEnvironment(self.options.roles, self.rows)

    def task(self, split: Split, index: int) -> Task:
        """The index-th row of a split, as its seed says.

        Raises:
            ConfigError: there are not so many.
        """
        if self.rows is not None and not 0 <= index < len(self.rows[split]):
            raise ConfigError(
                f"scenario {NAME!r} has {len(self.rows[split])} tasks in split {split!r}, numbered from 0: there is no "
                f"number {index}"
            )
        return Task(id=f"{split}-{index}", seed=index, split=split)

    def row(self, task: Task) -> Mapping[str, Any] | None:
        """What the program is given, None where it has tasks of its own."""
        return None if self.rows is None else self.rows[task.split][task.seed]

    def demonstrations(self, seed: int, *, expert: bool) -> Iterator[tuple[str, str]]:
        raise ConfigError(
            f"scenario {NAME!r} has no demonstrations for the tiny base: name a model, such as model=smollm2, or one "
            "of your own by model.path=..."
        )

    def fingerprint(self) -> str:
        return digest(NAME, self.options.model_dump_json(), json.dumps(self.rows, sort_keys=True))


@dataclass(frozen=True, slots=True)
class ListedProgramScenario(ProgramScenario):
    """Satisfies also `mas.core.scenario.Finite`: its tasks are rows of a file."""

    def size(self, split: Split) -> int:
        assert self.rows is not None
        return len(self.rows[split])


def _team(roles: Sequence[str], max_tokens: int) -> TeamSpec:
    """A chain of the roles, since a team must have a graph. `ask`: a model is told what the program sends, and nothing
    of a role's duty."""
    places = ["start", *roles, "done"]
    return TeamSpec(
        name=NAME,
        roles={role: RoleSpec(type="executor", ask="{task}", max_tokens=max_tokens) for role in roles},
        edges=[f"{source} -> {target}" for source, target in pairwise(places)],
        output=roles[-1],
    )


def read_tasks(path: str, split: str | None, eval_share: float) -> Rows:
    """The rows of a file in two splits; of equal rows the first one.

    Raises:
        ConfigError: it cannot be read, a row is in both splits, or a split is empty.
    """
    found: dict[Split, list[Mapping[str, Any]]] = {"train": [], "eval": []}
    first: dict[str, tuple[Split, str]] = {}
    for row in read_rows(path):
        task = {key: value for key, value in row.values.items() if key != split}
        try:
            content = json.dumps(task, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{row.where} cannot be given to a program as JSON: {error}") from None
        is_held_out = derive_seed(NAME, content) < eval_share * 2**63
        own = split_of(row, split) or ("eval" if is_held_out else "train")
        other, where = first.setdefault(content, (own, row.where))
        if other != own:
            raise ConfigError(
                f"{row.where}: this task is in split {own!r}, and in {other!r} at {where}: what is evaluated must "
                "not be trained on; remove one"
            )
        if where == row.where:
            found[own].append(row.values)
    for name, rows in found.items():
        if not rows:
            raise ConfigError(f"{path}: no task is in split {name!r}; change scenario.options.eval_share, or add more")
    return found


def build(options: ProgramOptions) -> ProgramScenario:
    """The scenario with these options.

    Raises:
        ConfigError: see `read_tasks`.
    """
    if options.path is None:
        return ProgramScenario(options, None)
    return ListedProgramScenario(options, read_tasks(options.path, options.split, options.eval_share))


ENTRY = ScenarioEntry(ProgramOptions, build, "programs of your own", is_demonstrated=False)
