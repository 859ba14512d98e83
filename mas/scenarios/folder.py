"""A scenario kept in a folder: teams are its YAML files, everything else is handed in."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from mas.core.environment import Environment, Move, Reward, Script, Task
from mas.core.errors import ConfigError
from mas.core.naming import digest
from mas.core.scenario import Scenario, Split
from mas.core.team import TeamSpec
from mas.graph.load import load_team
from mas.scenarios.world import is_held_out, split_task


class NoOwnTerms:
    """The reward of scenarios in which only the team is paid."""

    terms: tuple[str, ...] = ()

    def own(self, move: Move) -> Mapping[str, float]:
        return {}


@dataclass(frozen=True, slots=True)
class FolderScenario:
    """Satisfies `mas.core.scenario.Scenario`, and `mas.core.scenario.SplitByContent`.

    Attributes:
        options_key: all options as text, part of the fingerprint.
        make_environment: a fresh environment. content: what tells two tasks apart, given the task's generator.
        demonstrate: endless (prompt, completion) pairs from a generator and a skill; None: the tiny base cannot read
            its words. skill: that of a novice.
        expert: the best play that is known, with the whole state in sight: what each seat that must move does, drawing
            from a generator among equals. None: nobody wrote one.
        advise: what the environment says of a wrong action (said, right), for demonstrations; None: nothing.

    Raises:
        ConfigError: the folder holds no YAML file, as where a package was built without them.
    """

    name: str
    folder: Path
    options_key: str
    make_environment: Callable[[], Environment]
    content: Callable[[Random], str]
    demonstrate: Callable[[Random, float], Iterator[tuple[str, str]]] | None = None
    skill: float = 0.0
    reward: Reward = field(default_factory=NoOwnTerms)
    expert: Callable[[Any, Random], Mapping[str, str]] | None = None
    advise: Callable[[str, str], str] | None = None
    teams: Mapping[str, TeamSpec] = field(init=False)

    def __post_init__(self) -> None:
        teams = {path.stem: load_team(path) for path in sorted(self.folder.glob("*.yaml"))}
        if not teams:
            why = f"no *.yaml lies in {self.folder}; a package must include its YAML files (package-data)"
            raise ConfigError(f"scenario {self.name!r}: {why}")
        object.__setattr__(self, "teams", teams)

    def environment(self) -> Environment:
        return self.make_environment()

    def task(self, split: Split, index: int) -> Task:
        return split_task(self._key, split, index, self.content)

    def content_of(self, task: Task) -> str:
        return self.content(Random(task.seed))

    def holds_out(self, content: str) -> bool:
        return is_held_out(self._key, content)

    @property
    def _key(self) -> str:
        return f"{self.name}/{self.options_key}"

    def demonstrations(self, seed: int, *, expert: bool) -> Iterator[tuple[str, str]]:
        if self.demonstrate is None:
            raise ConfigError(
                f"scenario {self.name!r} has no demonstrations: it is in words, which the tiny base cannot read. "
                "Name a model that can, such as model=smollm2, or one of your own by model.path=..."
            )
        return self.demonstrate(Random(seed), 1.0 if expert else self.skill)

    def fingerprint(self) -> str:
        sample = []
        for expert in (True, False):
            stream = self.demonstrations(0, expert=expert)
            sample += [part for _ in range(128) for part in next(stream)]
        return digest(self.name, self.options_key, *sample)


def expert_of(scenario: Scenario) -> Script | None:
    """The scenario's attribute `expert`, as `FolderScenario` has it. None: nobody wrote one."""
    expert: Script | None = getattr(scenario, "expert", None)
    return expert
