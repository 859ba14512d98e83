"""Training against opponents: who is met, what is learned from it, and what is not."""

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from mixed import mixed
from parts import SKILLED
from watched import Seen

from mas.algorithms.parts.opponents import OpponentRecord
from mas.config.load import load_config
from mas.config.options import Config
from mas.config.stored_run import load_run_config
from mas.config.trust import remember
from mas.core.environment import Environment, Task
from mas.core.errors import CheckpointError, ConfigError, MasError, RunDirectoryError
from mas.core.records import Episode
from mas.league.match import LeagueMember, chance_of
from mas.league.opponents import LeaguePool, Scripted, open_pool
from mas.league.players import open_players
from mas.league.store import LeagueStore
from mas.league.stored_sources import accesses_of_player
from mas.runs.resolve import resolve, resolve_training
from mas.runs.train import train_in_directory
from mas.scenarios import build_scenario
from mas.serving.adapter_files import from_directory
from mas.serving.model import BaseModel
from mas.training.opponents import open_opponents, payoffs_of, points_of
from mas.training.saved import initial_adapters
from mas.training.trainer import Trainer, TrainingOutcome

pytest.importorskip("pyspiel")
TINY = [f"model.tiny.{name}={value}" for name, value in SKILLED.tiny.model_dump(exclude_defaults=True).items()]
SHORT = (
    *("train.tasks_per_step=6", "train.eval_tasks=2", "train.eval_every=0", "train.checkpoint_every=1"),
    *("train.keep_checkpoints=9", "model.lora.rank=4", "learner.lr=0.01"),
)
OPPONENTS = "algorithm.opponents"
LUCK = f"{OPPONENTS}.players.luck=random"


def config_of(*overrides: str, steps: int = 2) -> Config:
    words = ("scenario=two_player", "algorithm=spiral", *TINY, *SHORT, f"train.steps={steps}")
    return load_config(mixed(*words, *overrides))


def old(trained: Path, step: int = 2) -> str:
    return f"{OPPONENTS}.players.old='run:{trained}@{step}'"


@pytest.fixture(scope="module")
def kuhn(base_for: Callable[..., BaseModel]) -> BaseModel:
    return base_for("two_player", SKILLED)


def trainer_of(config: Config, base: BaseModel, checkpoints: Path | None = None) -> Trainer:
    scenario = build_scenario(config.scenario)
    setup, pool = resolve_training(config, scenario), open_pool(config, scenario)
    return Trainer(setup, base, checkpoints=checkpoints, opponents=pool)


async def train(config: Config, base: BaseModel, checkpoints: Path | None = None) -> tuple[TrainingOutcome, Seen]:
    trainer, seen = trainer_of(config, base, checkpoints), Seen()
    seen.listen(trainer)
    trainer.resume()
    return await trainer.run(seen), seen


def games_of(seen: Seen) -> list[Episode]:
    return [episode for step in seen.episodes for episode in step]


def weights(outcome: TrainingOutcome, name: str = "shared") -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in outcome.adapters[name].parameters()])


MODES = (
    ("algorithm.sampler.mode=parallel",),
    (
        *("algorithm.sampler.mode=tree", "algorithm.sampler.lookahead=episode", "algorithm.advantage.key=group"),
        *("algorithm.advantage.baseline=mean", "algorithm.advantage.scale=std"),
    ),
)


@pytest.mark.parametrize("mode", MODES, ids=["parallel", "tree"])
async def test_nothing_that_an_opponent_said_is_learned_from(trained: Path, kuhn: BaseModel, mode: Any) -> None:
    _, seen = await train(config_of(old(trained), LUCK, *mode, steps=3), kuhn)
    rows = [row for improved in seen.improved for row in improved.rows]
    games = {episode.id: episode for episode in games_of(seen)}
    assert {one.opponent for one in games.values()} == {"old", "luck"}
    assert rows
    for row in rows:
        assert row.turn.adapter is not None
        assert (row.adapter, row.turn.adapter.name) == ("shared", "shared")
        assert row.turn.agent == games[row.turn.episode].seat
    assert sum(len(improved.advantages) for improved in seen.improved) == len(rows), "no advantage for anybody else"
    for game in games.values():
        own = [line for line in game.lines if line.agent == game.seat]
        theirs = [line for line in game.lines if line.agent == f"opponent.{game.opponent}"]
        assert len(own) + len(theirs) == len(game.lines) >= 2
        assert game.length == len(own), "an opponent's moves are none of the team's turns"
        if mode is MODES[0]:
            assert game.calls == len(own)
            assert game.completion_tokens == sum(len(turn.completion_ids) for turn in game.turns)


