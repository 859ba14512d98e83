"""Functions in plain words, written in Python and run in the sandbox; tests are JSON objects.

A program is the first fenced block of a text, or the whole text where there is none, and defines `f`. A test is the
last object of the form `{"input": [3, 1], "output": 4}`. Nothing that a model wrote is evaluated in this process.
"""

import json
import re
from random import Random
from typing import Any

from mas.sandbox.inside.values import canonical
from mas.scenarios.code_team.judge import Given, judged, require_sandbox
from mas.scenarios.code_team.language import HOLDS, CodeAnswer, Function, share_of
from mas.scenarios.code_team.steps import EDGES, KINDS, NAMED, applied, draw_input, draw_steps, is_input

LONGEST = 4000
"""Characters of an action; a longer one is not legal, nor is one with control characters."""
DRAWN = 8
"""Golden tests besides those with edges."""
DISTINCT = 4
"""The least number of different outputs of the golden tests."""
_FENCED = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)
_OBJECT = re.compile(r"\{[^{}]*\}")
_FAILED = {
    "ok": "The program does not give this output.",
    "timeout": "The program does not end in time.",
    "memory": "The program takes too much memory.",
}
_BROKEN = "The program does not run."


class Worded:
    """Satisfies `Language`; `steps` is the number of steps of a function."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def make(self, random: Random) -> Function:
        """A task.

        Raises:
            ConfigError: this machine cannot run programs safely.
        """
        require_sandbox()
        while True:
            kind = random.choice(list(KINDS))
            steps = draw_steps(kind, self.steps, random)
            inputs = [*EDGES[kind], *(draw_input(kind, random) for _ in range(DRAWN))]
            outputs = [applied(kind, steps, given) for given in inputs]
            if _tells(inputs, outputs):
                golden = tuple(json.dumps(given) for given in inputs)
                return Function(kind=kind, steps=steps, spec=_sentences(kind, steps), golden=golden)

    def heard(self, coder: str, tester: str) -> CodeAnswer | None:
        if not (_is_readable(coder) and _is_readable(tester)):
            return None
        return CodeAnswer(_program_in(coder), _test_in(tester))

    def alone(self, text: str) -> CodeAnswer | None:
        return self.heard(text, text)

    def actions(self) -> None:
        return None

    def share(self, function: Function, program: str) -> float:
        return share_of(judged(program, golden_of(function))[1])

    def is_right(self, function: Function, test: str) -> bool:
        if not is_asked(function, test):
            return False
        given, wanted = _pair(test)
        return canonical(applied(function.kind, function.steps, given)) == canonical(wanted)

    def outcome(self, function: Function, program: str, test: str) -> str:
        if not is_asked(function, test):
            return f"The input is not {NAMED[function.kind]}, or too large."
        status, (passed,) = judged(program, (_pair(test),))
        return HOLDS if passed else _FAILED.get(status, _BROKEN)

    def solution(self, function: Function, random: Random) -> tuple[str, str]:
        lines = [KINDS[function.kind][name].code.replace("{k}", str(k)) for name, k in function.steps]
        program = "\n    ".join(["def f(x):", *lines, "return x"])
        given, wanted = random.choice(golden_of(function))
        return f"```python\n{program}\n```", _test_text(given, wanted)


def golden_of(function: Function) -> Given:
    """The golden tests: input and output."""
    inputs = [json.loads(given) for given in function.golden]
    return tuple((given, applied(function.kind, function.steps, given)) for given in inputs)


def is_asked(function: Function, test: str) -> bool:
    """Whether a test's input is one that the function takes."""
    return bool(test) and is_input(function.kind, _pair(test)[0])


def _tells(inputs: list[Any], outputs: list[Any]) -> bool:
    """Whether the golden tests tell the function from a constant, and from one that changes nothing."""
    return len({canonical(output) for output in outputs}) >= DISTINCT and inputs != outputs


def _sentences(kind: str, steps: tuple[tuple[str, int], ...]) -> str:
    told = [KINDS[kind][name].text.replace("{k}", str(k)) for name, k in steps]
    numbered = [f"{number}. {sentence}" for number, sentence in enumerate(told, 1)]
    return "\n".join([f"f(x) takes {NAMED[kind]} x, does this and returns the result:", *numbered])


def _is_readable(text: str) -> bool:
    return len(text) <= LONGEST and all(character.isprintable() or character in "\n\t" for character in text)


def _program_in(text: str) -> str:
    fenced = _FENCED.search(text)
    return (fenced[1] if fenced else text).strip("\n")


def _test_in(text: str) -> str:
    """The last test of a text in one form; empty where it has none."""
    for found in reversed(_OBJECT.findall(text)):
        try:
            test = json.loads(found)
            if isinstance(test, dict) and set(test) == {"input", "output"}:
                canonical(test["output"])
                return _test_text(test["input"], test["output"])
        except (ValueError, TypeError, RecursionError):
            continue
    return ""


def _test_text(given: object, wanted: object) -> str:
    return json.dumps({"input": given, "output": wanted})


def _pair(test: str) -> tuple[Any, Any]:
    read = json.loads(test)
    return read["input"], read["output"]
