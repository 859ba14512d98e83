"""Terms that a judge says later: joined by turn id, whole rounds, defaults for what does not come, and counted."""

import asyncio
import math
import re
from collections.abc import AsyncGenerator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import BaseFor
from other_packages import put_package
from parts import SKILLED, make_turn
from pydantic import ValidationError
from virtual_time import play

from mas.algorithms.parts.advantages.pipeline import turn_advantages
from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.parts.rewards.late import LateOptions
from mas.config.options import Config
from mas.core.errors import ConfigError, TrainingError
from mas.core.records import Answer, Episode, Judge, Turn
from mas.observe.metrics import read_metrics
from mas.runs.resolve import resolve, resolve_training
from mas.serving.model import BaseModel
from mas.training.check_setup import check_trainable
from mas.training.evaluate import Evaluation
from mas.training.late_terms import LateTerms, find_judge
from mas.training.trainer import Trainer

ONE = LateOptions(judge="j", terms={"polite": -0.5}, wait_s=10.0)
TWO = LateOptions(judge="j", terms={"polite": -0.5, "brief": 0.0}, wait_s=10.0)


def episode(name: str, turns: int = 2, *, tree: bool = False) -> Episode:
    """All turns of one agent; in a tree each is a trajectory of its own."""
    said = [make_turn(group="task/executor", trajectory=name, rewards={"team.won": 1.0}) for _ in range(turns)]
    ids = [f"{name}/{place}" for place in range(turns)]
    named = [
        msgspec.structs.replace(turn, id=own, episode=name, trajectory=own if tree else name)
        for own, turn in zip(ids, said, strict=True)
    ]
    return Episode(
        id=name, task="t", success=True, turns=tuple(named), lines=(), rewards={}, prompt_tokens=0,
        completion_tokens=0, calls=0,
    )  # fmt: skip


def judge_of(*answers: tuple[float, str, float], term: str = "polite") -> Judge:
    """Answers (second, turn, value), in this order; only those of turns in the round or called `?`."""

    async def judge(turns: Sequence[Turn]) -> AsyncGenerator[Answer]:
        asked, now = {turn.id for turn in turns}, 0.0
        for second, turn, value in answers:
            if turn in asked or turn.startswith("?"):
                await asyncio.sleep(second - now)
                now = second
                yield Answer(turn, term, value)

    return judge


def terms(groups: Sequence[Sequence[Episode]], what: str = "rewards") -> dict[str, dict[str, float]]:
    return {
        turn.id: {name: value for name, value in getattr(turn, what).items() if name.startswith("own.")}
        for group in groups
        for one in group
        for turn in one.turns
    }


async def joined(late: LateTerms, *episodes: Episode) -> list[list[Episode]]:
    return await late.join([list(episodes)])


def test_answers_are_joined_by_id_in_any_order_and_a_trajectory_has_their_sum() -> None:
    judge = judge_of((3.0, "b/0", 4.0), (3.0, "a/1", 2.0), (5.0, "b/1", 8.0), (9.0, "a/0", 1.0))

    async def main() -> None:
        late = LateTerms(ONE, judge)
        async with late.listening():
            found = await joined(late, episode("a"), episode("b"))
            assert asyncio.get_running_loop().time() == pytest.approx(9.0)  # no longer than the last one takes
        sums = {"a": 3.0, "b": 12.0}
        assert terms(found) == {name: {"own.polite": sums[name[0]]} for name in ("a/0", "a/1", "b/0", "b/1")}
        own = {"a/0": 1.0, "a/1": 2.0, "b/0": 4.0, "b/1": 8.0}
        assert terms(found, "paid") == {name: {"own.polite": value} for name, value in own.items()}
        assert all(turn.rewards["team.won"] == 1.0 for one in found[0] for turn in one.turns)
        assert late.metrics() == {"taken": 4, "defaulted": 0, "too_late": 0, "refused": 0}

    play(main())


