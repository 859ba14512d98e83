"""Any environment of another package as a scenario that a team can be trained in, by its id.

A bridged game has measures, and if wanted single characters: one for each action, one for each seat.
"""

import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from random import Random
from typing import Annotated

from pydantic import Field, field_validator

from mas.core.environment import Environment, EnvironmentSpec, Observation, Task
from mas.core.errors import ConfigError
from mas.core.options import Options
from mas.core.role import RoleSpec
from mas.core.team import TeamSpec
from mas.scenarios.bridges import PREFIX, open_bridge
from mas.scenarios.game import GameEnvironment, game_below
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario, Style
from mas.scenarios.wrappers import TranslatedGame

SYMBOLS = string.digits + string.ascii_lowercase + string.ascii_uppercase
"""Characters that stand for actions 0, 1, 2, ..."""
SEATS = string.ascii_uppercase
"""Characters that stand for the first seat, the second, ..."""


class BridgedGame(TranslatedGame):
    """Seats, views, terms and rules of the game. In letters a view's `seat` is A, B, ..., `seen` has no white space,
    and `legal` has the characters of the legal actions, which are the actions then: action number n is `SYMBOLS[n]`.
    """

    def __init__(self, game: GameEnvironment, *, is_lettered: bool) -> None:
        super().__init__(game.spec, game)
        self._is_lettered = is_lettered

    def observe(self, view: str) -> Observation:
        fields = self.game.observe(view).fields
        if not self._is_lettered:
            return Observation(fields)
        seat = SEATS[self.spec.seats.index(view)]
        return Observation(
            {**fields, "seat": seat, "seen": squeezed(fields["seen"]), "legal": "".join(self.legal(view))}
        )

    def legal(self, seat: str) -> tuple[str, ...]:
        numbers = self.game.numbers(seat)
        return tuple(SYMBOLS[number] for number in numbers.values()) if self._is_lettered else tuple(numbers)

    def measures(self) -> Mapping[str, float]:
        """`payoff` of the first seat, `forfeit`: a seat lost by it, `illegal`: moves."""
        forfeit = bool(self.game.forfeited())
        return {"payoff": self.record.paid, "forfeit": float(forfeit), "illegal": float(self.record.illegal)}

    def text_of(self, seat: str, action: str) -> str:
        if not self._is_lettered or not action:
            return action
        found = {SYMBOLS[number]: text for text, number in self.game.numbers(seat).items()}
        return found.get(action, f"no action {action[:20]!r}")


def squeezed(seen: str) -> str:
    """Without quotes, and without white space: `/` for the end of a line, `_` for blanks."""
    lines = (re.sub(r"[ \t]+", "_", line.strip()) for line in re.sub(r"['\"`]", "", seen).splitlines())
    return "/".join(line for line in lines if line)


READABLE = string.digits + string.ascii_letters + " \n.,;:=<>()[]+-*/#?!_|"
"""The characters that the tiny base's tokenizer knows."""
_GAMES, _STEPS = 4, 200


@dataclass(frozen=True, slots=True)
class BridgeProbe:
    """`actions`: how many there are; `longest`: characters of a prompt; `unknown`: characters that are not readable."""

    actions: int
    longest: int
    unknown: frozenset[str]


@lru_cache(maxsize=256)
def probe(name: str) -> BridgeProbe:
    """Play a few random games; actions are then 0 where there are no numbers for them.

    Raises:
        ConfigError: as `open_bridge`.
    """
    game = open_bridge(name)
    if not isinstance(game, GameEnvironment) or game.game.actions() > len(SYMBOLS):
        return BridgeProbe(game.game.actions() if isinstance(game, GameEnvironment) else 0, 0, frozenset())
    random, longest, seen = Random(0), 0, set[str]()
    for seed in range(_GAMES):
        game.reset(Task(id="probe", seed=seed))
        for _ in range(_STEPS):
            moving = game.to_move()
            if not moving:
                break
            for seat in moving:
                text = squeezed(game.observe(seat).fields["seen"])
                longest, seen = max(longest, len(PROMPT.format(seat="A", seen=text))), seen | set(text)
            game.step({seat: random.choice(game.legal(seat) or ("",)) for seat in moving})
    return BridgeProbe(game.game.actions(), longest, frozenset(seen - set(READABLE)))


def check_letters(name: str, environment: Environment, probed: BridgeProbe) -> None:
    """Refuse what cannot be played in letters.

    Raises:
        ConfigError: says why, and what is possible.
    """
    instead = "Take scenario.options.style=words and a model that reads them, model.path=MODEL"
    why = None
    if game_below(environment) is None:
        why = "its actions are texts and have no numbers, so that there is no vocabulary to make a tiny base of"
    elif probed.actions > len(SYMBOLS):
        why = f"it has {probed.actions} actions, and there are {len(SYMBOLS)} characters to stand for them"
    elif len(environment.spec.seats) > len(SEATS):
        why = f"it has {len(environment.spec.seats)} seats, and there are {len(SEATS)} characters to stand for them"
    elif probed.unknown:
        why = f"its views have characters that the tiny base does not know: {' '.join(sorted(probed.unknown)[:20])}"
    if why is not None:
        raise ConfigError(f"{name} cannot be trained with style=letters: {why}. {instead}")


