"""What a task is, and what the environment asks of a language in which functions are specified, written and tested."""

from collections.abc import Iterable
from random import Random
from typing import Protocol

import msgspec

HOLDS = "holds"
"""The outcome of a test with which the program agrees."""


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A function that is to be written: steps, one after another.

    Attributes:
        kind: what it takes, as the language names it.
        steps: name and parameter of each step: the hidden reference.
        spec: what the team is told.
        golden: inputs of the hidden tests, as JSON.
    """

    kind: str
    steps: tuple[tuple[str, int], ...]
    spec: str
    golden: tuple[str, ...]


class CodeAnswer(msgspec.Struct, frozen=True):
    """A program and a test that were said; empty where there is none."""

    program: str = ""
    test: str = ""


class Language(Protocol):
    """How functions are specified, written and tested. Stateless; equal questions have equal answers."""

    def make(self, random: Random) -> Function:
        """A task."""

    def heard(self, coder: str, tester: str) -> CodeAnswer | None:
        """What the two said, either text empty where its agent said nothing; None: it is not legal."""

    def alone(self, text: str) -> CodeAnswer | None:
        """What one agent said that writes both; None: it is not legal."""

    def actions(self) -> tuple[str, ...] | None:
        """All that one agent can say that writes both; None: too many to list."""

    def share(self, function: Function, program: str) -> float:
        """The share of golden tests that a program passes."""

    def is_right(self, function: Function, test: str) -> bool:
        """Whether the reference agrees with a test."""

    def outcome(self, function: Function, program: str, test: str) -> str:
        """What a program does in a test: `HOLDS`, or what went wrong."""

    def solution(self, function: Function, random: Random) -> tuple[str, str]:
        """What a coder says whose program passes all golden tests, and a tester whose test is right."""


def share_of(passed: Iterable[bool]) -> float:
    """The share that is true; 0 of nothing."""
    results = list(passed)
    return sum(results) / len(results) if results else 0.0