def test_a_candidate_of_a_tree_has_its_own_answer_alone() -> None:
    judge = judge_of((1.0, "a/1", 2.0), (2.0, "a/0", 1.0))

    async def main() -> None:
        late = LateTerms(ONE, judge)
        async with late.listening():
            found = await joined(late, episode("a", tree=True))
        assert terms(found) == {"a/0": {"own.polite": 1.0}, "a/1": {"own.polite": 2.0}}
        assert all(turn.paid == {} for turn in found[0][0].turns)

    play(main())


def test_what_never_comes_gets_its_default_when_the_judge_ends_and_is_counted() -> None:
    async def main() -> None:
        late = LateTerms(ONE, judge_of((1.0, "a/0", 3.0)))
        async with late.listening():
            found = await joined(late, episode("a"))
            assert asyncio.get_running_loop().time() == pytest.approx(1.0)
        assert terms(found, "paid") == {"a/0": {"own.polite": 3.0}, "a/1": {"own.polite": -0.5}}
        assert late.metrics() == {"taken": 1, "defaulted": 1, "too_late": 0, "refused": 0}

    play(main())


def test_what_comes_too_late_is_counted_in_the_next_step_and_never_used() -> None:
    judge = judge_of((1.0, "a/0", 3.0), (14.0, "a/1", 100.0), (13.0, "b/0", 1.0), (14.0, "b/1", 1.0))

    async def main() -> None:
        late = LateTerms(ONE, judge)
        async with late.listening():
            found = await joined(late, episode("a"))
            assert asyncio.get_running_loop().time() == pytest.approx(10.0)
            assert terms(found) == {name: {"own.polite": 2.5} for name in ("a/0", "a/1")}
            assert late.metrics() == {"taken": 1, "defaulted": 1, "too_late": 0, "refused": 0}
            again = await joined(late, episode("b"))
            assert terms(again) == {name: {"own.polite": -1.0} for name in ("b/0", "b/1")}
            assert late.metrics() == {"taken": 0, "defaulted": 2, "too_late": 1, "refused": 0}

    play(main())


def test_a_judge_that_never_ends_is_closed_a_step_later_and_at_the_end() -> None:
    closed: list[str] = []

    async def endless(turns: Sequence[Turn]) -> AsyncGenerator[Answer]:
        try:
            await asyncio.sleep(1e9)
            yield Answer("never", "polite", 0.0)
        finally:
            closed.append(turns[0].id)

    async def main() -> None:
        late = LateTerms(ONE, endless)
        async with late.listening():
            await joined(late, episode("a"))
            assert closed == []
            await joined(late, episode("b"))
            assert closed == ["a/0"]
        assert closed == ["a/0", "b/0"]
        assert asyncio.get_running_loop().time() == pytest.approx(20.0)
        assert late.metrics() == {"taken": 0, "defaulted": 4, "too_late": 0, "refused": 0}

    play(main())


@pytest.mark.parametrize(
    ("second", "cause"),
    [
        ((2.0, "a/0", 9.0), "does not wait for 'own.polite': it came before"),
        ((2.0, "?nobody", 9.0), "no turn '?nobody' is held"),
        ((2.0, "a/1", math.nan), "is nan; a reward must be a finite number"),
    ],
)
def test_answers_that_cannot_be_joined_are_refused_alone_with_their_cause(
    second: tuple[float, str, float], cause: str
) -> None:
    async def main() -> None:
        late = LateTerms(ONE, judge_of((1.0, "a/0", 3.0), second, (3.0, "a/1", 4.0)))
        async with late.listening():
            found = await joined(late, episode("a"))
        assert terms(found, "paid") == {"a/0": {"own.polite": 3.0}, "a/1": {"own.polite": 4.0}}
        assert late.metrics() == {"taken": 2, "defaulted": 0, "too_late": 0, "refused": 1}
        (told,) = late.causes()
        assert cause in told
        assert late.causes() == []

    play(main())


