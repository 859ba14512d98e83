"""Random teams with any joins, loops, lists and teams within, killed after any event: what always holds."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from play_lives import Life, MemoryPlays, Says, Takes
from test_flow_properties import WORDS, plans

from mas.core.seeds import derive_seed
from mas.graph import TeamPlan
from mas.runtime.replay_events import CallEvent, Committed

some = settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.too_slow])


def says(salt: int) -> Says:
    return lambda role, seed: WORDS[derive_seed("says", salt, role, seed) % len(WORDS)]


def takes(salt: int) -> Takes:
    return lambda role, seed: derive_seed("takes", salt, role, seed) % 40 / 10


def played(plan: TeamPlan, plays: MemoryPlays, salt: int, quick: int) -> Life:
    life = Life(plan, plays, takes(quick), says(salt)).run(until_s=10_000.0)
    assert life.error is None
    return life


def kills(plays: MemoryPlays, salt: int) -> range:
    """Numbers of events after which a kill comes: all of a short play, some twenty of a long one."""
    step = max(1, len(plays.frames) // 20)
    return range(salt % step, len(plays.frames) + 1, step)


@some
@given(plan=plans(), salt=st.integers(0, 10**6))
def test_after_a_kill_at_any_event_what_happened_stays_and_nobody_is_asked_twice(plan: TeamPlan, salt: int) -> None:
    plays = MemoryPlays(sync_s=0.3)
    whole = played(plan, plays, salt, salt)
    written = plays.written()
    for number in kills(plays, salt):
        copy = plays.cut(number)
        answered = {call.candidates[0].seed for call in copy.written() if isinstance(call, CallEvent)}
        life = played(plan, copy, salt, salt + number)
        assert not answered & set(life.engine.asked), "somebody was asked what is recorded"
        assert len(life.engine.asked) == len(set(life.engine.asked)), "somebody was asked twice"
        assert copy.written()[:number] == written[:number]
        committed = sum(isinstance(event, Committed) for event in written[:number])
        assert life.world.steps == len(life.turns) - committed, "a step was made twice"
        again = played(plan, copy, salt, salt)
        assert again.saw == life.saw
        assert (again.engine.asked, again.world.steps) == ([], 0)
    shown = played(plan, plays, salt, salt)
    assert (shown.saw, shown.engine.asked) == (whole.saw, [])


@some
@given(plan=plans(st.just("all"), 2), salt=st.integers(0, 10**6))
def test_where_all_joins_wait_for_all_the_result_is_that_of_an_undisturbed_run(plan: TeamPlan, salt: int) -> None:
    plays = MemoryPlays(sync_s=0.3)
    whole = played(plan, plays, salt, salt)
    for number in kills(plays, salt):
        life = played(plan, plays.cut(number), salt, salt + number)
        assert life.turns == whole.turns