PROMPT = "{seat}{seen}>"
"""What the tiny base reads."""
SOLO = "solo"
_LETTERS = (
    "You play {name}. You see which seat you have (A is the first), and what this seat knows of the game in few "
    "characters. Answer with one character, that of a legal action."
)
_MOVE = r"(?s)(?:.*\n)?MOVE (?P<answer>[^\n]+)"
_THINK = "Think as long as you like; nobody but you reads it. "
_WORDS = {
    "game": (
        "You play {name}, in the seat that you are told.",
        "Which of the legal actions do you take? " + _THINK + "End with one line: MOVE and the action.",
        "{seat}|{seen}|{legal}|{note}>",
        _MOVE,
    ),
    "textarena": (
        "You play {name}.",
        "What do you do? "
        + _THINK
        + "End with one line: MOVE and your action as the rules write it, such as: MOVE [4]",
        "{rules}|{history}|{board}>",
        _MOVE,
    ),
    "textworld": (
        "You play a text adventure.",
        "Which of the commands do you give? " + _THINK + "End with one line: MOVE and the command.",
        "{objective}|{feedback}|{room}|{inventory}|{commands}>",
        _MOVE,
    ),
    "reasoning_gym": (
        "You answer questions.",
        "Think first, and end with the final answer alone between <answer> and </answer>, such as: <answer>12</answer>",
        "{question}>",
        None,
    ),
    "verifiers": (
        "You solve a task, with tools where there are any.",
        "Do what the task asks; your whole answer is read. Where tools are listed you may call one, as one line of "
        'JSON: {"name": TOOL, "arguments": {NAME: VALUE}}',
        "{seen}|{tools}>",
        None,
    ),
}
"""Kind of environment -> instructions and the last words of a chat prompt, the prompt of base models, and the pattern
of an answer."""
_ADVISE = "You see what your team mate, who acts, sees."
_ADVICE = "What should your team mate do now, and why? Answer in a few short sentences."


def game_name(name: str) -> str:
    """The id as people would say it, without package, folder and version: `open_spiel:tic_tac_toe` is tic tac toe."""
    bare = name.partition(":")[2].rpartition("/")[2]
    return re.sub(r"[-_]v[0-9]+.*", "", bare).replace("_", " ")


def letter_teams(name: str, spec: EnvironmentSpec, symbols: str) -> dict[str, TeamSpec]:
    """`team` has a role for each seat, `solo` one in all of them; each answers with one of the symbols."""
    role = RoleSpec(
        type="executor",
        instructions=_LETTERS.format(name=game_name(name)),
        template=PROMPT,
        choices=tuple(symbols),
        max_tokens=1,
    )
    return _teams(spec, role)


def word_teams(name: str, spec: EnvironmentSpec, symbols: str) -> dict[str, TeamSpec]:
    """The same in words; where one seat acts, an adviser speaks in `team` before the role that acts."""
    package = name.partition(":")[0]
    told, asked, template, pattern = _WORDS.get(package, _WORDS["game"])
    role = RoleSpec(
        type="executor",
        instructions=told.format(name=game_name(name)),
        template=template,
        format=asked,
        pattern=pattern,
        max_tokens=512,
    )
    teams = _teams(spec, role)
    if len(spec.seats) == 1:
        teams["team"] = _advised(spec, role)
    return teams


def _teams(spec: EnvironmentSpec, role: RoleSpec) -> dict[str, TeamSpec]:
    views = {seat: seat if seat in spec.views else SOLO for seat in spec.seats}
    per_seat = {seat: role.model_copy(update={"view": views[seat]}) for seat in spec.seats}
    if len(spec.seats) == 1:
        (seat,) = spec.seats
        own = {"name": "bridge", "seat": seat}
        return {
            "team": TeamSpec(roles={"player": per_seat[seat]}, edges=_edges("player"), output="player", **own),
            SOLO: TeamSpec(
                name="bridge_solo", roles={SOLO: per_seat[seat]}, edges=_edges(SOLO), output=SOLO, seat=seat
            ),
        }
    edges = tuple(edge for seat in spec.seats for edge in _edges(seat))
    plays, first = {seat: seat for seat in spec.seats}, spec.seats[0]
    return {
        "team": TeamSpec(name="bridge", roles=per_seat, edges=edges, output=first, seats=plays),
        SOLO: TeamSpec(
            name="bridge_solo",
            roles={SOLO: role},
            agents=dict.fromkeys(spec.seats, SOLO),
            edges=edges,
            output=first,
            seats=plays,
        ),
    }


def _advised(spec: EnvironmentSpec, role: RoleSpec) -> TeamSpec:
    (seat,) = spec.seats
    views = {name: name if name in spec.views else seat for name in ("planner", "executor")}
    planner = RoleSpec(
        type="planner",
        instructions=_ADVISE,
        format=_ADVICE,
        template=f"{role.template}\nAdvice:",
        view=views["planner"],
        max_tokens=256,
    )
    executor = role.model_copy(
        update={"template": f"{role.template}\nAdvice: {{from.planner}}\nAnswer:", "view": views["executor"]}
    )
    return TeamSpec(
        name="bridge",
        roles={"planner": planner, "executor": executor},
        edges=("start -> planner", "planner -> executor", "executor -> done"),
        output="executor",
        seat=seat,
    )


def _edges(agent: str) -> tuple[str, str]:
    return f"start -> {agent}", f"{agent} -> done"


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

    def read_teams(self) -> Mapping[str, TeamSpec]:
        return self.made

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
    from mas.scenarios.reasoning import ask  # it imports numpy, which `mas --help` does without

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