def test_a_term_that_nobody_asked_for_is_refused_and_the_terms_are_waited_for_one_by_one() -> None:
    async def judge(turns: Sequence[Turn]) -> AsyncGenerator[Answer]:
        for turn in turns:
            yield Answer(turn.id, "polte", 1.0)
            yield Answer(turn.id, "brief", 7.0)

    async def main() -> None:
        late = LateTerms(TWO, judge)
        async with late.listening():
            found = await joined(late, episode("a", 1))
        assert terms(found) == {"a/0": {"own.brief": 7.0, "own.polite": -0.5}}
        assert late.metrics() == {"taken": 1, "defaulted": 1, "too_late": 0, "refused": 1}
        assert "'own.polte' has no default" in late.causes()[0]

    play(main())


@pytest.mark.parametrize("second", [1.0, 12.0], ids=["in time", "after its turns went on"])
def test_a_judge_that_fails_ends_the_run_with_its_cause(second: float) -> None:
    async def broken(turns: Sequence[Turn]) -> AsyncGenerator[Answer]:
        await asyncio.sleep(second)
        if turns[0].id == "a/0":
            raise OSError("no connection")
        await asyncio.sleep(5.0)
        yield Answer(turns[0].id, "polite", 0.0)

    async def steps() -> None:
        late = LateTerms(ONE, broken)
        async with late.listening():
            await joined(late, episode("a"))
            await joined(late, episode("b"))

    async def main() -> None:  # within the play, which finds tasks that are left
        with pytest.raises(TrainingError, match="judge 'j' failed on 2 turns: OSError: no connection"):
            await steps()

    play(main())


def test_without_turns_nobody_is_asked() -> None:
    async def main() -> None:
        late = LateTerms(ONE, judge_of())
        async with late.listening():
            assert await joined(late, episode("a", 0)) == [[episode("a", 0)]]

    play(main())


class Kept:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.metrics: list[dict[str, Any]] = []
        self.turns: list[Turn] = []
        self.notes: list[Any] = []

    def on_resume(self, step: int) -> None:
        pass

    def on_step(self, step: int, metrics: dict[str, Any], episodes: Sequence[Episode]) -> None:
        self.metrics.append(metrics)
        self.turns += [turn for one in episodes for turn in one.turns]

    def on_note(self, step: int, note: Any) -> None:
        self.notes.append(note)

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        pass


def config_of(scenario: str = "relay", **algorithm: Any) -> Config:
    late = {"judge": "by_text", "terms": {"judged": 0.25}, "wait_s": 5.0}
    reward = {"late": late} | algorithm.pop("reward", {})
    return Config.model_validate(
        {
            "scenario": {"name": scenario},
            "model": SKILLED.model_dump(),
            "algorithm": {"sampler": {"candidates": 4}, "reward": reward, **algorithm},
            "train": {"steps": 1, "tasks_per_step": 3, "eval_tasks": 2, "eval_every": 0},
        }
    )


async def by_text(turns: Sequence[Turn]) -> AsyncGenerator[Answer]:
    """Half of the turns, last one first, the first of them twice."""
    for turn in reversed(turns[::2]):
        yield Answer(turn.id, "judged", float(len(turn.text)))
        if turn is turns[0]:
            yield Answer(turn.id, "judged", -99.0)


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", SKILLED)


