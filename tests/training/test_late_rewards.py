"""Turns that wait for terms: joined by id, released by group, defaulted when overdue, and safe in a checkpoint."""

import json
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parts import make_turn

from mas.algorithms.parts.rewards.late import LateRewards
from mas.core.errors import TrainingError
from mas.core.records import Turn

DEFAULTS = {"own.judge": 0.0, "own.person": -0.5}


def turns_of(group: str, names: str) -> list[Turn]:
    return [make_turn(group=group, trajectory=name, rewards={"team.won": 1.0}) for name in names]


def held() -> LateRewards:
    """Group g with turns a, which misses the judge, and b; group h with c, which misses both. Held in step 5."""
    late = LateRewards(DEFAULTS, patience=2)
    late.hold(turns_of("g", "ab") + turns_of("h", "c"), {"g/a": ["own.judge"], "h/c": list(DEFAULTS)}, step=5)
    return late


def test_a_group_is_released_when_the_last_of_its_terms_is_there() -> None:
    late = held()
    assert late.release(step=5) == ()
    assert late.take("g/a", "own.judge", 0.75) == "taken"
    released = late.release(step=6)
    assert [(turn.id, dict(turn.rewards)) for turn in released] == [
        ("g/a", {"team.won": 1.0, "own.judge": 0.75}),
        ("g/b", {"team.won": 1.0}),
    ]
    assert late.release(step=6) == ()


def test_what_misses_nothing_is_released_at_once() -> None:
    late = LateRewards(DEFAULTS, patience=1)
    late.hold(turns_of("g", "ab"), {}, step=0)
    assert [turn.id for turn in late.release(step=0)] == ["g/a", "g/b"]


def test_overdue_terms_get_their_default_and_are_counted() -> None:
    late = held()
    late.take("h/c", "own.person", 1.0)
    assert late.release(step=6) == ()
    released = {turn.id: dict(turn.rewards) for turn in late.release(step=7)}
    assert released["g/a"] == {"team.won": 1.0, "own.judge": 0.0}
    assert released["h/c"] == {"team.won": 1.0, "own.judge": 0.0, "own.person": 1.0}
    found = late.statistics()
    assert (found.waiting, found.missing, found.taken, found.defaulted, found.too_late) == (0, 0, 1, 2, 0)


def test_what_comes_after_its_default_is_counted_once_and_dropped() -> None:
    late = held()
    late.release(step=7)
    assert late.take("h/c", "own.person", 1.0) == "too_late"
    assert late.statistics().too_late == 1
    with pytest.raises(TrainingError, match="no turn 'h/c' is held"):
        late.take("h/c", "own.person", 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda late: late.take("z/z", "own.judge", 1.0), r"no turn 'z/z' is held \(3 are\)"),
        (lambda late: late.take("g/b", "own.judge", 1.0), r"'g/b' does not wait for 'own.judge': it waits for \[\]"),
        (lambda late: late.take("g/a", "own.juge", 1.0), "'own.juge' has no default.*own.judge"),
        (lambda late: late.take("g/a", "own.judge", math.nan), "is nan"),
        (lambda late: [late.take("h/c", "own.judge", 1.0) for _ in "12"], "'h/c' does not wait .* it came before"),
        (lambda late: late.hold(turns_of("g", "a"), {}, step=5), "turn 'g/a' is held already"),
        (lambda late: late.hold(turns_of("g", "z"), {}, step=5), "group 'g' is held already"),
        (lambda late: late.hold(turns_of("k", "zz"), {}, step=5), "turn 'k/z' is held already"),
        (lambda late: late.hold(turns_of("k", "z"), {"k/y": ["own.judge"]}, step=5), "turn 'k/y', which is not among"),
        (lambda late: late.hold(turns_of("k", "z"), {"k/z": ["team.won"]}, step=5), "'team.won' has no default"),
        (lambda late: LateRewards({}, patience=1), "0 terms to wait for"),
        (lambda late: LateRewards(DEFAULTS, patience=0), "0 steps long"),
        (lambda late: LateRewards({"own.judge": math.inf}, patience=1), "the default of 'own.judge' is inf"),
    ],
)
def test_what_cannot_be_joined_is_refused_and_changes_nothing(
    call: Callable[[LateRewards], object], message: str
) -> None:
    late = held()
    before = late.statistics()
    with pytest.raises(TrainingError, match=message):
        call(late)
    assert late.statistics().waiting == before.waiting
    assert late.statistics().too_late == 0


def test_a_term_that_is_there_cannot_be_missing() -> None:
    late = LateRewards({"team.won": 0.0}, patience=1)
    with pytest.raises(TrainingError, match=r"has its 'team\.won' already"):
        late.hold(turns_of("g", "a"), {"g/a": ["team.won"]}, step=0)
    assert late.statistics().waiting == 0


def test_a_checkpoint_of_other_terms_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"'own\.person' has no default"):
        LateRewards({"own.judge": 0.0}, patience=2).restore(held().state())


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["g/a", "h/c"]), st.sampled_from(sorted(DEFAULTS)), st.floats(-1, 1)),
        st.integers(0, 3),
    ),
    max_size=9,
)


Event = tuple[str, str, float] | int


def play(late: LateRewards, events: list[Event], step: int = 5) -> list[object]:
    """What values and releases lead to; an int is steps that pass before a release."""
    seen: list[object] = []
    for event in events:
        if isinstance(event, int):
            step += event
            seen.append(late.release(step=step))
            continue
        try:
            seen.append(late.take(*event))
        except TrainingError as error:
            seen.append(str(error))
    return seen


@given(events=EVENTS, cut=st.integers(0, 9))
def test_a_resumed_run_does_what_one_that_was_not_does(events: list[Event], cut: int) -> None:
    first, resumed = held(), LateRewards(DEFAULTS, patience=2)
    before = play(first, events[:cut])
    resumed.restore(json.loads(json.dumps(first.state())))
    step = 5 + sum(event for event in events[:cut] if isinstance(event, int))
    assert before + play(resumed, events[cut:], step) == play(whole := held(), events)
    assert resumed.statistics() == whole.statistics()
    assert resumed.state() == whole.state()


@given(events=EVENTS)
def test_every_turn_is_released_once_and_every_term_is_taken_or_defaulted(events: list[Event]) -> None:
    late = held()
    seen = play(late, [*events, 99])
    released = [turn.id for batch in seen if isinstance(batch, tuple) for turn in batch]
    assert sorted(released) == ["g/a", "g/b", "h/c"]
    found = late.statistics()
    assert (found.waiting, found.missing, found.taken + found.defaulted) == (0, 0, 3)
