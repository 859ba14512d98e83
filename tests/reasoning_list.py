"""Makes the list of tested datasets:

    python tests/reasoning_list.py > mas/scenarios/reasoning/data/reasoning_gym.yaml

Questions of every dataset are made in two processes with different hash seeds; its scorer must give the dataset's own
answer full marks, junk less than half, must not break, and must not run what it reads as code.
"""

import contextlib
import importlib
import io
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from random import Random
from typing import Any

import yaml

from mas.core.seeds import digest
from mas.scenarios.bridges.packages import OwnChance
from mas.scenarios.reasoning import GymQuestion, ask

QUESTIONS = 4
SLOW_S = 2
PROBE_S = 60
JUNK = (
    *(" ", "?", "-", "junk", "no idea", "None", "nan", "inf", "-inf", "1e999", "1e-999", "[]", "{}", "()", "[[]]"),
    *("null", "''", '""', "0/0", "1/0", "[[[[", "}}}}", "a" * 3000, "9" * 3000, "[" * 1500, "(" * 1500, "\n\n\n"),
    *("[1, 2]", "[[1, 2], [3, 4]]", "1 + 1", "(1 + 2) * 3", "x**2 + 1", "{'a': 1}", '{"a": 1}', "2 ** 3", "x y z"),
    *("the answer is within this sentence", "\u2603 \u00fc \U0001f600", "; ".join("abc"), ", ".join("123"), "A->B"),
)
"""Texts that answer nothing, or next to nothing; some of them parse as what a scorer might look for."""


class TooSlow(BaseException):
    """Too much CPU time went by; no `Exception`, so that no scorer catches it."""


class Code:
    """Hears every `eval` and `exec`; an audit hook stays for the life of the process."""

    def __init__(self) -> None:
        self.is_on = False
        self.heard = 0
        sys.addaudithook(self._hear)

    def _hear(self, event: str, _: tuple[Any, ...]) -> None:
        self.heard += self.is_on and event in ("exec", "compile", "os.system", "subprocess.Popen")


@contextlib.contextmanager
def watched(limit_s: int) -> Iterator[list[str]]:
    """Names what is done that a dataset must not do."""
    seen: list[str] = []

    def refused(*_: Any, **__: Any) -> Any:
        seen.append("asks the network")
        raise OSError("no network here")

    def rang(*_: object) -> None:
        raise TooSlow

    kept = socket.socket.connect, socket.getaddrinfo
    socket.socket.connect = socket.getaddrinfo = refused
    signal.signal(signal.SIGPROF, rang)
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield seen
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        socket.socket.connect, socket.getaddrinfo = kept
        if printed.getvalue():
            seen.append("prints to the terminal")


def probe(name: str, code: Code) -> dict[str, Any]:
    """What became of a dataset: a `proof` of its questions, or the `reason` to leave it out."""
    if name in ("codeio", "composite"):
        return {"reason": {"codeio": "runs code of unknown origin", "composite": "a mixture of others"}[name]}
    try:
        with watched(PROBE_S) as seen:
            questions = [_asked(name, number) for number in range(QUESTIONS)]
            reasons = [reason for question in questions for reason in judged(question, code)]
    except TooSlow:
        return {"reason": "too slow"}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is why the dataset is left out
        return {"reason": seen[0] if seen else f"makes no question: {type(error).__name__}"}
    reasons = [*seen, *sorted(reasons)]
    if reasons:
        return {"reason": reasons[0]}
    return {"proof": digest(*(f"{question.entry['question']}{question.entry['answer']}" for question in questions))}


def _asked(name: str, number: int) -> GymQuestion:
    began = time.process_time()
    random.seed(number)
    before = random.getstate()
    question = ask(name, {}, Random(number))
    assert random.getstate() == before
    if time.process_time() - began > SLOW_S and number:
        raise TooSlow
    if not isinstance(question.entry["answer"], str):
        raise TypeError("the answer is no text")
    return question


def judged(question: GymQuestion, code: Code) -> Iterator[str]:
    """What is wrong with a scorer."""
    answer = question.entry["answer"]
    if not answer or not all(letter.isprintable() or letter in "\n\t" for letter in answer):
        yield "its own answer is no readable text"
        return
    if _scored(question, answer, code)[0] < 1:
        yield "gives its own answer less than full marks"
    for text in (answer, *JUNK, f"{answer} {answer}", answer[::-1], answer[: len(answer) // 2]):
        began = time.process_time()
        try:
            score, runs = _scored(question, text, code)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is why the dataset is left out
            yield f"its scorer breaks at junk: {type(error).__name__}"
            continue
        if runs:
            yield "its scorer evaluates text as code"
        if not 0 <= score <= 1:
            yield "scores beyond 0 to 1"
        if text in JUNK and score >= 0.5 and text.strip() != answer.strip():
            yield "gives junk half the marks or more"
        if time.process_time() - began > SLOW_S:
            yield "its scorer is slow at junk"


def _scored(question: GymQuestion, text: str, code: Code) -> tuple[float, int]:
    with OwnChance(0):
        question.dataset.score_answer(text, question.entry)
        code.heard, code.is_on = 0, True
        try:
            return float(question.dataset.score_answer(text, question.entry)), code.heard
        finally:
            code.is_on = False


def names() -> list[str]:
    """All datasets."""
    importlib.import_module("reasoning_gym")
    return sorted(importlib.import_module("reasoning_gym.factory").DATASETS)


def probes(wanted: list[str]) -> list[dict[str, dict[str, Any]]]:
    """The probes of all of them in two processes with different hash seeds, at the same time."""
    command = [sys.executable, "-W", "ignore", __file__, *wanted]
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


def listing() -> dict[str, Any]:
    """The whole list as the file holds it."""
    wanted = names()
    first, second = probes(wanted)
    tested, left_out = [], {}
    for name in wanted:
        reasons = [result["reason"] for result in (first[name], second[name]) if "reason" in result]
        if not reasons and first[name] != second[name]:
            reasons = ["does not repeat itself in another process"]
        if reasons:
            left_out[name] = reasons[0]
        else:
            tested.append(name)
    return {"version": version("reasoning-gym"), "tested": tested, "left_out": left_out}


if __name__ == "__main__":
    if sys.argv[1:]:
        importlib.import_module("reasoning_gym")
        hears = Code()
        print(json.dumps({name: probe(name, hears) for name in sys.argv[1:]}))
    else:
        print("# Made by tests/reasoning_list.py.")
        print(yaml.safe_dump(listing(), sort_keys=False, default_flow_style=False, width=110), end="")
