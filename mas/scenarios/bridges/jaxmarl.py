"""JaxMARL's environments with discrete actions (Apache-2.0), such as `jaxmarl:coin_game`.

Its environments are pure functions of a key and a state, so one compiled pair of functions serves all episodes of an
id, and a copy is a reference to the same arrays. The key of a step follows from the task's seed. The environments'
automatic reset is not used: an episode that is over stays over.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from io import StringIO
from typing import Any, Self

import numpy as np

from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.scenarios.bridges.jaxmarl_games import GAMES, JaxMarlGame
from mas.scenarios.bridges.packages import load_package
from mas.scenarios.game import GameEnvironment
from mas.scenarios.game_rules import named_actions

EXTRA = "jaxmarl"
_BITS = 2**32


def open_environment(name: str) -> GameEnvironment:
    """One of `GAMES`.

    Raises:
        ConfigError: JaxMARL is not installed, or the environment is not among those that are tested.
    """
    if name not in GAMES:
        raise ConfigError(f"jaxmarl has no tested environment {name!r}. {did_you_mean(name, GAMES)}")
    known = GAMES[name]
    return GameEnvironment(JaxGame(replace(known, name=f"jaxmarl:{name}"), _compiled(name)))


@dataclass(frozen=True, slots=True)
class Compiled:
    """An environment's functions, compiled at their first call and then shared by all episodes.

    Attributes:
        counts: the number of actions of each agent.
        begin: key -> `Frame`. advance: key, state, one action per agent -> `Frame`.
    """

    counts: tuple[int, ...]
    begin: Callable[[Any], "Frame"]
    advance: Callable[[Any, Any, Any], "Frame"]


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything between two decisions, as NumPy arrays that nobody changes.

    Attributes:
        observations, rewards, masks, dones: one per agent, in the environment's order. A mask holds 1 for a legal
            action. `dones`: agents that act no more.
        is_over: the episode has ended.
    """

    state: Any
    observations: tuple[Any, ...]
    masks: tuple[Any, ...]
    rewards: tuple[float, ...] = ()
    dones: tuple[bool, ...] = ()
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class JaxGame:
    """Satisfies `mas.scenarios.game_rules.GameSource`."""

    rules: JaxMarlGame
    compiled: Compiled = field(repr=False)

    def actions(self) -> int:
        return max(self.compiled.counts)

    def begin(self, seed: int) -> "JaxPosition":
        return JaxPosition(self, self.compiled.begin(_key(seed)), (0.0,) * len(self.rules.seats))


class JaxPosition:
    """All agents move at once. Satisfies `mas.scenarios.game_rules.Position`."""

    def __init__(self, game: JaxGame, frame: Frame, paid: tuple[float, ...]) -> None:
        self._game, self._frame, self._paid = game, frame, paid

    def to_move(self) -> tuple[int, ...]:
        if self._frame.is_over:
            return ()
        dones = self._frame.dones or (False,) * len(self._game.rules.seats)
        return tuple(seat for seat, is_out in enumerate(dones) if not is_out)

    def legal(self, seat: int) -> Mapping[str, int]:
        allowed = np.flatnonzero(self._frame.masks[seat]).tolist()
        return named_actions((action, self._game.rules.text.word(seat, action)) for action in allowed)

    def seen(self, seat: int) -> str:
        return self._game.rules.text.seen(seat, self._frame.observations[seat])

    def advance(self, actions: Mapping[int, int], seed: int) -> None:
        # Agents that act no more are given their first legal action, which does nothing.
        chosen = [actions.get(seat, int(np.argmax(mask))) for seat, mask in enumerate(self._frame.masks)]
        self._frame = self._game.compiled.advance(_key(seed), self._frame.state, np.array(chosen, dtype=np.int32))
        self._paid = tuple(had + reward for had, reward in zip(self._paid, self._frame.rewards, strict=True))

    def totals(self) -> tuple[float, ...]:
        return self._paid

    def clone(self) -> Self:
        return type(self)(self._game, self._frame, self._paid)

    def render(self) -> str:
        return "\n".join(f"{name} sees:\n{self.seen(seat)}" for seat, name in enumerate(self._game.rules.seats))


@cache
def _compiled(name: str) -> Compiled:
    jax, environment = _make(name)
    agents = list(environment.agents)
    counts = tuple(int(environment.action_space(agent).n) for agent in agents)
    base = load_package("jaxmarl.environments", EXTRA).MultiAgentEnv
    has_masks = type(environment).get_avail_actions is not base.get_avail_actions
    takes_tuple = name == "storm_2p"

    def masks(state: Any) -> Any:
        if has_masks:
            return _listed(environment.get_avail_actions(state), agents)
        return tuple(np.ones(count, dtype=np.uint8) for count in counts)

    @jax.jit  # type: ignore[untyped-decorator, unused-ignore]
    def begin(key: Any) -> Any:
        observations, state = environment.reset(key)
        return state, _listed(observations, agents), masks(state)

    @jax.jit  # type: ignore[untyped-decorator, unused-ignore]
    def advance(key: Any, state: Any, actions: Any) -> Any:
        moves = tuple(actions) if takes_tuple else {agent: actions[seat] for seat, agent in enumerate(agents)}
        observations, state, rewards, dones, _ = environment.step_env(key, state, moves)
        outs = tuple(dones.get(agent, False) for agent in agents)
        return ((state, _listed(observations, agents), masks(state)), _listed(rewards, agents), outs, dones["__all__"])

    def first(key: Any) -> Frame:
        state, observations, allowed = jax.device_get(begin(key))
        return Frame(state, observations, allowed)

    def following(key: Any, state: Any, actions: Any) -> Frame:
        (state, observations, allowed), rewards, outs, is_over = jax.device_get(advance(key, state, actions))
        paid = tuple(float(reward) for reward in rewards)
        return Frame(state, observations, allowed, paid, tuple(bool(out) for out in outs), bool(is_over))

    return Compiled(counts, first, following)


def _make(name: str) -> tuple[Any, Any]:
    """JAX, and the environment by JaxMARL's name, with its layout or its units after the stroke."""
    kind, _, variant = name.partition("/")
    # The CPU is as fast for one episode, and JAX would take most of a GPU's memory for itself.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    with _silenced(), warnings.catch_warnings():
        # Overcooked's, about its successor.
        warnings.simplefilter("ignore", DeprecationWarning)
        package, jax = load_package("jaxmarl", EXTRA), load_package("jax", EXTRA)
        options: dict[str, Any] = {}
        if kind == "overcooked":
            options["layout"] = load_package("jaxmarl.environments.overcooked", EXTRA).overcooked_layouts[variant]
        elif variant:
            options["scenario"] = load_package("jaxmarl.environments.smax", EXTRA).map_name_to_scenario(variant)
        return jax, package.make(kind, **options)


@contextmanager
def _silenced() -> Iterator[None]:
    """Drop what importing JaxMARL prints, which optional parts are missing, and put the process's streams back: it
    replaces them by those that Python began with."""
    names = ("stdout", "stderr", "__stdout__", "__stderr__")
    before = {name: getattr(sys, name) for name in names}
    sys.stdout = sys.__stdout__ = StringIO()  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        for name, stream in before.items():
            setattr(sys, name, stream)


def _key(seed: int) -> Any:
    """A key of JAX's default generator, two numbers of 32 bits."""
    return np.array([seed // _BITS % _BITS, seed % _BITS], dtype=np.uint32)


def _listed(by_agent: Any, agents: list[Any]) -> tuple[Any, ...]:
    return tuple(by_agent[agent] for agent in agents) if isinstance(by_agent, Mapping) else tuple(by_agent)
