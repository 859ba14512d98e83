"""Environments of Gymnasium (MIT) with one player: `gymnasium:FrozenLake-v1(is_slippery=false)`, and classes of users.

Those with numbered actions (`Discrete`) are games, whose actions are words here; those with texts (`Text`) are not.
Gymnasium's own are copied. A copy of any other plays the actions again from the seed when it is first used, and is
refused where that leads elsewhere.

Leaves out: environments whose actions are vectors or whose observations are pictures; vectorised environments; windows.
"""

import re
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pkgutil import resolve_name
from typing import Any, Self

from mas.core.environment import Environment, EnvironmentSpec, Step
from mas.core.errors import ConfigError, EnvironmentFault
from mas.core.naming import did_you_mean
from mas.core.seeds import digest
from mas.core.user_code import load_module
from mas.scenarios.bridges.gymnasium_games import GAMES, Described, GymnasiumGame
from mas.scenarios.bridges.packages import drawing_from, load_package, read_options
from mas.scenarios.bridges.pettingzoo import SEEDS, allowed_actions, copied
from mas.scenarios.game import TERM, GameEnvironment
from mas.scenarios.game_rules import BridgeRules, named_actions
from mas.scenarios.replay import ReplayedWorld, ReplayEnvironment

EXTRA, SEAT = "gymnasium", "player"
LONGEST = 100
"""Decisions of an environment that does not say how long it lasts."""
FLOOR = -1.0
"""What an environment that does not say how little it can pay pays a player that forfeits."""
_ID = re.compile(r"(?P<name>[^()]+)(?:\((?P<options>.*)\))?", re.DOTALL)


_OURS = "gymnasium.envs.toy_text."
"""The modules of Gymnasium's own text environments."""
_FIXED = ("P", "observation_space", "action_space", "spec", "_cached_spec", "desc", "initial_state_distrib")
"""Of these environments the attributes that no step changes."""


def open_environment(name: str) -> Environment:
    """One of `GAMES`, or an environment of a user: `file.py:CLASS`, `package.module:CLASS` or `module:ID-v0`.

    Args:
        name: with options in brackets where wanted, `FrozenLake-v1(is_slippery=false,map_name=8x8)`.

    Raises:
        ConfigError: Gymnasium is not installed, there is no such environment, it does not take the options, or its
            actions are neither numbers nor texts.
    """
    match = _ID.fullmatch(name)
    if match is None:
        raise ConfigError(f"gymnasium:{name}: write NAME or NAME(OPTION=VALUE,OPTION=VALUE)")
    short, options = match["name"], read_options(f"gymnasium:{name}", match["options"] or "")
    gymnasium = load_package("gymnasium", EXTRA)
    if ":" not in short and short not in GAMES:
        raise ConfigError(
            f"gymnasium has no tested environment {short!r}. {did_you_mean(short, GAMES)} One of your own is "
            "named path/file.py:CLASS or package.module:CLASS"
        )
    make = partial(_made, name, _maker(gymnasium, short), options)
    with drawing_from(0):
        first = make()
    game, space = GAMES.get(short) or _own(first), first.action_space
    if isinstance(space, gymnasium.spaces.Discrete):
        return GameEnvironment(GymnasiumSource(_rules(name, game, options), make, game))
    if isinstance(space, gymnasium.spaces.Text):
        spec = EnvironmentSpec(
            name=f"gymnasium:{name}", seats=(SEAT,), views=(SEAT,), max_turns=game.longest, terms=(TERM,)
        )
        return ReplayEnvironment(spec, partial(TextPlay, make, game))
    raise ConfigError(f"gymnasium:{name} has actions {space}: a team can act by numbers (Discrete) or texts (Text)")


