"""Validation and test tasks: two parts of a scenario's held-out tasks that share no content."""

from collections.abc import Callable, Iterator
from typing import Literal

from mas.core.environment import Task
from mas.core.errors import ConfigError
from mas.core.scenario import Finite, Scenario, ScenarioWrapper, Split, SplitByContent
from mas.core.seeds import derive_seed

Part = Literal["validation", "test"]
_TRIES = 200
"""Held-out tasks that are looked at for each one that is wanted."""


class HeldOutPart(ScenarioWrapper):
    """A scenario whose `eval` split is one part of that of another; training tasks are the other's.

    A held-out content belongs to `validation` or to `test` by its hash, half to half, so no content is in both whatever
    the options or indices. Every content is there once, in the order in which the scenario makes them.

    Raises:
        ConfigError: the scenario does not split its tasks by content.
    """

    def __init__(self, scenario: Scenario, part: Part) -> None:
        if not isinstance(scenario, SplitByContent):
            raise ConfigError(
                f"scenario {scenario.name!r} does not split its tasks by content, so validation and test tasks of it "
                "may be equal: choose a scenario that does, such as relay"
            )
        super().__init__(scenario)
        self.part: Part = part
        self._content_of = scenario.content_of
        self._tasks: list[Task] = []
        self._search = self._found()
        for name in dir(scenario):  # what it can do beside `Scenario`; protocols are looked up without __getattr__
            if not name.startswith("_") and not hasattr(type(self), name):
                setattr(self, name, getattr(scenario, name))
        if isinstance(scenario, Finite):
            own = scenario.size
            self.size: Callable[[Split], int] = lambda split: own(split) if split == "train" else self._count()

    def task(self, split: Split, index: int) -> Task:
        """The index-th training task, or held-out task of this part.

        Raises:
            ConfigError: there are not so many different ones.
        """
        if split == "train":
            return self._scenario.task(split, index)
        while len(self._tasks) <= index:
            task = next(self._search, None)
            if task is None:
                raise ConfigError(
                    f"scenario {self.name!r} has only {len(self._tasks)} different tasks for the {self.part} part with "
                    f"these options, and {index + 1} are wanted: make its tasks larger, or take fewer"
                )
            self._tasks.append(task)
        return self._tasks[index]

    def _found(self) -> Iterator[Task]:
        """Of each content of this part the first task, until `_TRIES` in a row bring nothing new."""
        seen: set[str] = set()
        misses = 0
        for task in self._every():
            content = self._content_of(task)
            is_test = derive_seed("part", self.name, content) % 2 == 1
            if is_test == (self.part == "test") and content not in seen:
                seen.add(content)
                misses = 0
                yield task
            elif (misses := misses + 1) >= _TRIES:
                return

    def _count(self) -> int:
        return sum(1 for _ in self._found())

    def _every(self) -> Iterator[Task]:
        index, end = 0, self._scenario.size("eval") if isinstance(self._scenario, Finite) else None
        while end is None or index < end:
            yield self._scenario.task("eval", index)
            index += 1
