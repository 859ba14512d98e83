"""Random teams with any joins, loops, lists and teams within, killed after any event: what always holds."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lives import Life, Says, Takes, cut, events
from test_flow_properties import WORDS, plans

from mas.core.seeds import derive_seed
from mas.graph import Plan
from mas.runtime.events import Called, Committed

some = settings(
    deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


def says(salt: int) -> Says:
    return lambda role, seed: WORDS[derive_seed("says", salt, role, seed) % len(WORDS)]


def takes(salt: int) -> Takes:
    return lambda role, seed: derive_seed("takes", salt, role, seed) % 40 / 10


def seeds(path: Path) -> set[int]:
    """Of what the journal has an answer to."""
    return {call.candidates[0].seed for call in events(path) if isinstance(call, Called)}


@some
@given(plan=plans(), salt=st.integers(0, 10**6))
def test_after_a_kill_at_any_event_what_happened_stays_and_nobody_is_asked_twice(plan: Plan, salt: int) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "bus.sqlite"
        whole = Life(plan, path, takes(salt), says(salt)).run()
        assert whole.error is None
        written = events(path)
        for number in range(len(written) + 1):
            copy = cut(path, number)
            known = seeds(copy)
            life = Life(plan, copy, takes(salt + number), says(salt)).run()
            assert life.error is None
            assert not known & set(life.engine.asked), "somebody was asked what is recorded"
            assert len(life.engine.asked) == len(set(life.engine.asked)), "somebody was asked twice"
            assert events(copy)[:number] == written[:number]
            committed = sum(isinstance(event, Committed) for event in written[:number])
            assert life.world.steps == len(life.turns) - committed, "a step was made twice"
            again = Life(plan, copy, takes(salt), says(salt)).run()
            assert again.saw == life.saw
            assert (again.engine.asked, again.world.steps) == ([], 0)
        assert again.saw == whole.saw, (again.saw, whole.saw)


@some
@given(plan=plans(st.just("all"), 2), salt=st.integers(0, 10**6))
def test_where_all_joins_wait_for_all_the_result_is_that_of_an_undisturbed_run(plan: Plan, salt: int) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "bus.sqlite"
        whole = Life(plan, path, takes(salt), says(salt)).run()
        assert whole.error is None
        for number in range(len(events(path)) + 1):
            life = Life(plan, cut(path, number), takes(salt + number), says(salt)).run()
            assert life.error is None
            assert life.turns == whole.turns
