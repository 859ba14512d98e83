"""PettingZoo's classic games (MIT), `pettingzoo:classic/tictactoe_v3`, and others by `PettingZooGame`.

What PettingZoo leaves to its users is done here: a copy is a copy, rewards are those of the step and not the sum that
`last` returns, an illegal action never reaches the game, and nothing is drawn from the generators of the whole process.
"""

import warnings
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Self

from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.scenarios.bridges.packages import drawing_from, load_package
from mas.scenarios.bridges.pettingzoo_games import GAMES, PettingZooText
from mas.scenarios.game import GameEnvironment
from mas.scenarios.game_rules import BridgeRules, named_actions

SHARED = ("observation_spaces", "action_spaces", "screen")
"""Attributes that no step changes (spaces, a surface that only a window draws on): copies have them in common."""


def copied(environment: Any, shared: Collection[str] = SHARED) -> Any:
    """An equal, independent copy, which has the attributes `shared` in common with the first.

    `EzPickle` gives environments a `__setstate__` that makes a fresh one from the arguments of the first, and
    `deepcopy` uses it. So the attributes are copied one by one, of the environment and of those that it wraps.
    """
    return _copied(environment, {}, shared)


def _copied(environment: Any, memo: dict[int, Any], shared: Collection[str]) -> Any:
    twin = object.__new__(type(environment))
    # Attributes that refer back to the environment find its copy there.
    memo[id(environment)] = twin
    for name, value in vars(environment).items():
        if name in shared:
            twin.__dict__[name] = value
        elif hasattr(value, "unwrapped") and id(value) not in memo:
            twin.__dict__[name] = _copied(value, memo, shared)
        else:
            twin.__dict__[name] = deepcopy(value, memo)
    return twin


EXTRA = "pettingzoo"
SEEDS = 2**31
"""Seeds that games take are below."""


def open_environment(name: str) -> GameEnvironment:
    """One of `GAMES`.

    Raises:
        ConfigError: PettingZoo is not installed, or the game is not among those that are tested.
    """
    if name not in GAMES:
        raise ConfigError(f"pettingzoo has no tested game {name!r}. {did_you_mean(name, GAMES)}")
    known = GAMES[name]
    is_at_once = known.dynamics == "simultaneous"
    with drawing_from(0):
        module, conversions = load_package(known.module, EXTRA), load_package("pettingzoo.utils.conversions", EXTRA)

    def make() -> Any:
        return conversions.aec_to_parallel(module.raw_env()) if is_at_once else module.raw_env()

    return GameEnvironment(PettingZooGame(replace(known, name=f"pettingzoo:{name}"), make, known.text))


@dataclass(frozen=True, slots=True)
class PettingZooGame:
    """Satisfies `mas.scenarios.game_rules.GameSource`.

    Actions are numbers (`Discrete`). Legal are those of the `action_mask` in the observation or the infos where there
    is one, all of the action space where not.

    Attributes:
        make: a fresh environment of agents that move in turn (`AECEnv`) or at once (`ParallelEnv`), without wrappers
            that judge actions.
        text: how it reads.
    """

    rules: BridgeRules
    make: Callable[[], Any]
    text: PettingZooText

    def actions(self) -> int:
        with drawing_from(0):
            environment = self.make()
            spaces = [environment.action_space(agent) for agent in environment.possible_agents]
        return max(int(space.start + space.n) for space in spaces)

    def begin(self, seed: int) -> "AecPosition | ParallelPosition":
        with drawing_from(seed), warnings.catch_warnings():
            # Gymnasium's, about a space that no longer fits its own dtype: nothing here reads it.
            warnings.filterwarnings("ignore", message=".*precision lowered by casting", category=UserWarning)
            environment = self.make()
            observed = environment.reset(seed=seed % SEEDS)
        agents = tuple(environment.possible_agents)
        if agents != self.rules.seats:
            raise ConfigError(f"{self.rules.name} has agents {agents}, its rules name seats {self.rules.seats}")
        paid = (0.0,) * len(agents)
        if observed is None:
            return AecPosition(environment, self.text, paid)
        observations, infos = observed
        return ParallelPosition(environment, self.text, paid, observations, infos)