def _maker(gymnasium: Any, short: str) -> Callable[..., Any]:
    """What makes the environment of a name, given options and perhaps a render mode."""
    place, _, attribute = short.rpartition(":")
    if not place or re.search(r"-v\d+$", attribute):
        if place:
            load_module(f"environment {short!r}", place, "path/file.py:CLASS")
        try:
            known = gymnasium.spec(attribute)
            entry = known.entry_point
            kind = entry if callable(entry) else resolve_name(str(entry))
        except (gymnasium.error.Error, ImportError, AttributeError) as error:
            raise ConfigError(f"gymnasium:{short} cannot be made: {error}") from error
        return partial(gymnasium.make, attribute, disable_env_checker=True, **_mode(kind))
    members = vars(load_module(f"environment {short!r}", place, "path/file.py:CLASS"))
    kind = members.get(attribute)
    if not (isinstance(kind, type) and issubclass(kind, gymnasium.Env)):
        kinds = [key for key, each in members.items() if isinstance(each, type) and issubclass(each, gymnasium.Env)]
        raise ConfigError(
            f"gymnasium:{short}: {place} has no subclass {attribute!r} of gymnasium.Env. "
            + did_you_mean(attribute, kinds)
        )
    return partial(kind, **_mode(kind))


def _mode(kind: Any) -> dict[str, str]:
    """The render mode of texts, where a class has it and Gymnasium's own bridge does not describe it better."""
    metadata = getattr(kind, "metadata", None) or {}
    is_described = getattr(kind, "__module__", "").startswith(_OURS)
    return {"render_mode": "ansi"} if "ansi" in metadata.get("render_modes", ()) and not is_described else {}


def _made(name: str, make: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    try:
        return make(**options)
    except Exception as error:  # whatever an environment raises that does not take the options
        raise ConfigError(
            f"gymnasium:{name} cannot be made: {type(error).__name__}: {error}. Options were {dict(options)}"
        ) from error


def _own(environment: Any) -> GymnasiumGame:
    """What holds for an environment of a user: its attributes `floor` and `max_turns`, and its registration."""
    world, spec = environment.unwrapped, environment.spec
    limit = getattr(world, "max_turns", None) or getattr(spec, "max_episode_steps", None) or LONGEST
    return GymnasiumGame(text=Described(), floor=float(getattr(world, "floor", FLOOR)), longest=int(limit))


def _rules(name: str, game: GymnasiumGame, options: Mapping[str, Any]) -> BridgeRules:
    floor = game.worst * game.longest if game.floor is None else game.floor
    is_calm = game.slippery is not None and not options.get("is_slippery", game.slippery)
    return BridgeRules(
        name=f"gymnasium:{name}",
        seats=(SEAT,),
        payoff="free",
        floor=floor,
        longest=game.longest,
        has_chance=not is_calm,
    )


class GymnasiumSource:
    """Satisfies `mas.scenarios.game_rules.GameSource`. `make`: a fresh environment."""

    def __init__(self, rules: BridgeRules, make: Callable[[], Any], game: GymnasiumGame) -> None:
        self.rules, self._make, self._game = rules, make, game

    def actions(self) -> int:
        with drawing_from(0):
            space = self._make().action_space
        return int(space.start + space.n)

    def begin(self, seed: int) -> "GymnasiumPosition":
        start = partial(GymnasiumEpisode, self._make, self._game, seed)
        return GymnasiumPosition(self.rules.name, start, start())


class GymnasiumEpisode:
    """An episode that runs.

    Attributes:
        observation, info: what the last step or the reset returned. seen: the observation in words.
        paid: all rewards so far. is_solved: the episode is over and was a success.
    """

    def __init__(self, make: Callable[[], Any], game: GymnasiumGame, seed: int) -> None:
        self._game, self.paid, self.is_over, self.is_solved = game, 0.0, False, False
        with drawing_from(seed):
            self.environment = make()
            weakref.finalize(self, self.environment.close)
            self._note(*self.environment.reset(seed=seed % SEEDS))

    def step(self, action: Any, seed: int) -> float:
        """Act; returns what was paid. `seed`: of the generators that the whole process shares."""
        with drawing_from(seed):
            observation, reward, is_terminated, is_truncated, info = self.environment.step(action)
            self._note(observation, info)
        self.paid += float(reward)
        self.is_over = bool(is_terminated or is_truncated)
        reported = info.get("is_success", info.get("success"))
        ended = is_terminated if self._game.is_solved_at_end else self.paid > 0
        self.is_solved = self.is_over and bool(ended if reported is None else reported)
        return float(reward)

    def copy(self) -> Self | None:
        """An equal, independent copy; None: only playing again makes one."""
        if not type(self.environment.unwrapped).__module__.startswith(_OURS):
            return None
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__, environment=copied(self.environment, _FIXED))
        return twin

    def word(self, action: int) -> str:
        """What an action is called."""
        return self._game.text.word(self.environment, action)

    def _note(self, observation: Any, info: Any) -> None:
        self.observation, self.info = observation, info
        self.seen = self._game.text.seen(self.environment, observation)


