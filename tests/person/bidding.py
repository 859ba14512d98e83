"""A game of two seats with secret cards."""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import EnvironmentSpec, Observation, Step, Task


class Cards(msgspec.Struct, frozen=True):
    """Each seat's secret card, and what was bid, in order."""

    cards: tuple[int, int]
    bids: tuple[int, ...] = ()


class Bidding:
    """Two seats bid 0 to 2 in turn, or at once, twice each. Who bids its own card gets a point.

    `is_listed` False: its actions are not listed. A bid of 9 is listed and yet not legal.
    """

    seats: ClassVar[tuple[str, str]] = ("left", "right")

    def __init__(self, *, at_once: bool = False, is_listed: bool = True, views: tuple[str, ...] = seats) -> None:
        self.spec = EnvironmentSpec(
            name="bidding",
            seats=self.seats,
            views=views,
            max_turns=4,
            terms=("point",),
            dynamics="simultaneous" if at_once else "sequential",
        )
        self._at_once, self._is_listed = at_once, is_listed
        self.reset(Task(id="t", seed=1))

    def reset(self, task: Task) -> None:
        self.state = Cards((Random(task.seed).choice((0, 1)), 2))

    def to_move(self) -> tuple[str, ...]:
        made = len(self.state.bids)
        return () if made >= 4 else self.seats if self._at_once else (self.seats[made % 2],)

    def observe(self, view: str) -> Observation:
        return Observation({"card": str(self.state.cards[self.seats.index(view)]), "bids": str(self.state.bids)})

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return ("0", "1", "2", "9") if self._is_listed else None

    def step(self, actions: Mapping[str, str]) -> Step:
        assert set(actions) == set(self.to_move())
        illegal = tuple(seat for seat, bid in actions.items() if bid not in ("0", "1", "2"))
        rewards = {
            seat: {"point": float(bid == str(self.state.cards[self.seats.index(seat)]))}
            for seat, bid in actions.items()
        }
        bids = tuple(int(bid) if bid.isdigit() else -1 for bid in actions.values())
        self.state = msgspec.structs.replace(self.state, bids=self.state.bids + bids)
        return Step(rewards=rewards, illegal=illegal)

    def success(self) -> bool:
        return False

    def clone(self) -> "Bidding":
        twin = Bidding(views=self.spec.views)
        twin.__dict__.update(self.__dict__)
        return twin

    def snapshot(self) -> bytes:
        return msgspec.json.encode(self.state)

    def restore(self, state: bytes) -> None:
        self.state = msgspec.json.decode(state, type=Cards)

    def state_key(self) -> str:
        return self.snapshot().decode()

    def render(self) -> str:
        return f"all cards: {self.state.cards}"
