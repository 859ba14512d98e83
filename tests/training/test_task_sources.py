"""Task sources: what they draw, and that one that is restored draws what it would have drawn."""

import json
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas.config.load import load_config
from mas.config.options import TrainOptions
from mas.core.errors import ConfigError
from mas.core.scenario import Pick, TaskOutcome, TaskSource
from mas.core.seeds import derive_seed
from mas.training.setup import build_source
from mas.training.tasks.sources import due, proportions

ARMS = {"easy": {}, "middle": {}, "hard": {}}
SOURCES: dict[str, dict[str, Any]] = {
    "fresh": {},
    "epochs": {"source": "epochs", "count": 7},
    "in order": {"source": "epochs", "count": 5, "shuffle": False},
    "epochs that give up": {"source": "epochs", "count": 9, "give_up": 2},
    "mixture": {"source": "mixture", "arms": {"a": {"weight": 0.1}, "b": {"weight": 0.7}, "c": {"weight": 0.2}}},
    "curriculum": {"source": "curriculum", "arms": ARMS, "threshold": 0.5, "patience": 2},
    "progress": {"source": "progress", "arms": ARMS, "fast": 0.5},
    "progress of the reward": {"source": "progress", "arms": ARMS, "signal": "reward", "explore": 0.0},
    "fresh with failures": {"replay": {"share": 0.3, "tries": 2, "memory": 5}},
    "epochs with failures": {"source": "epochs", "count": 6, "replay": {"share": 0.5}},
    "curriculum with failures": {"source": "curriculum", "arms": ARMS, "replay": {"share": 0.25}},
}


def make(tasks: dict[str, Any], *, seed: int = 3, size: int | None = None) -> TaskSource:
    train = TrainOptions(seed=seed, tasks_per_step=8, tasks=tasks)
    return build_source(train, dict.fromkeys(tasks.get("arms", {"own": {}}), size))


def went(picks: Sequence[Pick], success: float = 1.0, reward: float = 0.0) -> list[TaskOutcome]:
    return [TaskOutcome(pick=pick, success=success, reward=reward, flat=0.0) for pick in picks]


def by_chance(picks: Sequence[Pick], random: Random) -> list[TaskOutcome]:
    """Outcomes of most tasks; the others could not be played."""
    told = [one for pick in picks for one in went([pick], random.choice([0.0, 0.4, 1.0]), random.random())]
    return [one for one in told if random.random() < 0.9]


@pytest.mark.parametrize("tasks", SOURCES.values(), ids=SOURCES.keys())
@pytest.mark.parametrize("killed", [0, 1, 6, 13])
def test_a_restored_source_draws_what_one_that_was_never_stopped_draws(tasks: dict[str, Any], killed: int) -> None:
    whole, random = make(tasks), Random(1)
    rows: list[Sequence[Pick]] = []
    for step in range(25):
        if step == killed:
            state, where = json.dumps(whole.state()), random.getstate()
        rows.append(whole.draw(step, 8))
        whole.tell(by_chance(rows[-1], random))
    again = make(tasks)
    again.restore(json.loads(state))
    random.setstate(where)
    for step in range(killed, 25):
        picks = again.draw(step, 8)
        assert list(picks) == list(rows[step])
        again.tell(by_chance(picks, random))
    assert again.state() == whole.state()
    assert again.metrics() == whole.metrics()


@pytest.mark.parametrize("tasks", SOURCES.values(), ids=SOURCES.keys())
def test_a_source_draws_as_many_as_asked_for_and_by_the_seed(tasks: dict[str, Any]) -> None:
    first, same, other = make(tasks), make(tasks), make(tasks, seed=4)
    drawn = []
    for step in range(6):
        picks = first.draw(step, 8)
        assert len(picks) == 8
        assert list(picks) == list(same.draw(step, 8))
        drawn.append(list(picks) == list(other.draw(step, 8)))
        for source in (first, same, other):
            source.tell(went(picks, 0.0))
    assert all(drawn) == (tasks.get("shuffle") is False)


def test_fresh_tasks_are_those_that_runs_always_had() -> None:
    first = derive_seed("tasks", 3, 11) % 10**9 * 1000
    assert list(make({}).draw(11, 3)) == [Pick("own", first), Pick("own", first + 1), Pick("own", first + 2)]
    assert make({}).state() == {}


def test_of_a_finite_scenario_a_step_has_no_task_twice_and_all_come_in_time() -> None:
    source, seen = make({}, size=9), Counter[int]()
    for step in range(40):
        indices = [pick.index for pick in source.draw(step, 8)]
        assert len(set(indices)) == 8
        seen.update(indices)
    assert set(seen) == set(range(9))


