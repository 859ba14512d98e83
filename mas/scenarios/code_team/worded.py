"""Functions in plain words, written in Python and run in the sandbox; tests are JSON objects.

A program is the first fenced block of a text, or the whole text where there is none, and defines `f`. A test is the
last object of the form `{"input": [3, 1], "output": 4}`. Nothing that a model wrote is evaluated in this process.

What model-written programs do, found out in the sandbox alone, and remembered. A program is asked once for each set of
tests: later answers come from memory, so that within a process equal actions have equal consequences, whatever a clock
says.

What functions in words are made of: steps, each with its sentence, what it does, and Python that does it. The sentence
is what the team reads, `apply` is the hidden reference, and the code is what the expert writes. No text is ever
evaluated out here: a task is the names of its steps and their parameters.
"""

import atexit
import json
import re
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import accumulate
from random import Random
from typing import Any, NamedTuple

from mas.core.errors import ConfigError, SandboxError
from mas.core.printable import is_readable
from mas.sandbox.box import Sandbox
from mas.sandbox.inside.values import canonical
from mas.sandbox.mechanism import probe
from mas.sandbox.outcome import ProgramCase, SandboxLimits, Status
from mas.scenarios.code_team.language import HOLDS, CodeAnswer, Function, share_of

LIMITS = SandboxLimits(time_s=2, memory_mib=128, tasks=4, output_kib=16, disk_mib=1, entries=16)
Given = tuple[tuple[Any, Any], ...]


@cache
def require_sandbox() -> None:
    """Check once that this machine can run programs safely.

    Raises:
        ConfigError: it cannot.
    """
    try:
        probe()
    except SandboxError as error:
        raise ConfigError(
            "scenario 'code_team': with style=words the team writes Python, which is run in the sandbox alone, and "
            f"there is none here: {error}. Use style=letters, which needs no sandbox"
        ) from error


def judged(program: str, cases: Given) -> tuple[Status, tuple[bool, ...]]:
    """How a program ends, and which of its tests `f(input) == output` it passes; what it does not reach is not passed.

    Raises:
        SandboxError: the sandbox broke.
    """
    return _judged(program, json.dumps(cases))


@lru_cache(maxsize=4096)
def _judged(program: str, cases: str) -> tuple[Status, tuple[bool, ...]]:
    asked = [ProgramCase(f"f({given!r})", wanted) for given, wanted in json.loads(cases)]
    checked = _sandbox().check_now(program, asked)
    return checked.outcome.status, checked.passed


@cache
def _sandbox() -> Sandbox:
    """One for the process, ended with it."""
    sandbox = Sandbox(LIMITS, places=1)
    atexit.register(sandbox.close)
    return sandbox


VOWELS = "aeiouAEIOU"


class CodeStep(NamedTuple):
    """One step of x -> x. `{k}` in `text` and `code` is its parameter, from `low` to `high`; `ends`: it makes a number
    of x and can only be the last."""

    text: str
    apply: Callable[[Any, int], Any]
    code: str
    low: int = 0
    high: int = 0
    ends: bool = False