class GymnasiumPosition:
    """Satisfies `mas.scenarios.game_rules.Position`."""

    def __init__(self, name: str, start: Callable[[], GymnasiumEpisode], running: GymnasiumEpisode) -> None:
        self._name, self._start = name, start
        self._running: GymnasiumEpisode | None = running
        self._played: tuple[tuple[int, int], ...] = ()
        self._proof = digest(running.seen)

    def to_move(self) -> tuple[int, ...]:
        return () if self._live().is_over else (0,)

    def legal(self, seat: int) -> Mapping[str, int]:
        running = self._live()
        allowed = allowed_actions(running.observation, running.info, running.environment.action_space)
        return named_actions((action, running.word(action)) for action in allowed)

    def seen(self, seat: int) -> str:
        return self._live().seen

    def advance(self, actions: Mapping[int, int], seed: int) -> None:
        running, action = self._live(), actions[0]
        try:
            running.step(action, seed)
        except Exception as error:
            self._running = None
            raise EnvironmentFault(
                f"{self._name}: the environment raised {type(error).__name__} at action {action}: {error}"
            ) from error
        self._played, self._proof = (*self._played, (action, seed)), _proof(self._proof, running)

    def totals(self) -> tuple[float, ...]:
        return (self._live().paid,)

    def solved(self) -> bool:
        """Whether the episode is over and was a success."""
        return self._live().is_solved

    def clone(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__, _running=None if self._running is None else self._running.copy())
        return twin

    def render(self) -> str:
        return self._live().seen

    def _live(self) -> GymnasiumEpisode:
        """The episode itself; of a copy that was not used yet, after all actions.

        Raises:
            EnvironmentFault: the same actions led somewhere else.
        """
        if self._running is None:
            running = self._start()
            proof = digest(running.seen)
            for action, seed in self._played:
                if running.is_over:
                    break
                running.step(action, seed)
                proof = _proof(proof, running)
            if proof != self._proof:
                raise EnvironmentFault(
                    f"{self._name} cannot be copied: its {len(self._played)} actions, played again from the same seed, "
                    "led somewhere else. Let it draw from self.np_random alone, and keep nothing from one episode to "
                    "the next"
                )
            self._running = running
        return self._running


def _proof(before: str, running: GymnasiumEpisode) -> str:
    return digest(before, running.seen, str(running.paid), running.is_over)


class TextPlay(ReplayedWorld):
    """An environment whose actions are texts.

    A text that the action space does not contain is illegal and does not reach the environment.
    """

    def __init__(self, make: Callable[[], Any], game: GymnasiumGame, seed: int) -> None:
        self._running, self._seed, self._steps = GymnasiumEpisode(make, game, seed), seed, 0

    def to_move(self) -> str | None:
        return None if self._running.is_over else SEAT

    def act(self, action: str) -> Step:
        if not self._running.environment.action_space.contains(action):
            return Step(rewards={SEAT: {TERM: 0.0}}, illegal=(SEAT,) if action else ())
        self._steps += 1
        return Step(rewards={SEAT: {TERM: self._running.step(action, self._seed + self._steps)}})

    def fields(self, view: str) -> Mapping[str, str]:
        most = self._running.environment.action_space.max_length
        return {
            "seat": SEAT,
            "seen": self._running.seen,
            "legal": f"a text of at most {most} characters",
            "note": "",
        }

    def success(self) -> bool:
        return self._running.is_solved

    def render(self) -> str:
        return self._running.seen