def test_an_epoch_has_every_task_once_in_another_order_than_the_one_before() -> None:
    source = make({"source": "epochs", "count": 7})
    row = [pick.index for step in range(7) for pick in source.draw(step, 5)]
    epochs = [row[begin : begin + 7] for begin in range(0, 35, 7)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 5
    assert source.metrics() == {"epoch": 5.0}
    ordered = make({"source": "epochs", "count": 3, "shuffle": False})
    assert [pick.index for pick in ordered.draw(0, 7)] == [0, 1, 2, 0, 1, 2, 0]


def test_all_records_are_an_epoch_where_no_count_is_given() -> None:
    source = make({"source": "epochs"}, size=8)
    assert sorted(pick.index for pick in source.draw(0, 8)) == list(range(8))


@pytest.mark.parametrize(
    ("tasks", "size", "text"),
    [
        ({"source": "epochs"}, None, "never end: set train.tasks.count"),
        ({"source": "epochs", "count": 10}, 9, r"train\.tasks\.count is 10, but there are 9 training tasks"),
        ({}, 7, r"train\.tasks_per_step is 8, but there are 7 training tasks"),
    ],
)
def test_more_tasks_than_there_are_are_refused(tasks: dict[str, Any], size: int | None, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make(tasks, size=size)


def test_a_mixture_has_exact_proportions_in_every_step() -> None:
    source = make(SOURCES["mixture"])
    # Of 10 tasks the shares 0.1, 0.7 and 0.2 are whole numbers.
    for step in range(3):
        assert Counter(pick.arm for pick in source.draw(step, 10)) == {"a": 1, "b": 7, "c": 2}


def test_what_a_step_cannot_divide_is_made_up_for_in_the_next_ones() -> None:
    source, total = make(SOURCES["mixture"]), Counter[str]()
    first = Counter(pick.arm for pick in source.draw(0, 3))
    # 0.3, 2.1 and 0.6 of three: two whole ones for b, and the third for c, whose remainder is the largest.
    assert first == {"b": 2, "c": 1}
    total.update(first)
    for step in range(1, 20):
        total.update(pick.arm for pick in source.draw(step, 3))
    assert total == {"a": 6, "b": 42, "c": 12}


@given(
    st.dictionaries(st.text("abcde", min_size=1, max_size=2), st.floats(0.01, 100), min_size=1, max_size=6),
    st.integers(1, 40),
)
def test_shares_of_one_step_are_rounded_up_or_down_and_add_up(weights: dict[str, float], count: int) -> None:
    shares = proportions(weights)
    got = due(shares, dict.fromkeys(weights, 0), count)
    assert sum(shares.values()) == 1
    assert sum(got.values()) == count
    assert all(-1 < got[name] - share * count < 1 for name, share in shares.items())


def test_a_weight_is_the_decimal_that_was_written() -> None:
    assert proportions({"a": 0.1, "b": 0.2}) == {"a": Fraction(1, 3), "b": Fraction(2, 3)}


def arms_of(source: TaskSource, step: int) -> set[str]:
    return {pick.arm for pick in source.draw(step, 4)}


def test_a_curriculum_goes_on_after_enough_good_steps_in_a_row_and_ends_at_its_last_stage() -> None:
    source = make(SOURCES["curriculum"])
    expected = [
        ("easy", 1.0),
        ("easy", 0.4),  # below the threshold of 0.5: the row begins anew
        ("easy", 0.5),
        ("easy", 0.5),
        ("middle", 1.0),
        ("middle", 1.0),
        ("hard", 1.0),
        ("hard", 1.0),
        ("hard", 1.0),
    ]
    for step, (arm, success) in enumerate(expected):
        picks = source.draw(step, 4)
        assert {pick.arm for pick in picks} == {arm}
        source.tell(went(picks, success))
    assert source.metrics() == {"stage": 2.0}


def test_a_step_that_could_not_be_played_neither_ends_nor_breaks_a_row_of_good_ones() -> None:
    source = make(SOURCES["curriculum"])
    source.tell(went(source.draw(0, 4)))
    source.draw(1, 4)
    source.tell([])
    assert arms_of(source, 2) == {"easy"}
    source.tell(went(source.draw(3, 4)))
    assert arms_of(source, 4) == {"middle"}


@pytest.mark.parametrize("name", ["mixture", "curriculum", "progress"])
def test_an_arm_goes_on_where_it_was_left(name: str) -> None:
    source, seen = make(SOURCES[name]), dict[str, list[int]]()
    for step in range(12):
        picks = source.draw(step, 5)
        for pick in picks:
            seen.setdefault(pick.arm, []).append(pick.index)
        source.tell(went(picks))
    for indices in seen.values():
        assert indices == list(range(indices[0], indices[0] + len(indices)))
    assert len({indices[0] // 1000 for indices in seen.values()}) == len(seen) == 3


def test_the_arm_where_most_changes_gets_most_tasks() -> None:
    source = make({"source": "progress", "arms": ARMS, "explore": 0.3})
    for step in range(4):
        picks = source.draw(step, 30)
        assert {pick.arm for pick in picks} == set(ARMS)
        level = {"easy": 1.0, "middle": 0.2 * step, "hard": 0.0}
        source.tell([one for pick in picks for one in went([pick], level[pick.arm])])
    # Only the middle one changed: it has all but what is explored, of which each has a third.
    assert source.metrics() == pytest.approx({"chance.easy": 0.1, "chance.middle": 0.8, "chance.hard": 0.1})
    counts = Counter(pick.arm for pick in source.draw(4, 400))
    # Four standard deviations of 400 draws: 4 sqrt(0.8 x 0.2 / 400) = 0.08.
    assert counts["middle"] / 400 == pytest.approx(0.8, abs=0.08)


def test_forgetting_counts_as_much_as_learning() -> None:
    chances = []
    for levels in ([0.2, 0.8], [0.8, 0.2]):
        source = make({"source": "progress", "arms": ARMS, "explore": 0.0})
        for step, level in enumerate(levels):
            told = {"easy": 0.5, "middle": 0.5, "hard": level}
            source.tell([one for arm, value in told.items() for one in went([Pick(arm, step)], value)])
        chances.append(source.metrics())
    assert chances[0] == chances[1] == {"chance.easy": 0.0, "chance.middle": 0.0, "chance.hard": 1.0}


def test_progress_can_follow_the_reward() -> None:
    chances = {}
    for signal in ("success", "reward"):
        source = make({"source": "progress", "arms": ARMS, "explore": 0.0, "signal": signal})
        for step in range(2):
            source.tell([*went([Pick("easy", step)], 1.0, step), *went([Pick("hard", step)], float(step), 1.0)])
        # Nothing is known of the middle one: it counts as the one of greatest progress.
        chances[signal] = source.metrics()
    assert chances["success"] == pytest.approx({"chance.easy": 0.0, "chance.middle": 0.5, "chance.hard": 0.5})
    assert chances["reward"] == pytest.approx({"chance.easy": 0.5, "chance.middle": 0.5, "chance.hard": 0.0})


def test_what_failed_is_played_again_oldest_first_in_its_share() -> None:
    source = make({"replay": {"share": 0.25, "below": 0.5, "tries": 3}})
    first = source.draw(0, 8)
    source.tell([*went(first[:3], 0.4), *went(first[3:], 0.5)])
    assert source.metrics() == {"failed": 3.0, "replayed": 0.0}
    second = source.draw(1, 8)
    assert list(second[6:]) == list(first[:2])
    assert set(second[:6]).isdisjoint(first)
    source.tell([*went(second[:7]), *went(second[7:], 0.0)])
    # The first was solved now, the second failed again and stands behind the third.
    assert source.metrics() == {"failed": 2.0, "replayed": 2.0}
    third = source.draw(2, 8)
    assert list(third[6:]) == [first[2], first[1]]


def test_a_task_is_given_up_after_its_tries_and_the_oldest_are_forgotten() -> None:
    source = make({"replay": {"share": 0.5, "tries": 2, "memory": 3}})
    hopeless = source.draw(0, 4)
    source.tell(went(hopeless, 0.0))
    assert source.metrics()["failed"] == 3.0
    played = Counter[Pick]()
    for step in range(1, 6):
        picks = source.draw(step, 4)
        played.update(pick for pick in picks if pick in hopeless)
        source.tell([one for pick in picks for one in went([pick], float(pick not in hopeless))])
    assert played == dict.fromkeys(hopeless[1:], 2)
    assert source.metrics()["failed"] == 0.0


def test_a_task_that_could_not_be_played_again_keeps_its_place() -> None:
    source = make({"replay": {"share": 0.5, "tries": 1}})
    first = source.draw(0, 2)
    source.tell(went(first, 0.0))
    again = source.draw(1, 2)
    assert again[1] == first[0]
    source.tell(went(again[:1]))
    assert source.draw(2, 2)[1] == first[0]


def test_what_is_played_again_does_not_hold_up_a_curriculum() -> None:
    source = make({"source": "curriculum", "arms": ARMS, "threshold": 1.0, "patience": 1, "replay": {"share": 0.5}})
    first = source.draw(0, 4)
    source.tell(went(first, 0.0))
    second = source.draw(1, 4)
    assert list(second[2:]) == list(first[:2])
    source.tell([*went(second[:2]), *went(second[2:], 0.0)])
    assert source.metrics()["stage"] == 1.0


@pytest.mark.parametrize("name", ["mixture", "curriculum", "progress"])
def test_the_state_of_other_arms_is_refused(name: str) -> None:
    other = make({**SOURCES[name], "arms": {"hard": {}, "easy": {}}})
    with pytest.raises(ValueError, match="the arms are"):
        make(SOURCES[name]).restore(other.state())


def test_names_of_arms_are_plain_words() -> None:
    with pytest.raises(ValueError, match="should match pattern"):
        TrainOptions(tasks={"source": "mixture", "arms": {"a b": {}, "c": {}}})


FINITE: dict[str, dict[str, Any]] = {
    "fresh": {},
    "epochs": {"source": "epochs", "count": 7},
    "mixture": {"source": "mixture", "arms": {"a": {}, "b": {}}},
    "curriculum": {"source": "curriculum", "arms": {"a": {}, "b": {}}, "threshold": 1.0},
    "fresh with failures": {"replay": {"share": 0.5, "memory": 9}},
    "epochs with failures": {"source": "epochs", "count": 7, "replay": {"share": 0.5}},
    "curriculum with failures": {"source": "curriculum", "arms": {"a": {}, "b": {}}, "replay": {"share": 0.5}},
}


@pytest.mark.parametrize("tasks", FINITE.values(), ids=FINITE.keys())
def test_further_draws_of_a_step_have_other_tasks_while_there_are_any(tasks: dict[str, Any]) -> None:
    train = TrainOptions(seed=3, tasks_per_step=3, tasks=tasks)
    sizes = dict.fromkeys(tasks.get("arms", {"own": {}}), 7)
    source, again = build_source(train, sizes), build_source(train, sizes)
    for step in range(12):
        drawn = list(source.draw(step, 3))
        # A first draw of an epoch's end and the next one's beginning may have a task twice.
        first = set(drawn)
        again.draw(step, 3)
        for number in (1, 2):
            more = source.draw(step + number * 2**40, 2, frozenset(drawn))
            assert list(again.draw(step + number * 2**40, 2, frozenset(drawn))) == list(more)
            assert len(set(more)) == 2
            assert not first & set(more)
            first |= set(more)
            drawn += more
        told = went(drawn, success=0.0)
        source.tell(told)
        again.tell(told)
        if step % 3 == 0:
            again = build_source(train, sizes)
            again.restore(json.loads(json.dumps(source.state())))


@pytest.mark.parametrize("tasks", FINITE.values(), ids=FINITE.keys())
def test_where_nothing_else_is_left_tasks_are_drawn_again(tasks: dict[str, Any]) -> None:
    train = TrainOptions(seed=3, tasks_per_step=7, tasks=tasks)
    source = build_source(train, dict.fromkeys(tasks.get("arms", {"own": {}}), 7))
    drawn = list(source.draw(0, 7))
    for number in range(1, 4):
        more = source.draw(number * 2**40, 7, frozenset(drawn))
        assert len(more) == 7
        drawn += more


def test_an_epoch_still_has_every_task_once_where_draws_leave_some_out() -> None:
    source = make({"source": "epochs", "count": 7})
    drawn: list[int] = []
    for step in range(14):
        own = source.draw(step, 3)
        more = source.draw(step + 2**40, 2, frozenset(own))
        assert not set(own) & set(more)
        drawn += [pick.index for pick in (*own, *more)]
        assert source.metrics()["epoch"] == pytest.approx(len(drawn) / 7)
    assert set(Counter(drawn).values()) == {10}


def test_a_task_that_nobody_solves_is_left_out_after_so_many_plays() -> None:
    source = make({"source": "epochs", "count": 6, "give_up": 2})
    played: Counter[int] = Counter()
    for step in range(40):
        picks = source.draw(step, 4)
        played.update(pick.index for pick in picks)
        # Task 0 is never solved, task 1 once and never again, the others always.
        source.tell([went([pick], float(pick.index > 1 or (pick.index == 1 and step < 2)))[0] for pick in picks])
    assert played[0] == 2
    assert max(played.values()) - min(played[index] for index in range(1, 6)) <= 1
    assert sum(played.values()) == 160
    assert source.metrics()["left_out"] == 1.0


def test_where_every_task_is_given_up_all_are_played_again() -> None:
    source = make({"source": "epochs", "count": 3, "give_up": 1})
    for step in range(5):
        picks = source.draw(step, 3)
        assert {pick.index for pick in picks} == {0, 1, 2}
        source.tell(went(picks, 0.0))
    assert source.metrics()["left_out"] == 0.0


def test_only_epochs_give_tasks_up() -> None:
    with pytest.raises(ConfigError, match=r"only epochs has it"):
        load_config(["train.tasks.give_up=2"])