NUMBER: dict[str, CodeStep] = {
    "add": CodeStep("Add {k}.", lambda x, k: x + k, "x = x + {k}", 1, 20),
    "subtract": CodeStep("Subtract {k}.", lambda x, k: x - k, "x = x - {k}", 1, 20),
    "multiply": CodeStep("Multiply by {k}.", lambda x, k: x * k, "x = x * {k}", 2, 9),
    "remainder": CodeStep(
        "Take the remainder of a division by {k}, from 0 up.", lambda x, k: x % k, "x = x % {k}", 5, 12
    ),
    "absolute": CodeStep("If it is negative, drop the sign.", lambda x, k: abs(x), "x = abs(x)"),
    "most": CodeStep("If it is more than {k}, take {k} instead.", lambda x, k: min(x, k), "x = min(x, {k})", 15, 40),
    "collatz": CodeStep(
        "If it is even, take half of it; if it is odd, three times it plus 1.",
        lambda x, k: 3 * x + 1 if x % 2 else x // 2,
        "x = 3 * x + 1 if x % 2 else x // 2",
    ),
    "digits": CodeStep(
        "Take the sum of its decimal digits; a sign does not count.",
        lambda x, k: sum(int(digit) for digit in str(abs(x))),
        "x = sum(int(digit) for digit in str(abs(x)))",
    ),
}
TEXT: dict[str, CodeStep] = {
    "reverse": CodeStep("Reverse it.", lambda x, k: x[::-1], "x = x[::-1]"),
    "upper": CodeStep("Make all letters upper case.", lambda x, k: x.upper(), "x = x.upper()"),
    "swap": CodeStep(
        "Turn lower case into upper case, and upper into lower.", lambda x, k: x.swapcase(), "x = x.swapcase()"
    ),
    "vowels": CodeStep(
        "Remove the vowels a, e, i, o and u in both cases.",
        lambda x, k: "".join(letter for letter in x if letter not in VOWELS),
        f'x = "".join(letter for letter in x if letter not in "{VOWELS}")',
    ),
    "twice": CodeStep(
        "Write every character twice in a row.",
        lambda x, k: "".join(letter * 2 for letter in x),
        'x = "".join(letter * 2 for letter in x)',
    ),
    "dashes": CodeStep(
        "Replace each space by a dash (-).", lambda x, k: x.replace(" ", "-"), 'x = x.replace(" ", "-")'
    ),
    "first": CodeStep("Keep the first {k} characters.", lambda x, k: x[:k], "x = x[:{k}]", 4, 8),
    "rotate": CodeStep(
        "Put the first {k} characters at the end.", lambda x, k: x[k:] + x[:k], "x = x[{k}:] + x[:{k}]", 1, 3
    ),
    "length": CodeStep("Take the number of characters.", lambda x, k: len(x), "x = len(x)", ends=True),
    "count": CodeStep(
        "Take the number of letters e in lower case.", lambda x, k: x.count("e"), 'x = x.count("e")', ends=True
    ),
}
LIST: dict[str, CodeStep] = {
    "reverse": CodeStep("Reverse the order.", lambda x, k: x[::-1], "x = x[::-1]"),
    "sort": CodeStep("Sort from small to large.", lambda x, k: sorted(x), "x = sorted(x)"),
    "above": CodeStep(
        "Remove all numbers that are not more than {k}.",
        lambda x, k: [n for n in x if n > k],
        "x = [n for n in x if n > {k}]",
        -5,
        5,
    ),
    "add": CodeStep("Add {k} to each number.", lambda x, k: [n + k for n in x], "x = [n + {k} for n in x]", 1, 9),
    "multiply": CodeStep(
        "Multiply each number by {k}.", lambda x, k: [n * k for n in x], "x = [n * {k} for n in x]", 2, 5
    ),
    "unique": CodeStep(
        "Of equal numbers keep the first alone.", lambda x, k: list(dict.fromkeys(x)), "x = list(dict.fromkeys(x))"
    ),
    "drop": CodeStep("Drop the first {k} numbers.", lambda x, k: x[k:], "x = x[{k}:]", 1, 2),
    "running": CodeStep(
        "Replace each number by the sum of it and all before it.",
        lambda x, k: list(accumulate(x)),
        "x = [sum(x[: at + 1]) for at in range(len(x))]",
    ),
    "sum": CodeStep("Take the sum, 0 of nothing.", lambda x, k: sum(x), "x = sum(x)", ends=True),
    "maximum": CodeStep(
        "Take the largest number, 0 of nothing.", lambda x, k: max(x, default=0), "x = max(x, default=0)", ends=True
    ),
    "even": CodeStep(
        "Take the number of even numbers.",
        lambda x, k: sum(n % 2 == 0 for n in x),
        "x = sum(n % 2 == 0 for n in x)",
        ends=True,
    ),
}
KINDS: dict[str, dict[str, CodeStep]] = {"number": NUMBER, "text": TEXT, "list": LIST}
NAMED = {"number": "a whole number", "text": "a text", "list": "a list of whole numbers"}
"""What x is, in words, by kind."""

_WORDS = ("tree", "Stone", "river", "Apple", "eel", "Moon", "kite", "open", "Idea", "bee")


def draw_input(kind: str, random: Random) -> Any:
    """An input of a golden test."""
    if kind == "number":
        return random.randint(-60, 60)
    if kind == "text":
        return " ".join(random.choice(_WORDS) for _ in range(random.randint(1, 3)))
    return [random.randint(-9, 9) for _ in range(random.randint(3, 7))]


EDGES: dict[str, tuple[Any, ...]] = {"number": (0, -7), "text": ("", "e"), "list": ([], [4])}
"""Inputs that every function of a kind is tested with."""


def is_input(kind: str, value: object) -> bool:
    """Whether a test may ask for it: of the right type, and small."""
    if kind == "number":
        return type(value) is int and abs(value) <= 999
    if kind == "text":
        return isinstance(value, str) and len(value) <= 30 and all(one in _TYPED for one in value)
    return isinstance(value, list) and len(value) <= 10 and all(type(one) is int and abs(one) <= 999 for one in value)


_TYPED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ")


def applied(kind: str, steps: tuple[tuple[str, int], ...], value: Any) -> Any:
    """What the steps make of a value, one after another."""
    for name, k in steps:
        value = KINDS[kind][name].apply(value, k)
    return value


def draw_steps(kind: str, count: int, random: Random) -> tuple[tuple[str, int], ...]:
    """So many different steps; one that makes a number of x is the last."""
    known = KINDS[kind]
    names = random.sample([name for name, step in known.items() if not step.ends], count)
    enders = [name for name, step in known.items() if step.ends]
    if enders and random.random() < 0.5:
        names[-1] = random.choice(enders)
    return tuple((name, random.randint(known[name].low, known[name].high)) for name in names)


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
    """`steps` is the number of steps of a function; the methods are those of `Compact`."""

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
            # The golden tests tell the function from a constant, and from one that changes nothing.
            if len({canonical(output) for output in outputs}) >= DISTINCT and inputs != outputs:
                golden = tuple(json.dumps(given) for given in inputs)
                return Function(kind=kind, steps=steps, spec=_sentences(kind, steps), golden=golden)

    def heard(self, coder: str, tester: str) -> CodeAnswer | None:
        if not (is_readable(coder, LONGEST) and is_readable(tester, LONGEST)):
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


def _sentences(kind: str, steps: tuple[tuple[str, int], ...]) -> str:
    told = [KINDS[kind][name].text.replace("{k}", str(k)) for name, k in steps]
    numbered = [f"{number}. {sentence}" for number, sentence in enumerate(told, 1)]
    return "\n".join([f"f(x) takes {NAMED[kind]} x, does this and returns the result:", *numbered])


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
