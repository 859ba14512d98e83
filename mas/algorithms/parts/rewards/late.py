"""Rewards that arrive late: turns wait for the terms that are missing, and go on group by group.

A judge, an annotator or a person may answer steps after the turn was sampled. Steps count time here, so that a run that
was resumed waits as long as one that was not. Waiting in real time, and who is asked, is the caller's.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from mas.core.environment import LARGEST, is_bounded
from mas.core.errors import TrainingError
from mas.core.naming import did_you_mean
from mas.core.options import Count, Options
from mas.core.records import Turn

Arrival = Literal["taken", "too_late"]


class LateOptions(Options):
    """Own terms that a `judge` pays by turn id, after the turns were sampled and before they are compared.

    `judge`: `pattern` pays 1 for a text in which the term's regular expression of `asks` is found, else 0; `base` asks
    the run's own base LLM the term's question of `asks`, and the name of a peer (`peers.NAME.url`) its model: the first
    number from 0 to 10 in the answer, by 10; or a name among the entry points `mas.judges` of installed packages, or
    one given in Python. `terms`: name -> what it counts as where no answer comes.
    A step waits `wait_s` seconds for answers. `steps`: how many further steps a group with missing answers waits, to be
    trained in the step in which they are complete; 0: what is missing then has its default at once.
    """

    judge: Annotated[str, Field(min_length=1)]
    terms: Annotated[dict[str, Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=1)]
    asks: dict[str, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    wait_s: Annotated[float, Field(gt=0)] = 60.0
    steps: Count = 0


class LateStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts: turns and terms that are `waiting` and `missing` now; of terms since the start those `taken` in time,
    `defaulted` because they did not come, and `too_late`, which came after they were defaulted."""

    waiting: int = 0
    missing: int = 0
    taken: int = 0
    defaulted: int = 0
    too_late: int = 0