@pytest.mark.parametrize("mode", MODES, ids=["parallel", "tree"])
async def test_all_that_are_compared_meet_one_opponent_in_one_seat_and_seats_take_turns(
    trained: Path, kuhn: BaseModel, mode: Any
) -> None:
    _, seen = await train(config_of(old(trained), LUCK, *mode, steps=3), kuhn)
    met: dict[str, set[tuple[str, str]]] = {}
    for episode in games_of(seen):
        met.setdefault(episode.task, set()).add((episode.opponent, episode.seat))
        for turn in episode.turns:
            met.setdefault(turn.group, set()).add((episode.opponent, episode.seat))
    assert all(len(one) == 1 for one in met.values())
    seats = [next(iter(met[task]))[1] for task in dict.fromkeys(one.task for one in games_of(seen))]
    assert all(set(pair) == {"player_0", "player_1"} for pair in zip(seats[::2], seats[1::2], strict=True))
    assert {name for one in met.values() for name, _ in one} == {"old", "luck"}


@pytest.mark.parametrize("key", ["group", "prompt"])
async def test_a_task_that_comes_twice_in_a_step_has_one_opponent_and_one_seat(kuhn: BaseModel, key: str) -> None:
    three = ("train.tasks.source=epochs", "train.tasks.count=3", f"algorithm.advantage.key={key}")
    groups = (*MODES[0], *three, "algorithm.advantage.baseline=mean", "algorithm.advantage.scale=std")
    _, seen = await train(config_of(LUCK, f"{OPPONENTS}.players.best=cfr:10", *groups), kuhn)
    for step in seen.episodes:
        met: dict[str, set[tuple[str, str]]] = {}
        for episode in step:
            met.setdefault(episode.task, set()).add((episode.opponent, episode.seat))
        assert [len(one) for one in met.values()] == [1, 1, 1]
    assert {one.opponent for one in games_of(seen)} == {"luck", "best"}


def test_tasks_that_come_again_in_order_are_played_from_both_seats_and_each_step_from_both_equally() -> None:
    config = config_of(LUCK)
    found = open_opponents(setup := resolve(config), pool_of(LUCK), is_distributed=False)
    assert found is not None
    tasks, roles = [f"task {number}" for number in range(6)], set(setup.team.roles)
    faced: list[dict[str, Any]] = [{} for _ in range(41)]
    for step, own in enumerate(faced):
        found.draw(step if step < 40 else 7, own, tasks, 6, roles)
    *steps, again = [[one.seats[0] for one in own.values()] for own in faced]
    assert all(Counter(seats) == {"player_0": 3, "player_1": 3} for seats in steps)
    for seats in zip(*steps, strict=True):
        assert 8 <= Counter(seats)["player_0"] <= 32, "a fair coin: beyond by chance once in ten thousand"
    assert again == steps[7]


