"""Every built-in role, and one of a user, against the contract."""

from collections.abc import Iterable

from mas.core.role import Role, RoleSpec
from mas.roles import build_role
from mas.testing.role import RoleContract


class TestAgent(RoleContract):
    def make_role(self) -> Role:
        return build_role("agent", RoleSpec())

    def legal(self) -> Iterable[str]:
        return ("hello", "two\nlines")

    def illegal(self) -> Iterable[str]:
        return ("", " \n")


class TestPlanner(RoleContract):
    def make_role(self) -> Role:
        return build_role("planner", RoleSpec(type="planner", template="{task}|{self}|{from.a_note}>", context="turn"))

    def legal(self) -> Iterable[str]:
        return ("first a, then b",)


class TestExecutorThatSpells(RoleContract):
    def make_role(self) -> Role:
        return build_role("executor", RoleSpec(type="executor", choices=("N", "E", "S", "W"), max_tokens=4))

    def legal(self) -> Iterable[str]:
        return ("N", "NESW", "NN")

    def illegal(self) -> Iterable[str]:
        return ("", "X", "NXS", "N S")


class TestExecutorThatChooses(RoleContract):
    def make_role(self) -> Role:
        return build_role("executor", RoleSpec(type="executor", choices=("left", "right"), max_tokens=4))

    def legal(self) -> Iterable[str]:
        return ("left", "right")

    def illegal(self) -> Iterable[str]:
        return ("", "le", "left right", "Left")


class TestExecutorWithPattern(RoleContract):
    def make_role(self) -> Role:
        return build_role("executor", RoleSpec(type="executor", pattern=r"(?s).*answer: (?P<answer>[0-9]+)\.?"))

    def legal(self) -> Iterable[str]:
        return ("answer: 4", "I think so.\nanswer: 12.")

    def illegal(self) -> Iterable[str]:
        return ("4", "answer: four")


class TestVerifier(RoleContract):
    def make_role(self) -> Role:
        return build_role("verifier", RoleSpec(type="verifier", context="none"))

    def legal(self) -> Iterable[str]:
        return ("accept", "REJECT", "Accept.", "**reject** because of b", "accept\nfine")

    def illegal(self) -> Iterable[str]:
        return ("", "acceptable", "I accept", "no")


class TestVerifierWithShortWords(RoleContract):
    def make_role(self) -> Role:
        return build_role("verifier", RoleSpec(type="verifier", accept_text="y", reject_text="n", max_tokens=1))

    def legal(self) -> Iterable[str]:
        return ("y", "n", "Y")

    def illegal(self) -> Iterable[str]:
        return ("yes", "?")


class TestFeedbackAgent(RoleContract):
    def make_role(self) -> Role:
        return build_role("feedback", RoleSpec(type="feedback"))

    def legal(self) -> Iterable[str]:
        return ("turn left earlier",)


class TestRoleOfAUser(RoleContract):
    def make_role(self) -> Role:
        return build_role("referee", RoleSpec(type="referee:Referee"))

    def legal(self) -> Iterable[str]:
        return ("play", "stop")

    def illegal(self) -> Iterable[str]:
        return ("pause",)
