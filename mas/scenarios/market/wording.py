"""Actions and proposals as single characters, for the tiny base, and in words, for real models."""

from collections.abc import Collection, Sequence
from typing import Literal

from mas.scenarios.market.offers import MarketProposal, Style

_CHECKS = "abcdefgh"
"""In letters: a checks the first proposal, b the second."""


class MarketWording:
    """How the team's actions are spelled."""

    def __init__(self, style: Style) -> None:
        self.is_short = style == "letters"
        self.next = "n" if self.is_short else "NEXT"
        self.wait = "w" if self.is_short else "WAIT"

    def check(self, name: str) -> str:
        """The action that checks a business's proposal."""
        return _CHECKS[int(name) - 1] if self.is_short else f"CHECK {name}"

    def buy(self, name: str) -> str:
        """The action that buys from a business."""
        return name if self.is_short else f"BUY {name}"

    def read(self, action: str, proposals: Sequence[MarketProposal]) -> tuple[Literal["check", "buy"], int]:
        """Which of the two an action is, and of which place; it must be one of them."""
        for place, proposal in enumerate(proposals):
            if action == self.check(proposal.name):
                return "check", place
            if action == self.buy(proposal.name):
                return "buy", place
        raise ValueError(f"{action!r} neither checks nor buys")

    def table(self, proposals: Sequence[MarketProposal], come: int, checked: Collection[int]) -> str:
        """All places in three characters each: the claim, its tone, and what a check found; `---` is yet to come."""
        return "|".join(
            proposal.text + (proposal.truth if place in checked else "?") if place < come else "---"
            for place, proposal in enumerate(proposals)
        )