class LateRewards:
    """Holds turns until all their terms are known or overdue, and releases whole groups.

    A group is released at once, since its turns are compared with each other. A term that is overdue gets its default
    and is counted; one that comes later still is counted and dropped. Which terms were defaulted is remembered by turn
    id, until they come or for ever.

    Args:
        defaults: term, as in `Turn.rewards` (`own.NAME`, `team.NAME`) -> what it counts as when it does not come. Only
            these can be waited for.
        patience: steps that a turn waits, at least 1: held in step s it is overdue in step s + patience.

    Raises:
        TrainingError: no term, a default that is not finite, or a patience below 1.
    """

    def __init__(self, defaults: Mapping[str, float], *, patience: int) -> None:
        if not defaults or patience < 1:
            raise TrainingError(f"{len(defaults)} terms to wait for, {patience} steps long: give 1 of each at least")
        for term, value in defaults.items():
            _finite(value, f"the default of {term!r}")
        self._defaults, self._patience = dict(defaults), patience
        self._turns: dict[str, Turn] = {}
        self._missing: dict[str, set[str]] = {}
        self._due: dict[str, int] = {}
        self._overdue: dict[str, set[str]] = {}
        self._taken = self._defaulted = self._too_late = 0

    def hold(self, turns: Sequence[Turn], missing: Mapping[str, Collection[str]], *, step: int) -> None:
        """Hold turns, all those of their groups; `missing`: turn id -> terms that are still to come.

        Raises:
            TrainingError: a turn or a group is held already, `missing` names a turn that is not given, a term that has
                no default, or one that the turn has already. Then nothing is held.
        """
        self._check_new(turns)
        by_id = {turn.id: turn for turn in turns}
        for turn_id, terms in missing.items():
            if turn_id not in by_id:
                raise TrainingError(f"terms are missing of turn {turn_id!r}, which is not among the {len(turns)} given")
            for term in terms:
                self._check_term(term)
                if term in by_id[turn_id].rewards:
                    raise TrainingError(f"turn {turn_id!r} has its {term!r} already, so that it cannot be missing")
        for turn_id, turn in by_id.items():
            self._turns[turn_id], self._due[turn_id] = turn, step + self._patience
            self._missing[turn_id] = set(missing.get(turn_id, ()))

    def take(self, turn_id: str, term: str, value: float) -> Arrival:
        """Join a term to its turn; `too_late`: its default is in place already, and the value is dropped.

        Raises:
            TrainingError: the value is not finite, no such turn is held, it does not wait for this term, or the term
                came before.
        """
        self._check_term(term)
        _finite(value, f"the value of {term!r} for turn {turn_id!r}")
        if term in self._overdue.get(turn_id, ()):
            self._overdue[turn_id].remove(term)
            if not self._overdue[turn_id]:
                del self._overdue[turn_id]
            self._too_late += 1
            return "too_late"
        if turn_id not in self._turns:
            raise TrainingError(
                f"no turn {turn_id!r} is held ({len(self._turns)} are): it was never handed in, or its last term came "
                "before and its group went on"
            )
        if term not in self._missing[turn_id]:
            has = term in self._turns[turn_id].rewards
            why = "it came before" if has else f"it waits for {sorted(self._missing[turn_id])}"
            raise TrainingError(f"turn {turn_id!r} does not wait for {term!r}: {why}")
        self._join(turn_id, term, value)
        self._taken += 1
        return "taken"

    def release(self, *, step: int) -> tuple[Turn, ...]:
        """The turns of all groups that miss nothing, in the order in which they were handed in, and let go of them.

        Before that, terms that are overdue in this step get their defaults.
        """
        for turn_id, due in self._due.items():
            if due <= step:
                for term in sorted(self._missing[turn_id]):
                    self._join(turn_id, term, self._defaults[term])
                    self._overdue.setdefault(turn_id, set()).add(term)
                    self._defaulted += 1
        waiting = {self._turns[turn_id].group for turn_id, terms in self._missing.items() if terms}
        released = tuple(turn for turn in self._turns.values() if turn.group not in waiting)
        for turn in released:
            del self._turns[turn.id], self._missing[turn.id], self._due[turn.id]
        return released

    def forget(self, turn_ids: Collection[str]) -> None:
        """Terms of these turns that were defaulted are not listened for any more."""
        for turn_id in turn_ids:
            self._overdue.pop(turn_id, None)

    def waiting(self) -> dict[str, tuple[Turn, frozenset[str]]]:
        """Turn id -> the turn, and its terms that are still to come; in the order in which they were handed in."""
        return {name: (turn, frozenset(self._missing[name])) for name, turn in self._turns.items()}

    def statistics(self) -> LateStatistics:
        """Of now, and since the start or the checkpoint's start."""
        return LateStatistics(
            waiting=len(self._turns),
            missing=sum(map(len, self._missing.values())),
            taken=self._taken,
            defaulted=self._defaulted,
            too_late=self._too_late,
        )

    def state(self) -> dict[str, Any]:
        """All of it as plain data, to be written into a checkpoint."""
        return {
            "turns": [msgspec.to_builtins(turn) for turn in self._turns.values()],
            "missing": {turn_id: sorted(terms) for turn_id, terms in self._missing.items()},
            "due": dict(self._due),
            "overdue": {turn_id: sorted(terms) for turn_id, terms in self._overdue.items()},
            "counts": {"taken": self._taken, "defaulted": self._defaulted, "too_late": self._too_late},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken; what is held now is forgotten.

        Raises:
            TrainingError: it waits for terms that have no default here.
        """
        turns = msgspec.convert(state["turns"], list[Turn])
        for terms in state["missing"].values():
            for term in terms:
                self._check_term(term)
        self._turns = {turn.id: turn for turn in turns}
        self._missing = {turn_id: set(terms) for turn_id, terms in state["missing"].items()}
        self._due = {turn_id: int(due) for turn_id, due in state["due"].items()}
        self._overdue = {turn_id: set(terms) for turn_id, terms in state["overdue"].items()}
        counts = state["counts"]
        self._taken, self._defaulted, self._too_late = counts["taken"], counts["defaulted"], counts["too_late"]

    def _join(self, turn_id: str, term: str, value: float) -> None:
        turn = self._turns[turn_id]
        self._turns[turn_id] = msgspec.structs.replace(turn, rewards={**turn.rewards, term: value})
        self._missing[turn_id].remove(term)

    def _check_new(self, turns: Sequence[Turn]) -> None:
        held, seen = {turn.group for turn in self._turns.values()}, set(self._turns)
        for turn in turns:
            if turn.id in seen:
                raise TrainingError(f"turn {turn.id!r} is held already: every turn is handed in once")
            seen.add(turn.id)
            if turn.group in held:
                raise TrainingError(f"group {str(turn.group)!r} is held already: hand in all turns of a group at once")

    def _check_term(self, term: str) -> None:
        if term not in self._defaults:
            raise TrainingError(
                f"term {term!r} has no default, so it cannot be waited for. {did_you_mean(term, self._defaults)}"
            )


def _finite(value: float, what: str) -> None:
    if not is_bounded(value):
        raise TrainingError(f"{what} is {value}; a reward must be a finite number between {-LARGEST:g} and {LARGEST:g}")
