"""One operation of an environment, again and again, on states that a random player comes to."""

import time
from collections.abc import Callable
from itertools import cycle
from random import Random

from benchmarks.scenarios.options import Amounts
from mas.core.environment import Environment, Script
from mas.core.errors import RunError
from mas.core.scenario import Scenario

STATES = 32
"""States that are cloned, taken down and restored."""
_TASKS = 256
"""Tasks that are walked through again and again; what makes a task is remembered."""


class Operation:
    """Makes operations until the time of a round is over. `operate` is told the operation's number, from 0."""

    def __init__(self, name: str, amounts: Amounts, operate: Callable[[int], object]) -> None:
        self._name = name
        self._amounts = amounts
        self._operate = operate

    @property
    def name(self) -> str:
        return self._name

    async def run(self, number: int) -> int:
        made, operate, batch = 0, self._operate, self._amounts.batch
        until = time.perf_counter() + self._amounts.seconds
        while not made or time.perf_counter() < until:
            for place in range(batch):
                operate(made + place)
            made += batch
        return made


class Walk:
    """One environment, stepped by a policy from task to task; the policy's own time and that of `reset` count."""

    def __init__(self, scenario: Scenario, policy: Script) -> None:
        self._scenario, self._policy = scenario, policy
        self._environment = scenario.environment()
        self._random = Random(0)
        self._numbers = cycle(range(_TASKS))
        self._begin()

    def _begin(self) -> None:
        self._environment.reset(self._scenario.task("train", next(self._numbers)))

    def step(self, number: int) -> None:
        """One step; behind the end of an episode the next one's first.

        Raises:
            RunError: the policy cannot tell what to do.
        """
        if not self._environment.to_move():
            self._begin()
        actions = self._policy(self._environment, self._random)
        if actions is None:
            raise RunError(f"the actions of {self._scenario.name} cannot be listed: nobody can step it")
        self._environment.step(actions)

    def states(self) -> list[Environment]:
        """Copies of the environment, a step apart."""
        found = []
        for number in range(STATES):
            self.step(number)
            found.append(self._environment.clone())
        return found