class AecPosition:
    """Agents move in turn. Satisfies `mas.scenarios.game_rules.Position`."""

    def __init__(self, environment: Any, text: PettingZooText, paid: tuple[float, ...]) -> None:
        self._environment, self._text, self._paid = environment, text, paid

    def to_move(self) -> tuple[int, ...]:
        world = self._environment
        if all(self._is_out(agent) for agent in world.agents):
            return ()
        return (world.possible_agents.index(world.agent_selection),)

    def legal(self, seat: int) -> Mapping[str, int]:
        world, agent = self._environment, self._environment.possible_agents[seat]
        allowed = allowed_actions(world.observe(agent), world.infos[agent], world.action_space(agent))
        return named_actions((action, self._text.word(world, agent, action)) for action in allowed)

    def seen(self, seat: int) -> str:
        world = self._environment
        return self._text.seen(world, world.possible_agents[seat], world.observe(world.possible_agents[seat]))

    def advance(self, actions: Mapping[int, int], seed: int) -> None:
        world, (action,) = self._environment, actions.values()
        with drawing_from(seed):
            world.step(action)
            self._paid = added(self._paid, world.possible_agents, world.rewards)
            while self.to_move() and self._is_out(world.agent_selection):
                world.step(None)

    def totals(self) -> tuple[float, ...]:
        return self._paid

    def clone(self) -> Self:
        return type(self)(copied(self._environment), self._text, self._paid)

    def render(self) -> str:
        agents = self._environment.possible_agents
        return "\n".join(f"{agent} sees:\n{self.seen(seat)}" for seat, agent in enumerate(agents))

    def _is_out(self, agent: str) -> bool:
        return bool(self._environment.terminations[agent] or self._environment.truncations[agent])


class ParallelPosition:
    """All agents move at once. Satisfies `mas.scenarios.game_rules.Position`."""

    def __init__(
        self,
        environment: Any,
        text: PettingZooText,
        paid: tuple[float, ...],
        observations: Mapping[str, Any],
        infos: Mapping[str, Any],
    ) -> None:
        self._environment, self._text, self._paid = environment, text, paid
        self._observations, self._infos = observations, infos

    def to_move(self) -> tuple[int, ...]:
        world = self._environment
        return tuple(seat for seat, agent in enumerate(world.possible_agents) if agent in world.agents)

    def legal(self, seat: int) -> Mapping[str, int]:
        world, agent = self._environment, self._environment.possible_agents[seat]
        allowed = allowed_actions(self._observations[agent], self._infos[agent], world.action_space(agent))
        return named_actions((action, self._text.word(world, agent, action)) for action in allowed)

    def seen(self, seat: int) -> str:
        world, agent = self._environment, self._environment.possible_agents[seat]
        return self._text.seen(world, agent, self._observations[agent])

    def advance(self, actions: Mapping[int, int], seed: int) -> None:
        world = self._environment
        with drawing_from(seed):
            moves = {world.possible_agents[seat]: action for seat, action in actions.items()}
            observations, rewards, _, _, infos = world.step(moves)
        # Who is out keeps what it saw last.
        self._observations = {**self._observations, **observations}
        self._infos = {**self._infos, **infos}
        self._paid = added(self._paid, world.possible_agents, rewards)

    def totals(self) -> tuple[float, ...]:
        return self._paid

    def clone(self) -> Self:
        return type(self)(copied(self._environment), self._text, self._paid, self._observations, self._infos)

    def render(self) -> str:
        agents = self._environment.possible_agents
        return "\n".join(f"{agent} sees:\n{self.seen(seat)}" for seat, agent in enumerate(agents))


def allowed_actions(observation: Any, infos: Mapping[str, Any], space: Any) -> list[int]:
    """Numbers of the legal actions. A mask begins with the first action of the space, as when Gymnasium samples."""
    mask = observation.get("action_mask") if isinstance(observation, Mapping) else None
    if mask is None:
        mask = infos.get("action_mask")
    if mask is None:
        return list(range(int(space.start), int(space.start + space.n)))
    return [number for number, allowed in enumerate(mask.tolist(), int(space.start)) if allowed]


def added(paid: tuple[float, ...], agents: list[str], rewards: Mapping[str, Any]) -> tuple[float, ...]:
    """What each agent was paid with one step more; agents that are out get nothing."""
    return tuple(had + float(rewards.get(agent, 0)) for had, agent in zip(paid, agents, strict=True))
