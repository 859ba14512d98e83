"""Makes the list of tested games: `python tests/textarena_list.py > mas/scenarios/bridges/textarena.yaml`.

Every `-raw` game is played with random actions in two processes with different hash seeds, the network and the terminal
watched, the global random state disturbed, and played again from its snapshot. What fails any of it is left out.
"""

import builtins
import contextlib
import importlib
import io
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import yaml

from mas.core.environment import Environment, Task
from mas.core.seeds import digest
from mas.scenarios.bridges.textarena import TextArenaGame, game_environment

SEATS = (2, 1, 3, 4, 5, 6, 7)
EPISODES = 4
OPEN_END = 400
"""Actions after which a game ends that names no end of its own."""
SLOW_S = 3
SLOW = "too slow"
PROBE_S = 40
_BRACKETS = re.compile(r"\[[^\[\]\n]{1,40}\]")


class TooSlow(BaseException):
    """Too much CPU time went by; no `Exception`, so that no game catches it."""


def said(environment: Environment, seat: str, random: Random) -> str:
    """A random action: mostly one in brackets that the player was shown, with other numbers at times."""
    fields = environment.observe(seat).fields
    shown = _BRACKETS.findall(fields["rules"] + fields["board"] + fields["history"][-2000:])
    numbers = [f"[{random.randrange(10)}]", f"[{random.randrange(8)} {random.randrange(8)}]"]
    text = random.choice([*shown, *shown, *numbers, f"[{random.choice('abcdefgh')}{random.randrange(9)}]", "", "hm"])
    if random.random() < 0.5:
        text = re.sub(r"\d+", lambda _: str(random.randrange(10)), text)
    return text


def play(environment: Environment, seed: int) -> int:
    """Random play to the end while somebody disturbs the global generators; the number of steps."""
    own, steps = Random(seed), 0
    while seats := environment.to_move():
        random.seed(steps)
        before = random.getstate()
        step = environment.step({seat: said(environment, seat, own) for seat in seats})
        assert random.getstate() == before, "it touched the global random state"
        assert all(abs(value) < 1e6 for paid in step.rewards.values() for value in paid.values())
        steps += 1
    return steps


@contextlib.contextmanager
def watched(limit_s: int) -> Iterator[list[str]]:
    """Names what is done that a game must not do: ask the network, print."""
    seen: list[str] = []

    def refused(*_: Any, **__: Any) -> Any:
        seen.append("asks the network")
        raise OSError("no network here")

    def rang(*_: object) -> None:
        raise TooSlow

    printed = io.StringIO()
    kept = socket.socket.connect, socket.getaddrinfo, builtins.input
    socket.socket.connect = socket.getaddrinfo = builtins.input = refused
    signal.signal(signal.SIGPROF, rang)
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        with contextlib.redirect_stdout(printed):
            yield seen
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        socket.socket.connect, socket.getaddrinfo, builtins.input = kept
        if printed.getvalue():
            seen.append("prints to the terminal")


def seated(name: str) -> TextArenaGame:
    """The game with the number of players that it begins with."""
    for players in SEATS:
        environment, began = game_environment(name, TextArenaGame(players=players, max_turns=1)), time.process_time()
        try:
            environment.reset(Task(id="first", seed=1))
        except AssertionError:
            continue
        if time.process_time() - began > SLOW_S:
            raise TooSlow
        state = environment._world._state
        limit = state.max_turns * (1 + state.error_allowance) if state.max_turns else OPEN_END
        return TextArenaGame(players=players, max_turns=limit)
    raise ValueError("no number of players fits")


def probe(name: str) -> dict[str, Any]:
    """What became of a game: `players`, `max_turns` and a `proof` of its course, or the `reason` to leave it out."""
    try:
        with watched(PROBE_S) as seen:
            game = seated(name)
            proofs = [_episode(name, game, number) for number in range(EPISODES)]
    except TooSlow:
        return {"reason": SLOW}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is why the game is left out
        return {"reason": why(error) or (seen[0] if seen else f"breaks: {type(error.__cause__ or error).__name__}")}
    return {"reason": seen[0]} if seen else {**msgspec.structs.asdict(game), "proof": digest(*proofs)}


def _episode(name: str, game: TextArenaGame, number: int) -> str:
    environment = game_environment(name, game)
    began = time.process_time()
    environment.reset(Task(id=str(number), seed=number))
    if time.process_time() - began > SLOW_S:
        raise TooSlow
    if not environment.to_move():
        raise ValueError("it is over when it begins")
    play(environment, number)
    state = environment.snapshot()
    game_environment(name, game).restore(state)
    return state.decode()


def why(error: Exception) -> str | None:
    """The reason in words that do not change from machine to machine, None where it has none of its own."""
    text = str(error.__cause__ or error)
    if isinstance(error, SyntaxError):
        return "its source does not compile with Python 3.11"
    known = {
        "OPENROUTER": "needs a language model behind an API key",
        "nltk": "needs words that nltk downloads",
        "No such file": "its files are missing from the package",
        "directory not found": "its files are missing from the package",
        "Could not import": "its module is missing from the package",
        "played again showed something": "does not repeat itself",
    }
    return next((reason for part, reason in known.items() if part in text), None)


def probes(names: list[str]) -> list[dict[str, dict[str, Any]]]:
    """The probes of all of them in two processes with different hash seeds, at the same time."""
    command = [sys.executable, "-W", "ignore", __file__, *names]
    path = os.pathsep.join(sys.path)
    running = [
        subprocess.Popen(
            command,
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in (1, 2)
    ]
    return [json.loads(process.communicate()[0].splitlines()[-1]) for process in running]


def games() -> list[str]:
    """Ids of all games without wrappers."""
    registration = importlib.import_module("textarena.envs.registration")
    return [name for name in registration.ENV_REGISTRY if name.endswith("-raw")]


def listing() -> dict[str, Any]:
    """The whole list as the file holds it."""
    names = games()
    first, second = probes(names)
    tested, left_out = {}, {}
    for name in names:
        results = first[name], second[name]
        reasons = [result["reason"] for result in results if "reason" in result]
        if not reasons and results[0] != results[1]:
            reasons = ["does not repeat itself in another process"]
        if reasons:
            left_out[name] = reasons[0]
        else:
            tested[name] = {key: first[name][key] for key in ("players", "max_turns")}
    version = importlib.import_module("textarena").__version__
    return {"version": version, "tested": tested, "left_out": left_out}


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps({name: probe(name) for name in sys.argv[1:]}))
    else:
        print("# Made by tests/textarena_list.py.")
        print(yaml.safe_dump(listing(), sort_keys=False, default_flow_style=None, width=110), end="")
