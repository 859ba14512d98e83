"""Teams for the seats of a bridged environment: a role for each, and one role for all."""

import re

from mas.core.environment import EnvironmentSpec
from mas.core.team import RoleSpec, TeamSpec

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