async def test_a_run_learns_from_what_its_judge_says(base: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    config, kept, seen = config_of(), Kept(), list[Turn]()

    def noted(turns: Sequence[Turn], *rest: Any, **more: Any) -> list[float]:
        seen.extend(turns)
        return turn_advantages(turns, *rest, **more)

    monkeypatch.setattr("mas.training.updates.policy_gradient.turn_advantages", noted)
    trainer = Trainer(resolve_training(config), base, judges={"by_text": by_text})
    await trainer.run(kept)
    assert [turn.id for turn in seen] == [turn.id for turn in kept.turns]
    for place, turn in enumerate(seen):
        assert turn.rewards["own.judged"] == (0.25 if place % 2 else float(len(turn.text)))
    half = (len(seen) + 1) // 2
    late = kept.metrics[0]["late"]
    assert late == {"taken": half, "defaulted": len(seen) - half, "too_late": 0, "refused": late["refused"]}
    assert all("own.judged" in role["terms"] for role in kept.metrics[0]["roles"].values())


async def test_what_is_refused_is_written_down(base: BaseModel) -> None:
    async def twice(turns: Sequence[Turn]) -> AsyncGenerator[Answer]:
        for turn in (turns[0], *turns):
            yield Answer(turn.id, "judged", 1.0)

    config, kept = config_of(), Kept()
    await Trainer(resolve_training(config), base, judges={"by_text": twice}).run(kept)
    assert kept.metrics[0]["late"] == {"taken": len(kept.turns), "defaulted": 0, "too_late": 0, "refused": 1}
    (note,) = kept.notes
    assert note["source"] == "judge"
    assert "it came before" in note["refused"][0]


def test_a_judge_that_nobody_offers_is_refused_before_anything_is_played(base: BaseModel) -> None:
    config = config_of()
    with pytest.raises(ConfigError, match=r"judge is 'by_text', .* give one in Python"):
        Trainer(resolve_training(config), base)
    with pytest.raises(ConfigError, match=r"Did you mean 'by_texts'"):
        Trainer(resolve_training(config), base, judges={"by_texts": by_text})


def test_an_installed_package_may_offer_a_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"good": "its_judges:judge", "bad": "no_such_module:judge", "wrong": "its_judges:NAME"}
    source = "async def judge(turns):\n    yield\n\n\nNAME = 'judge'\n"
    put_package(tmp_path, "court", {"mas.judges": points}, its_judges=source)
    monkeypatch.syspath_prepend(tmp_path)

    def found(name: str) -> object:
        return find_judge(LateOptions(judge=name, terms={"polite": 0.0}), resolve(Config()))

    assert found("good") is import_module("its_judges").judge
    with pytest.raises(ConfigError, match="judge 'bad' comes with the package court, and its no_such_module:judge can"):
        found("bad")
    with pytest.raises(ConfigError, match="judge 'wrong': its_judges:NAME of another package is a str, no function"):
        found("wrong")


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        ({"reward": {"model": {"kind": "progress", "joins": "alone"}}, "sampler": {"mode": "parallel"}}, "joins=alone"),
        (
            {"update": "preference", "sampler": {"mode": "full_tree"}},
            "preference.value=outcome: it pays terms that nobody reads",
        ),
        (
            {"update": "training_free", "sampler": {"mode": "parallel"}},
            "experience.score=success: it pays terms that nobody reads",
        ),
    ],
)
def test_late_terms_that_nobody_reads_are_refused(algorithm: dict[str, Any], reason: str) -> None:
    late = {"judge": "j", "terms": {"polite": 0.0}}
    reward = {"late": late} | algorithm.get("reward", {})
    with pytest.raises(ValidationError, match=reason):
        AlgorithmOptions.model_validate(algorithm | {"reward": reward})


@pytest.mark.parametrize("late", [{"terms": {}}, {"terms": {"a": math.inf}}, {"wait_s": 0}, {"judge": ""}])
def test_waiting_for_nothing_or_for_no_time_is_refused(late: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LateOptions.model_validate({"judge": "j", "terms": {"polite": 0.0}} | late)


def test_a_late_term_may_be_weighed_but_not_be_one_that_is_paid_already() -> None:
    weighed = config_of(reward={"weights": {"judged": 2.0}})
    check_trainable(resolve(weighed))
    twice = config_of(reward={"late": {"judge": "j", "terms": {"failure": 0.0}}})
    with pytest.raises(ConfigError, match=r"late\.terms has 'failure', which is paid as turns are sampled"):
        check_trainable(resolve(twice))


def test_the_example_of_the_page_runs(small_overrides: tuple[str, ...], tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^## Rewards that come late\n.*?^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/rewards.md", "exec"), names)  # noqa: S102 - our own page
    names["train"](str(tmp_path / "run"), *small_overrides, "train.tasks_per_step=2", "train.eval_tasks=2")
    lines = [line for line in read_metrics(tmp_path / "run" / "metrics.jsonl") if "late" in line]
    assert len(lines) == 2
    for line in lines:
        turns = sum(role["turns"] for role in line["roles"].values())
        assert line["late"] == {"taken": turns, "defaulted": 0, "too_late": 0, "refused": 0}
        assert all(0 <= role["terms"]["own.brief"] <= 1 for role in line["roles"].values())