async def test_opponents_stay_what_they_were_bit_for_bit(
    trained: Path, kuhn: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores, opened = [], LeaguePool.open

    def kept(pool: LeaguePool, engine: Any, base: BaseModel) -> Any:
        stores.append(engine.store)
        return opened(pool, engine, base)

    monkeypatch.setattr(LeaguePool, "open", kept)
    first = f"{OPPONENTS}.players.last='run:{trained}@4'"
    outcome, _ = await train(config_of(old(trained), first), kuhn)
    saved = trained / "checkpoints"
    for name, step in (("opponent.old.shared", 2), ("opponent.last.shared", 4)):
        its = from_directory(saved / f"step-{step:06d}" / "adapters" / "shared", kuhn.bank)
        mine = stores[0].weights(name)
        assert all(torch.equal(a, b) for a, b in zip(mine.parameters(), its.parameters(), strict=True))
        with pytest.raises(MasError, match="frozen"):
            await stores[0].publish(name, its)
    assert set(outcome.progress.versions) == {"shared"} == set(outcome.adapters)
    assert weights(outcome).any()


async def test_an_opponent_moves_as_its_snapshot_does_in_a_match(trained: Path, kuhn: BaseModel) -> None:
    config = config_of(f"{OPPONENTS}.players.a='run:{trained}@2'", f"{OPPONENTS}.players.b='run:{trained}@4'")
    scenario = build_scenario(config.scenario)
    pool, trainer = open_pool(config, scenario), trainer_of(config, kuhn)
    assert pool is not None
    sources = {"a": f"run:{trained}@2", "b": f"run:{trained}@4"}
    async with open_players(sources, pool.world, lambda text: None) as players:
        in_match = {name: [await player.move(one()) for one in _points(scenario)] for name, player in players.items()}
    async with trainer._open() as crew, pool.open(crew.engine, kuhn) as met:
        found = {}
        for name, opponent in met.items():
            points = [one() for one in _points(scenario)]
            found[name] = [await opponent.move(p.seat, p.copy(), seed) for seed, p in enumerate(points)]
    assert found == in_match
    assert found["a"] != found["b"]


def _points(scenario: Any) -> list[Callable[[], Any]]:
    """Decisions of both seats, each with a seed of its own."""

    def point(seed: int) -> Any:
        game = scenario.environment()
        game.reset(Task(id="t", seed=seed))
        if seed % 2:
            game.step({"player_0": "p"})
        return chance_of(game, game.to_move()[0], seed)

    return [partial(point, seed) for seed in range(60)]


async def test_a_run_goes_on_as_if_it_had_never_stopped(trained: Path, kuhn: BaseModel, tmp_path: Path) -> None:
    mix = (old(trained), LUCK, f"{OPPONENTS}.players.best=cfr:50", f"{OPPONENTS}.mix=0.2*self+0.8*pfsp:2")
    straight, whole = await train(config_of(*mix, steps=4), kuhn)
    again, _ = await train(config_of(*mix, steps=4), kuhn)
    other, _ = await train(config_of(*mix, "train.seed=1", steps=4), kuhn)
    assert torch.equal(weights(straight), weights(again))
    assert not torch.equal(weights(straight), weights(other))
    _, first = await train(config_of(*mix), kuhn, tmp_path)
    resumed, rest = await train(config_of(*mix, steps=4), kuhn, tmp_path)
    assert torch.equal(weights(straight), weights(resumed))
    assert [one["opponents"] for one in whole.metrics] == [one["opponents"] for one in first.metrics + rest.metrics]
    assert [one.opponent for one in games_of(whole)] == [one.opponent for one in games_of(first) + games_of(rest)]
    assert {one.opponent for one in games_of(whole)} == {"self", "old", "luck", "best"}


async def test_a_run_keeps_the_opponents_that_it_began_with(trained: Path, kuhn: BaseModel, tmp_path: Path) -> None:
    league = str(tmp_path / "pool.db")
    store = LeagueStore.open(league)
    store.enter(LeagueMember(name="first", source=f"run:{trained}@2"))
    remember(accesses_of_player("first", f"run:{trained}", league))
    config = config_of(f"{OPPONENTS}.league='{league}'", steps=1)
    for name in ("kept", "new"):
        (tmp_path / name).mkdir()
    _, seen = await train(config, kuhn, tmp_path / "kept")
    assert set(seen.metrics[0]["opponents"]) == {"first"}
    store.enter(LeagueMember(name="second", source="random"))
    longer = config.model_copy(update={"train": config.train.model_copy(update={"steps": 3})})
    _, later = await train(longer, kuhn, tmp_path / "kept")
    assert {one.opponent for one in games_of(later)} == {"first"}
    _, fresh = await train(longer, kuhn, tmp_path / "new")
    assert {one.opponent for one in games_of(fresh)} == {"first", "second"}
    state = next((tmp_path / "new").glob("*3")) / "opponents.json"
    state.unlink()
    with pytest.raises(CheckpointError):
        trainer_of(longer, kuhn, tmp_path / "new").resume()


def test_the_league_is_let_go_of_when_it_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed, close = list[LeagueStore](), LeagueStore.close
    store = LeagueStore.open(tmp_path / "pool.db")
    store.enter(LeagueMember(name="first", source="random"))
    monkeypatch.setattr(LeagueStore, "close", lambda one: closed.append(one) or close(one))
    assert pool_of(f"{OPPONENTS}.league='{tmp_path / 'pool.db'}'").players == {"first": "random"}
    assert len(closed) == 1


async def test_a_run_goes_on_without_its_league(kuhn: BaseModel, tmp_path: Path) -> None:
    league, run = tmp_path / "pool.db", tmp_path / "run"
    LeagueStore.open(league).enter(LeagueMember(name="first", source="random"))
    (run / "checkpoints").mkdir(parents=True)
    config = config_of(f"{OPPONENTS}.league='{league}'", f"run_dir='{run}'", steps=1)
    await train(config, kuhn, run / "checkpoints")
    league.unlink()
    longer = config.model_copy(update={"train": config.train.model_copy(update={"steps": 2})})
    _, seen = await train(longer, kuhn, run / "checkpoints")
    assert {one.opponent for one in games_of(seen)} == {"first"}
    with pytest.raises(ConfigError, match="there is no league"):
        open_pool(config.model_copy(update={"run_dir": str(tmp_path / "new")}), build_scenario(config.scenario))


async def test_with_an_adapter_for_each_seat_each_learns_in_its_own_games(kuhn: BaseModel) -> None:
    both = config_of(LUCK, "algorithm.policy=per_role", steps=1)
    outcome, seen = await train(both, kuhn)
    assert {row.adapter for row in seen.improved[0].rows} == {"player_0", "player_1"}
    assert weights(outcome, "player_0").any()
    assert weights(outcome, "player_1").any()
    one, seen = await train(config_of(LUCK, "algorithm.policy=per_role", f"{OPPONENTS}.seats=[player_1]"), kuhn)
    assert {episode.seat for episode in games_of(seen)} == {"player_1"}
    assert not from_second(one, "player_0").any()
    assert from_second(one, "player_1").any()


def from_second(outcome: TrainingOutcome, name: str) -> torch.Tensor:
    """What a fresh adapter has 0 in."""
    return outcome.adapters[name].parameters()[1]


async def test_against_itself_only_the_wanted_seats_learn(kuhn: BaseModel) -> None:
    alone = (LUCK, f"{OPPONENTS}.shares.self=1", f"{OPPONENTS}.shares.luck=0")
    _, both = await train(config_of(*alone, steps=1), kuhn)
    assert {turn.agent for one in games_of(both) for turn in one.turns} == {"player_0", "player_1"}
    assert both.metrics[0]["opponents"] == {"self": {"games": 24}}
    _, first = await train(config_of(*alone, f"{OPPONENTS}.seats=[player_0]", steps=1), kuhn)
    assert {turn.agent for one in games_of(first) for turn in one.turns} == {"player_0"}
    assert {line.agent for one in games_of(first) for line in one.lines} == {"player_0", "player_1"}


async def test_stages_play_the_seats_whose_roles_they_train(kuhn: BaseModel) -> None:
    stages = "algorithm.stages=[{roles: [player_1], steps: 1}, {roles: [player_0], steps: 1}]"
    _, seen = await train(config_of(LUCK, stages, "algorithm.policy=per_role"), kuhn)
    assert [{one.seat for one in step} for step in seen.episodes] == [{"player_1"}, {"player_0"}]


async def test_seats_that_move_at_once_do_not_see_each_other(kuhn: BaseModel, base_for: Any) -> None:
    config = config_of(LUCK, "scenario.options.game=rock_paper_scissors", steps=1)
    _, seen = await train(config, base_for(config.scenario.model_dump(), config.model))
    for one in games_of(seen):
        assert sorted(line.agent for line in one.lines) == sorted([one.seat, "opponent.luck"])
        assert one.length == 1
        beats, (mine,) = {"r": "s", "p": "r", "s": "p"}, one.turns
        (its,) = [line.text for line in one.lines if line.agent == "opponent.luck"]
        if mine.text in beats:
            assert mine.rewards["team.payoff"] == float(beats[mine.text] == its) - float(beats[its] == mine.text)


def pool_of(*overrides: str) -> LeaguePool:
    config = config_of(*overrides)
    pool = open_pool(config, build_scenario(config.scenario))
    assert pool is not None
    return pool


def drawn(pool: LeaguePool, points: dict[str, float], count: int = 4000) -> dict[str, float]:
    found = Counter(pool.draw(points, Random(number)) for number in range(count))
    return {name: found[name] / count for name in [*pool.players, "self"]}


def test_who_is_hard_is_met_more_often_and_mixes_are_kept() -> None:
    two = (LUCK, f"{OPPONENTS}.players.best=cfr:10")
    found = drawn(pool_of(*two, f"{OPPONENTS}.mix=0.5*self+0.5*pfsp:2"), {"luck": 0.8, "best": 0.4})
    # 0.2^2 : 0.6^2 = 1 : 9, of one half
    assert found == pytest.approx({"luck": 0.05, "best": 0.45, "self": 0.5}, abs=0.025)
    found = drawn(pool_of(*two, f"{OPPONENTS}.mix=pfsp:2"), {"luck": 1.0})
    assert found == {"luck": 0.0, "best": 1.0, "self": 0.0}, "who was never met counts as an equal"
    assert drawn(pool_of(*two, f"{OPPONENTS}.mix=latest"), {}) == {"luck": 0.0, "best": 1.0, "self": 0.0}
    shares = (f"{OPPONENTS}.shares.luck=3", f"{OPPONENTS}.shares.self=1")
    assert drawn(pool_of(*two, *shares), {}) == pytest.approx({"luck": 0.75, "best": 0.0, "self": 0.25}, abs=0.025)


async def test_the_means_of_a_run_are_those_of_its_games(kuhn: BaseModel) -> None:
    _, seen = await train(config_of(LUCK, f"{OPPONENTS}.decay=0.9"), kuhn)
    weight = payoff = points = 0.0
    games = games_of(seen)
    for one in games:
        paid = one.rewards[f"{one.seat}.payoff"]
        weight, payoff, points = 0.9 * weight + 1, 0.9 * payoff + paid, 0.9 * points + (paid > 0)
    found = seen.metrics[-1]["opponents"]["luck"]
    assert found == {"games": len(games), "payoff": pytest.approx(payoff / weight), "points": points / weight}
    assert len(games) == 48


def test_points_are_shared_by_those_who_have_the_most() -> None:
    paid = payoffs_of({"a.chips": 2.0, "a.bonus": 1.0, "b.chips": 3.0, "c.chips": -6.0}, ("a", "b", "c"))
    assert paid == {"a": 3.0, "b": 3.0, "c": -6.0}
    assert [points_of(paid, seat) for seat in paid] == [0.5, 0.5, 0.0]
    record = OpponentRecord()
    for points in (1.0, 0.0):
        record.add(points, 2 * points, 0.5)
    assert (record.games, record.weight, record.points, record.payoff) == (2, 1.5, 0.5, 1.0)


async def test_a_search_lets_others_go_on(monkeypatch: pytest.MonkeyPatch, kuhn: BaseModel) -> None:
    def slow(environment: Environment, seat: str, random: Random) -> str:
        time.sleep(0.3)
        return "Pass"

    monkeypatch.setattr("mas.league.opponents.scripted", lambda source, world: Scripted(slow))
    pool, ticks = pool_of(f"{OPPONENTS}.players.tree=mcts:50"), 0
    game = pool.world.open()
    game.reset(Task(id="t", seed=1))

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    async with pool.open(None, kuhn) as met:
        ticking = asyncio.create_task(tick())
        assert await met["tree"].move("player_0", game, 1) == "p"
        ticking.cancel()
    assert ticks >= 5


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        ([f"{OPPONENTS}.mix=latest"], ConfigError, "no opponent is named"),
        ([f"{OPPONENTS}.players.self=random"], ConfigError, "which is the present policy"),
        ([LUCK, f"{OPPONENTS}.mix=lattest"], ConfigError, "Did you mean 'latest'"),
        ([LUCK, f"{OPPONENTS}.mix=0.5*latest+0.2*self"], ConfigError, "add up to 1"),
        ([LUCK, f"{OPPONENTS}.mix=latest", f"{OPPONENTS}.shares.luck=1"], ConfigError, "leave one of them out"),
        ([LUCK, f"{OPPONENTS}.shares.lucky=1"], ConfigError, "Did you mean 'luck'"),
        ([LUCK, f"{OPPONENTS}.shares.luck=0"], ConfigError, "all 0"),
        ([LUCK, f"{OPPONENTS}.shares.luck=1e308", f"{OPPONENTS}.shares.self=1e308"], ConfigError, "1000000"),
        ([LUCK, f"{OPPONENTS}.seats=[player_2]"], ConfigError, "algorithm.opponents.seats has 'player_2'"),
        (
            [LUCK, f"{OPPONENTS}.seats=[player_0]", "algorithm.policy=per_role", "algorithm.roles=[player_1]"],
            ConfigError,
            "nothing would be learned",
        ),
        ([f"{OPPONENTS}.players.x=randon"], ConfigError, "x=randon: no player 'randon'"),
        ([f"{OPPONENTS}.players.x=minimax"], ConfigError, "x=minimax: minimax cannot play"),
        ([f"{OPPONENTS}.players.x='openai:qwen'"], ConfigError, "x=openai:qwen: .*write openai:MODEL@URL"),
        ([f"{OPPONENTS}.players.x=run:nowhere"], RunDirectoryError, "nowhere"),
        ([f"{OPPONENTS}.league=nowhere.db"], ConfigError, "there is no league"),
        ([LUCK, "scenario=relay", "algorithm=at_grpo"], ConfigError, "has one seat"),
        ([LUCK, "algorithm=training_free"], ConfigError, "training_free does not go together with opponents"),
        ([LUCK, "algorithm=arpo"], ConfigError, "opponents does not go together with sampler.replay"),
        ([LUCK, "scenario=debate", "algorithm=at_grpo"], ConfigError, "has one seat"),
    ],
)
def test_opponents_that_make_no_sense_are_refused(
    overrides: Sequence[str], error: type[Exception], message: str, kuhn: BaseModel
) -> None:
    with pytest.raises(error, match=message):
        trainer_of(config_of(*overrides), kuhn)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.tiny.seed=7", "another base than the run that trains.*: model.tiny.seed is 0 there and 7 here"),
        ("scenario.options.tries=2", "scenario of the tiny base"),
        ("scenario.options.game=leduc_poker", "plays two_player:kuhn_poker, not two_player:leduc_poker"),
    ],
)
def test_runs_of_another_base_or_game_are_refused(trained: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pool_of(old(trained), override)


def test_a_step_that_is_not_there_is_refused(trained: Path) -> None:
    with pytest.raises(RunDirectoryError, match="no checkpoint of step 3"):
        pool_of(old(trained, 3))


def test_who_makes_no_opponents_cannot_train_against_them(kuhn: BaseModel) -> None:
    config = config_of(LUCK)
    with pytest.raises(ConfigError, match="nobody opens them"):
        Trainer(resolve_training(config), kuhn)
    pool = open_pool(config, build_scenario(config.scenario))
    with pytest.raises(ConfigError, match="train without --bus"):
        Trainer(resolve_training(config), kuhn, opening=lambda base: None, opponents=pool)


async def test_adapters_begin_as_those_of_another_run(trained: Path, kuhn: BaseModel) -> None:
    start = f"train.start='{trained}@2'"
    outcome, _ = await train(config_of(LUCK, start, steps=0), kuhn)
    its = from_directory(trained / "checkpoints" / "step-000002" / "adapters" / "shared", kuhn.bank)
    assert torch.equal(weights(outcome), torch.cat([one.flatten() for one in its.parameters()]))
    moved, _ = await train(config_of(LUCK, start), kuhn)
    assert not torch.equal(weights(outcome), weights(moved))


def test_the_untrained_of_a_run_with_a_start_are_those_of_the_start(trained: Path, kuhn: BaseModel) -> None:
    config = config_of(f"train.start='{trained}@2'")
    its = from_directory(trained / "checkpoints" / "step-000002" / "adapters" / "shared", kuhn.bank)
    found = initial_adapters(resolve(config), kuhn)["shared"]
    assert all(torch.equal(a, b) for a, b in zip(found.parameters(), its.parameters(), strict=True))


def test_a_start_without_a_step_is_written_down_with_it_and_read_once(
    trained: Path, tmp_path: Path, base_for: Any
) -> None:
    base_for("two_player", SKILLED)
    first, run = tmp_path / "first", tmp_path / "run"
    shutil.copytree(trained, first)
    config = config_of(LUCK, f"train.start='{first}'", f"run_dir='{run}'", steps=1)
    scenario = build_scenario(config.scenario)
    train_in_directory(config, scenario, opponents=open_pool(config, scenario))
    assert load_run_config(run).train.start == f"{first}@4"
    (first / "checkpoints" / "step-000004").rename(first / "checkpoints" / "step-000006")
    longer = config.model_copy(update={"train": config.train.model_copy(update={"steps": 2})})
    outcome = train_in_directory(longer, scenario, opponents=open_pool(longer, scenario))
    assert (outcome.progress.step, load_run_config(run).train.start) == (2, f"{first}@4")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("algorithm.policy=per_role",), "no adapter 'player_0'"),
        (("model.lora.rank=2",), "rank 4 and alpha"),
        (("scenario.options.tries=2",), "was trained on"),
    ],
)
def test_a_start_that_does_not_fit_is_refused(
    trained: Path, base_for: Any, overrides: Sequence[str], message: str
) -> None:
    config = config_of(f"train.start='{trained}@2'", *overrides)
    with pytest.raises(ConfigError, match=message):
        trainer_of(config, base_for(config.scenario.model_dump(), config.model))


def test_the_learner_has_no_adapter_of_an_opponent(trained: Path, kuhn: BaseModel) -> None:
    learner = trainer_of(config_of(old(trained)), kuhn).trainable.learner
    assert set(learner.adapters) == set(learner.optimisers) == {"shared"}
