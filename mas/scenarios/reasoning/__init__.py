"""Verifiable questions of reasoning-gym, answered by a team: `reasoning_gym:chain_sum`, needs `mas[reasoning-gym]`.

A question is a task of one team turn: every role sees it, the team's action is the answer, and the dataset's own scorer
says how right it is. A scorer that breaks at an answer has not understood it: the answer is illegal and scores 0. For
real models.

Leaves out: every dataset that `reasoning_gym.yaml` does not list as tested, above all those whose scorers evaluate
text as code.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache, partial
from importlib.metadata import version
from importlib.resources import files
from random import Random
from typing import Any, NamedTuple

import msgspec
import yaml
from pydantic import Field, field_validator

from mas.core.environment import Environment, Task
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.options import Options
from mas.core.printable import is_readable
from mas.scenarios.bridges.packages import drawing_from, load_package
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario, QuestionWorld

VIEWS = ("planner", "executor", "verifier", "feedback", "solo")
LONGEST = 10_000
"""Characters of an answer; a longer one is illegal."""
_KEPT = 256
_OURS = {"seed", "size"}
"""Options of every dataset that mas sets: a task is one question, and its seed makes it."""


class Datasets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The list: what was tested with which version, and why the rest is left out."""

    version: str
    tested: list[str]
    left_out: dict[str, str]


class GymQuestion(NamedTuple):
    """One item of a dataset and the dataset that scores it. `entry` has `question`, `answer` and `metadata`."""

    dataset: Any
    entry: dict[str, Any]


class GymState(msgspec.Struct, frozen=True):
    """`answer` None: not yet given."""

    seed: int
    answer: str | None = None
    score: float = 0.0


@lru_cache(maxsize=1)
def known_datasets() -> Datasets:
    """The list that comes with mas."""
    text = files("mas.scenarios.reasoning").joinpath("data", "reasoning_gym.yaml").read_text(encoding="utf-8")
    return msgspec.convert(yaml.safe_load(text), Datasets)


def check_name(name: str) -> None:
    """Needs no package.

    Raises:
        ConfigError: the dataset is not one of the tested ones.
    """
    known = known_datasets()
    if name in known.left_out:
        raise ConfigError(f"reasoning-gym's {name!r} is left out: {known.left_out[name]}")
    if name not in known.tested:
        raise ConfigError(f"no tested dataset {name!r} of reasoning-gym. {did_you_mean(name, known.tested)}")


def open_environment(name: str) -> Environment:
    """The environment of a dataset with its default options.

    Raises:
        ConfigError: the dataset is not one of the tested ones, or reasoning-gym is missing or has another version.
    """
    check_name(name)
    check_version()
    return GymEnvironment(name, {})


def check_version() -> None:
    """Refuse a version of reasoning-gym that the list was not made with.

    Raises:
        ConfigError: it is missing or has another version.
    """
    load_package("reasoning_gym", "reasoning-gym")
    installed, tested = version("reasoning-gym"), known_datasets().version
    if installed != tested:
        raise ConfigError(
            f"reasoning-gym {installed} is installed, tested was {tested}: pip install 'mas[reasoning-gym]'"
        )


def ask(name: str, config: Mapping[str, Any], random: Random) -> GymQuestion:
    """The question that a generator draws.

    Raises:
        ConfigError: an option that the dataset does not have or cannot take, or reasoning-gym is missing.
    """
    return _question(name, json.dumps(dict(config), sort_keys=True), random.randrange(2**32))


@lru_cache(maxsize=_KEPT)
def _question(name: str, config: str, seed: int) -> GymQuestion:
    factory = load_package("reasoning_gym.factory", "reasoning-gym")
    options = json.loads(config)
    possible = {field.name for field in fields(factory.DATASETS[name][1])} - _OURS
    for key in options:
        if key not in possible:
            raise ConfigError(f"reasoning-gym's {name!r} has no option {key!r}. {did_you_mean(key, possible)}")
    with drawing_from(seed):
        try:
            dataset = factory.create_dataset(name, seed=seed, size=1, **options)
            return GymQuestion(dataset, dataset[0])
        except (AssertionError, TypeError, ValueError) as error:
            raise ConfigError(f"reasoning-gym's {name!r} cannot be made with {options}: {error}") from error


class GymEnvironment(QuestionWorld[GymState]):
    """One team turn: the team's action is the answer, alone or within `<answer>` and `</answer>`."""

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        """`config`: the dataset's own options."""
        super().__init__(f"reasoning_gym:{name}", VIEWS)
        self._name = name
        self._config = dict(config)

    def question(self, state: GymState) -> GymQuestion:
        return ask(self._name, self._config, Random(state.seed))

    def initial(self, task: Task) -> GymState:
        return GymState(task.seed)

    def fields(self, state: GymState, view: str) -> Mapping[str, str]:
        return {"question": self.question(state).entry["question"]}

    def act(self, state: GymState, action: str) -> tuple[GymState, dict[str, float], bool]:
        score = self._score(state, action) if action else 0.0
        given = action if score is not None else ""
        after = msgspec.structs.replace(state, answer=given, score=score or 0.0)
        return after, {"right": after.score}, score is not None

    def is_solved(self, state: GymState) -> bool:
        return state.score >= 1

    def render(self) -> str:
        entry = self.question(self.state).entry
        return f"{entry['question']}\nright: {entry['answer']}\ngiven: {self.state.answer or '-'}"

    def _score(self, state: GymState, action: str) -> float | None:
        """From 0 to 1; None for an answer that no scorer should see, or that breaks it."""
        if not is_readable(action, LONGEST):
            return None
        extract = load_package("reasoning_gym.utils", "reasoning-gym").extract_answer
        dataset, entry = self.question(state)
        tagged = extract(action)
        with drawing_from(0):
            try:
                score = float(dataset.score_answer(action.strip() if tagged is None else tagged, entry))
            except Exception:  # noqa: BLE001 - scorers parse by hand: whatever it is, the answer did not parse
                return None
        return min(max(score, 0.0), 1.0)


def right_answer(environment: GymEnvironment, random: Random) -> dict[str, str]:
    """The dataset's own answer, as a scenario's expert gives it."""
    return {"team": str(environment.question(environment.state).entry["answer"])}


class ReasoningOptions(Options):
    """`dataset`: one of reasoning-gym's. `config`: the dataset's own options, as `{max_terms: 3}`; empty: defaults."""

    dataset: str = "chain_sum"
    config: dict[str, Any] = Field(default_factory=dict)

    @field_validator("dataset")
    @classmethod
    def _tested(cls, name: str) -> str:
        try:
            check_name(name)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return name


def build(options: ReasoningOptions) -> FolderScenario:
    """The scenario with these options; reasoning-gym itself is first needed for a task."""
    name, config = options.dataset, options.config
    return FolderScenario(
        __file__,
        options,
        partial(GymEnvironment, name, config),
        partial(_content, name=name, config=config),
        unkeyed=(),
        expert=right_answer,
    )


def _content(random: Random, name: str, config: dict[str, Any]) -> str:
    check_version()
    return str(ask(name, config, random).entry["question"])


ENTRY = ScenarioEntry(
    ReasoningOptions,
    build,
    "reasoning",
    {
        "small": {},
        "medium": {"config": {"max_terms": 10, "max_digits": 6}},
        "large": {"config": {"max_terms": 20, "max_digits": 8}},
    },
    is_demonstrated=False,
)
