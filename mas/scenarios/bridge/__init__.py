"""Any environment of another package as a scenario that a team can be trained in, by its id."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Annotated

from pydantic import Field, field_validator

from mas.core.environment import Environment, Task
from mas.core.errors import ConfigError
from mas.core.options import Options
from mas.core.team import TeamSpec
from mas.scenarios.bridge.environment import (
    PROMPT,
    SYMBOLS,
    BridgedGame,
    BridgeProbe,
    check_letters,
    letter_teams,
    probe,
    word_teams,
)
from mas.scenarios.bridges import PREFIX, open_bridge
from mas.scenarios.game import GameEnvironment
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario, Style


class BridgeOptions(Options):
    """`id`: which environment, PACKAGE:NAME, as docs/bridges.md lists them.

    `style`: single characters, one for each action, which the tiny base can learn, or words, for real models. `tries`:
    in games, so many turns without a legal move at one decision lose the game. `skill`: how often the last teacher of
    the tiny base draws among all legal moves; else it makes the first.
    """

    id: str = "open_spiel:tic_tac_toe"
    style: Style = "letters"
    tries: Annotated[int, Field(ge=1, le=9)] = 1
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.9

    @field_validator("id")
    @classmethod
    def _of_a_bridge(cls, name: str) -> str:
        package, _, rest = name.partition(":")
        if package not in PREFIX or not rest:
            raise ValueError(f"{name!r} is no id of a bridge: write PACKAGE:NAME, PACKAGE one of {', '.join(PREFIX)}")
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeScenario(FolderScenario):
    """Its teams are made from the environment's seats. `probed`: what a few random games told; None: in words."""

    made: Mapping[str, TeamSpec]
    probed: BridgeProbe | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "teams", self.made)

    @property
    def longest_prompt(self) -> int:
        """Characters of the longest prompt with its answer, in a few random games; 0: not known."""
        return 0 if self.probed is None else self.probed.longest + 1


def build(options: BridgeOptions) -> BridgeScenario:
    """The scenario with these options.

    Raises:
        ConfigError: no such id, its package is not installed, or in letters an environment that the tiny base could not
            be taught: says why, and what is possible.
    """
    environment = _environment(options)
    is_lettered = options.style == "letters"
    probed = probe(options.id) if is_lettered else None
    if probed is not None:
        check_letters(options.id, environment, probed)
    teams = letter_teams if is_lettered else word_teams
    return BridgeScenario(
        __file__,
        options,
        partial(_environment, options),
        partial(_content, name=options.id),
        partial(_demonstrations, options=options),
        made=teams(options.id, environment.spec, SYMBOLS[: probed.actions] if probed is not None else ""),
        probed=probed,
    )


def _environment(options: BridgeOptions) -> Environment:
    opened = open_bridge(options.id)
    if not isinstance(opened, GameEnvironment):
        return opened
    game = GameEnvironment(opened.game, tries=options.tries)
    return BridgedGame(game, is_lettered=options.style == "letters")


def _content(random: Random, name: str) -> str:
    """What tells two tasks apart: the question, where a package asks one; else the seed. Every seed is a task of its
    own, though where chance plays no part all of them are the same game."""
    package, _, dataset = name.partition(":")
    if package == "verifiers":
        from mas.scenarios.bridges.verifiers import task_key

        return task_key(dataset, random)
    if package != "reasoning_gym":
        return str(random.getrandbits(48))
    from mas.scenarios.reasoning.reasoning_gym import ask  # it imports numpy, which `mas --help` does without

    return str(ask(dataset, {}, random).entry["question"])


def _demonstrations(random: Random, skill: float, options: BridgeOptions) -> Iterator[tuple[str, str]]:
    """(prompt, move) of random games: any legal move with probability `skill`, else the first one."""
    if options.style == "words":
        raise ConfigError(
            f"scenario 'bridge' has no demonstrations of {options.id} in words, which the tiny base cannot read: name "
            "a model that can, model.path=MODEL, or set scenario.options.style=letters"
        )
    environment = _environment(options)
    while True:
        environment.reset(Task(id="shown", seed=random.getrandbits(48)))
        while seats := environment.to_move():
            actions = {}
            for seat in seats:
                legal = environment.legal(seat) or ("",)
                shown = random.choice(legal) if random.random() < skill else legal[0]
                yield PROMPT.format(**environment.observe(seat).fields), shown
                actions[seat] = random.choice(legal)
            environment.step(actions)


ENTRY = ScenarioEntry(BridgeOptions, build, "self-play")
