"""Self-play: both seats of a game are played and trained by the same records and learner."""

import re
from ast import literal_eval
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import BaseFor
from mixed import mixed
from oracles import ORACLES, near
from parts import SKILLED, runtime_of, sample, turns_of

from mas.algorithms.parts.advantages.group import RunningBaseline
from mas.algorithms.parts.advantages.pipeline import turn_advantages
from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.config.load import load_config
from mas.config.options import Config, ScenarioOptions
from mas.core.environment import EnvironmentSpec, Observation, Step, Task
from mas.core.errors import ConfigError
from mas.core.records import Episode, Group, Turn
from mas.core.scenario import Scenario
from mas.runs.resolve import resolve, resolve_training
from mas.scenarios import build_scenario
from mas.serving.model import BaseModel
from mas.testing.scripted import ScriptedEngine
from mas.training.batch import train_rows
from mas.training.check_setup import check_trainable
from mas.training.evaluate import Evaluation
from mas.training.exploitability import exact_measures, shares, spelled_shares
from mas.training.session import open_team
from mas.training.trainer import Trainer, TrainingOutcome

pyspiel = pytest.importorskip("pyspiel")
policy = pytest.importorskip("open_spiel.python.policy")
exploitability = pytest.importorskip("open_spiel.python.algorithms.exploitability")
WHOLE = SamplerOptions(mode="parallel", candidates=4)
RAE = load_config(["algorithm=spiral"]).algorithm


def scenario_of(game: str = "kuhn_poker", **options: Any) -> Scenario:
    return build_scenario(ScenarioOptions(name="two_player", options={"game": game, **options}))


async def played(scenario: Scenario, answer: Any, options: SamplerOptions = WHOLE, tasks: int = 16) -> list[Episode]:
    async with runtime_of(scenario.teams["team"], ScriptedEngine(answer)) as runtime:
        return await sample(runtime, scenario, range(tasks), options)


def any_of(letters: str) -> Any:
    return lambda prompt, adapter, seed: letters[seed % len(letters)]


def by_seat(episode: Episode) -> dict[str, list[Turn]]:
    found: dict[str, list[Turn]] = defaultdict(list)
    for turn in episode.turns:
        found[turn.agent].append(turn)
    return dict(found)


async def test_both_seats_are_always_played_and_what_one_wins_the_other_loses() -> None:
    episodes = await played(scenario_of(), any_of("pb"))
    assert len(episodes) == 64
    for episode in episodes:
        seats = by_seat(episode)
        assert set(seats) == {"player_0", "player_1"}
        first, second = ({total_reward(turn.rewards, RAE.reward) for turn in turns} for turns in seats.values())
        (won,), (lost,) = first, second
        assert won == -lost != 0
        assert episode.rewards == {"player_0.payoff": won, "player_1.payoff": lost}
        assert episode.success == (won > 0)
        # Every seat's turns were paid, together, what its episode was: no reward is lost at another one's move.
        assert all(sum(turn.paid["team.payoff"] for turn in turns) in (won, lost) for turns in seats.values())


async def test_seats_that_move_at_once_hear_nothing_of_each_other() -> None:
    episodes = await played(scenario_of("rock_paper_scissors"), any_of("rps"))
    for episode in episodes:
        first, second = episode.turns
        assert (first.agent, second.agent, first.turn, second.turn) == ("player_0", "player_1", 0, 0)
        beats = {"r": "s", "p": "r", "s": "p"}
        wins = float(beats[first.text] == second.text) - float(beats[second.text] == first.text)
        assert (first.rewards["team.payoff"], second.rewards["team.payoff"]) == (wins, -wins)
    assert {line.prompt for episode in episodes for line in episode.lines} == {"A>", "B>"}


@pytest.mark.parametrize(("mode", "looks"), [("parallel", "turn"), ("tree", "episode")])
async def test_an_illegal_move_costs_its_seat_what_the_other_wins(mode: Any, looks: Any) -> None:
    """The second seat says what is no move at all; its output does not even parse."""
    options = SamplerOptions(mode=mode, candidates=2, lookahead=looks)
    episodes = await played(scenario_of(), lambda prompt, adapter, seed: "p" if prompt[0] == "A" else "x", options)
    rewards = RewardOptions(failure=0)
    for episode in episodes:
        paid = {turn.agent: total_reward({**turn.rewards, "own.failure": 0.0}, rewards) for turn in episode.turns}
        assert paid == {"player_0": 2, "player_1": -2}
        assert episode.measures == {"draw": 0, "forfeit": 1, "illegal": 0}


async def test_tree_sampling_pays_each_candidate_what_its_own_seat_gets() -> None:
    """Whoever sees a bet passes: betting wins 1 at once for the seat that does it."""
    options = SamplerOptions(mode="tree", candidates=6, lookahead="episode", commit_best=0.0)

    def answer(prompt: str, adapter: str | None, seed: int) -> str:
        return "p" if prompt.endswith("b>") else "pb"[seed % 2]

    turns = turns_of(await played(scenario_of(), answer, options))
    bets = [turn for turn in turns if turn.text == "b"]
    assert {turn.agent for turn in bets} == {"player_0", "player_1"}
    assert {turn.rewards["team.payoff"] for turn in bets} == {1.0}


class Marked:
    """A game of four moves in turn in which all that a seat sees has the marks of its task and of its seat."""

    def __init__(self) -> None:
        seats = ("player_0", "player_1")
        self.spec = EnvironmentSpec(name="marked", seats=seats, views=seats, max_turns=4, terms=("payoff",))
        self.mark, self.moves = 0, ()

    def reset(self, task: Task) -> None:
        self.mark, self.moves = task.seed, ()

    def to_move(self) -> tuple[str, ...]:
        return (self.spec.seats[len(self.moves) % 2],) if len(self.moves) < 4 else ()

    def observe(self, view: str) -> Observation:
        return Observation({"seat": "AB"[self.spec.seats.index(view)], "seen": f"<{self.mark}{view[-1]}>"})

    def legal(self, seat: str) -> tuple[str, ...]:
        return ("p", "b")

    def step(self, actions: Mapping[str, str]) -> Step:
        self.moves = (*self.moves, *actions.values())
        return Step(rewards={"player_0": {"payoff": 1.0}, "player_1": {"payoff": -1.0}})

    def success(self) -> bool:
        return True

    def clone(self) -> "Marked":
        twin = Marked()
        twin.mark, twin.moves = self.mark, self.moves
        return twin

    def snapshot(self) -> bytes:
        return repr((self.mark, self.moves)).encode()

    def restore(self, state: bytes) -> None:
        self.mark, self.moves = literal_eval(state.decode())

    def state_key(self) -> str:
        return self.snapshot().decode()

    def render(self) -> str:
        return self.state_key()


async def test_games_that_are_played_together_never_mix_and_no_seat_sees_the_others_view() -> None:
    scenario = scenario_of()

    class Vectorised:
        reward, teams, name = scenario.reward, scenario.teams, "marked"

        def environment(self) -> Marked:
            return Marked()

        def task(self, split: str, index: int) -> Task:
            return Task(id=f"game-{index}", seed=1000 + index)

    episodes = await played(Vectorised(), any_of("pb"), tasks=50)
    assert len(episodes) == 200
    for episode in episodes:
        number = 1000 + int(episode.task.removeprefix("game-"))
        for line in episode.lines:
            marks = re.findall(r"<(\d+)(\d)>", line.prompt)
            assert marks == [(str(number), line.agent[-1])]
        assert {turn.text for turn in episode.turns} <= {"p", "b"}


async def test_only_a_seats_own_words_are_trained_for_it() -> None:
    """With an adapter per seat the rows of one hold the completions of its own turns, and nothing of the other's."""
    episodes = await played(scenario_of(), any_of("pb"))
    turns = turns_of(episodes)
    rows = train_rows(turns, [1.0] * len(turns), {"player_0": "player_0"}, aggregation="token_mean", max_length=1)
    assert [row.turn for row in rows] == [turn for turn in turns if turn.agent == "player_0"]
    assert all(len(row.turn.completion_ids) == 1 == len(row.turn.logprobs) for row in rows)
    assert sum(row.weight for row in rows) == pytest.approx(1)


def turn_of(number: int, role: int, value: float, world: str) -> Turn:
    return Turn(
        id=f"{number}",
        episode=f"{number:03}",
        task="t",
        agent=f"player_{role}",
        role=f"player_{role}",
        turn=0,
        visit=0,
        candidate=0,
        parent=None,
        group=Group(kind="task", task=f"g{number:03}", agent=""),
        trajectory=f"{number:03}",
        prompt_ids=(1,),
        completion_ids=(2,),
        logprobs=(0.0,),
        temperature=1.0,
        adapter=None,
        seed=0,
        finish="stop",
        text="p",
        rewards={"team.payoff": value},
        chosen=True,
        world=world,
    )


def test_the_golden_numbers_of_role_conditioned_advantages_hold_in_each_of_two_games_at_once() -> None:
    golden = ORACLES["04_spiral_rae"]
    games = [
        turn_of(2 * number + place, role, value, world)
        for number, (value, role) in enumerate(zip(golden["returns"], golden["roles"], strict=True))
        for place, world in enumerate(("kuhn_poker", "tic_tac_toe"))
    ]
    running = RunningBaseline(RAE.advantage.decay)
    found = turn_advantages(games, RAE.reward, RAE.advantage, running=running)
    assert found[::2] == found[1::2] == near(golden["adv_read_then_update"])
    assert found[::2] != near(golden["adv_update_then_read"])
    assert running.state() == {
        f"{world}/player_{role}": near(mean)
        for world in ("kuhn_poker", "tic_tac_toe")
        for role, mean in golden["baseline_after"].items()
    }


class Steps:
    """A watcher that keeps everything."""

    def __init__(self) -> None:
        self.episodes: list[Sequence[Episode]] = []
        self.metrics: list[dict[str, Any]] = []
        self.evaluations: list[tuple[str, Evaluation]] = []

    def on_resume(self, step: int) -> None:
        """Nothing to keep."""

    def on_step(self, step: int, metrics: dict[str, Any], episodes: Sequence[Episode]) -> None:
        self.metrics.append(metrics)
        self.episodes.append(episodes)

    def on_note(self, step: int, note: Any) -> None:
        """Nothing to keep."""

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        self.evaluations.append((name, evaluation))


def config_of(*overrides: str, steps: int = 3) -> Config:
    usual = [f"train.steps={steps}", "train.tasks_per_step=4", "train.eval_tasks=2", "train.eval_every=0"]
    config = load_config(["scenario=two_player", "algorithm=spiral", "train.checkpoint_every=1", *usual, *overrides])
    return config.model_copy(update={"model": SKILLED})


async def train(config: Config, base: BaseModel, checkpoints: Path | None = None) -> tuple[TrainingOutcome, Steps]:
    steps = Steps()
    trainer = Trainer(resolve_training(config), base, checkpoints=checkpoints)
    trainer.resume()
    return await trainer.run(steps), steps


@pytest.fixture(scope="module")
def kuhn(base_for: BaseFor) -> BaseModel:
    return base_for("two_player", SKILLED)


async def test_the_baselines_of_a_run_are_those_of_its_own_returns_in_order(kuhn: BaseModel) -> None:
    """One shared adapter; b <- 0.95 b + 0.05 R over the episodes of three steps, computed here again by hand."""
    outcome, steps = await train(config_of(), kuhn)
    assert set(outcome.adapters) == {"shared"}
    means = {"kuhn_poker/player_0": 0.0, "kuhn_poker/player_1": 0.0}
    for episodes in steps.episodes:
        rows = {(turn.group, turn.trajectory): turn for one in episodes for turn in one.turns}
        for key in sorted(rows, key=lambda key: (str(key[0]), key[1])):
            turn = rows[key]
            name = f"kuhn_poker/{turn.role}"
            means[name] = 0.95 * means[name] + 0.05 * turn.rewards["team.payoff"]
    assert outcome.progress.update["running"] == {name: pytest.approx(mean) for name, mean in means.items()}
    assert means["kuhn_poker/player_0"] == pytest.approx(-means["kuhn_poker/player_1"])


@pytest.mark.nightly(of=16)
async def test_two_games_of_a_run_do_not_share_a_baseline(kuhn: BaseModel) -> None:
    """One adapter, one environment for both games, and yet a baseline for each game and role, by hand as above."""
    outcome, steps = await train(config_of("scenario.options.game=kuhn_poker+simple_negotiation"), kuhn)
    means: dict[str, float] = {}
    for episodes in steps.episodes:
        rows = {(turn.group, turn.trajectory): turn for one in episodes for turn in one.turns}
        for key in sorted(rows, key=lambda key: (str(key[0]), key[1])):
            turn = rows[key]
            name = f"{turn.world}/{turn.role}"
            means[name] = 0.95 * means.get(name, 0.0) + 0.05 * turn.rewards["team.payoff"]
    games = ("kuhn_poker", "simple_negotiation")
    assert set(means) == {f"{game}/{role}" for game in games for role in ("player_0", "player_1")}
    assert outcome.progress.update["running"] == {name: pytest.approx(mean) for name, mean in means.items()}
    assert means["kuhn_poker/player_0"] != means["simple_negotiation/player_0"]
    # All episodes of a task are of its own game, so no group compares two games.
    worlds = defaultdict(set)
    for episode in (one for episodes in steps.episodes for one in episodes):
        worlds[episode.task] |= {turn.world for turn in episode.turns}
    assert {len(found) for found in worlds.values()} == {1}


async def test_an_adapter_per_seat_trains_both_and_a_seat_can_be_held_still(kuhn: BaseModel) -> None:
    both, _ = await train(config_of("algorithm.policy=per_role", steps=1), kuhn)
    one, _ = await train(config_of("algorithm.policy=per_role", "algorithm.roles=[player_0]", steps=1), kuhn)
    moved = {
        name: [bool(adapter.parameters()[1].any()) for adapter in (both.adapters[name], one.adapters[name])]
        for name in ("player_0", "player_1")
    }
    assert moved == {"player_0": [True, True], "player_1": [True, False]}


def weights(outcome: TrainingOutcome) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in outcome.adapters["shared"].parameters()])


MAGNET = ("algorithm.loss.kl=0.5", "algorithm.loss.reference.ema=0.5")


async def test_a_run_with_baselines_and_a_moving_average_survives_a_kill(kuhn: BaseModel, tmp_path: Path) -> None:
    straight, _ = await train(config_of(*MAGNET), kuhn)
    await train(config_of(*MAGNET, steps=1), kuhn, tmp_path)
    resumed, _ = await train(config_of(*MAGNET), kuhn, tmp_path)
    assert torch.equal(weights(straight), weights(resumed))
    plain, _ = await train(config_of(), kuhn)
    to_base, _ = await train(config_of(MAGNET[0]), kuhn)
    assert not torch.equal(weights(straight), weights(plain))
    assert not torch.equal(weights(straight), weights(to_base))


class Known(ScriptedEngine):
    """Scores every legal move as its table of chances says; 1/4 of all is spent on what is not legal."""

    def __init__(self, bets: Mapping[str, float]) -> None:
        super().__init__(lambda prompt, adapter, seed: "p")
        self.bets = bets

    async def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None
    ) -> tuple[float, ...]:
        bet = self.bets[self.tokenizer.decode(prompt_ids)]
        chance = bet if self.tokenizer.decode(completion_ids) == "b" else 1 - bet
        return (float(torch.tensor(0.75 * chance + 1e-12).log()),)


# One of the equilibria of Kuhn (1950): the first seat never bluffs, the second with 1/3; queens call with 1/3.
UNBEATABLE = {
    "A0>": 0, "A1>": 0, "A2>": 0, "A0pb>": 0, "A1pb>": 1 / 3, "A2pb>": 1,
    "B0p>": 1 / 3, "B1p>": 0, "B2p>": 1, "B0b>": 0, "B1b>": 1 / 3, "B2b>": 1,
}  # fmt: skip


def solved(bets: Mapping[str, float]) -> float:
    """NashConv by OpenSpiel's solver, of the chances to bet by prompt."""
    game = pyspiel.load_game("kuhn_poker")
    table = policy.TabularPolicy(game)
    for prompt, bet in bets.items():
        table.policy_for_key(prompt[1:-1])[:] = [1 - bet, bet]
    return float(exploitability.nash_conv(game, table))


async def test_an_evaluation_tells_how_far_from_unbeatable_the_policy_is(kuhn: BaseModel) -> None:
    """Greedy and sampled, before and after a step: the policy is asked for again here, prompt by prompt."""
    config = config_of("learner.lr=0.1", steps=1)
    outcome, steps = await train(config, kuhn)
    scenario, wanted = build_scenario(config.scenario), list[tuple[str, float]]()
    async with open_team(resolve(config, scenario), kuhn, outcome.adapters) as crew:
        encode = crew.engine.tokenizer.encode
        for adapter in (None, "shared"):
            odds = {}
            for prompt in UNBEATABLE:
                scores = [await crew.engine.score(encode(prompt), encode(move), adapter) for move in "pb"]
                odds[prompt] = exp(sum(scores[1]) - sum(scores[0]))
            wanted.append(("greedy", solved({prompt: float(ratio > 1) for prompt, ratio in odds.items()})))
            wanted.append(("sampled", solved({prompt: ratio / (1 + ratio) for prompt, ratio in odds.items()})))
    found = [(name, evaluation.measures["nash_conv"]) for name, evaluation in steps.evaluations]
    assert found == [(name, pytest.approx(value, abs=1e-5)) for name, value in wanted]
    assert len({round(value, 4) for _, value in wanted}) > 2
    assert all(0 < evaluation.measures["legal"] <= 1 for _, evaluation in steps.evaluations)


@pytest.mark.parametrize(("bets", "gain"), [(dict.fromkeys(UNBEATABLE, 0.5), 11 / 12), (UNBEATABLE, 0.0)])
@pytest.mark.parametrize("team", ["team", "solo"])
async def test_nash_conv_is_that_of_the_scored_probabilities(bets: Mapping[str, float], gain: float, team: str) -> None:
    scenario = scenario_of()
    async with runtime_of(scenario.teams[team], Known(bets)) as runtime:
        found = await exact_measures(runtime, scenario)
    assert found == {"nash_conv": pytest.approx(gain, abs=1e-6), "legal": pytest.approx(0.75)}


async def test_a_policy_that_stands_in_a_longer_text_is_not_measured() -> None:
    scenario = scenario_of(style="words")
    async with runtime_of(scenario.teams["team"], Known({})) as runtime:
        assert await exact_measures(runtime, scenario) == {}


def test_of_texts_of_several_letters_the_temperature_is_of_every_letter() -> None:
    # First letters 0.6 and 0.4; after "a" two letters are even, after "b" one is sure.
    texts, logprobs = ["ax", "ay", "bz"], [log(0.3), log(0.3), log(0.4)]
    assert spelled_shares(texts, logprobs, 1) == pytest.approx([0.3, 0.3, 0.4])
    # Greedy play says "a", the likelier letter, though "bz" is the likeliest text.
    assert spelled_shares(texts, logprobs, 0) == [1, 0, 0]
    # At 1/2 probabilities of letters are squared: 0.36 to 0.16.
    assert spelled_shares(texts, logprobs, 0.5) == pytest.approx([0.36 / 0.52 / 2, 0.36 / 0.52 / 2, 0.16 / 0.52])
    assert spelled_shares(["a", "b"], [log(0.1), log(0.3)], 0.5) == pytest.approx(shares([log(0.1), log(0.3)], 0.5))


def test_probabilities_at_other_temperatures() -> None:
    # p = 1/4, 1/2: squared 1 : 4; at 0 the greatest alone.
    logprobs = [float(torch.tensor(value).log()) for value in (0.25, 0.5)]
    assert shares(logprobs, 1.0) == pytest.approx([1 / 3, 2 / 3])
    assert shares(logprobs, 0.5) == pytest.approx([0.2, 0.8])
    assert shares(logprobs, 0) == [0, 1]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["algorithm=at_grpo", "algorithm.sampler.mode=full_tree", "algorithm.sampler.candidates=2"],
            "full_tree grows the tree of one seat",
        ),
        (["algorithm=at2po"], "entropy_tree grows the tree of one seat"),
        (
            ["algorithm=at_grpo", "algorithm.sampler.lookahead=turn"],
            "sampler.lookahead=turn ends before the other seat has answered",
        ),
        (["algorithm=spa_rl"], "reward.model reads who won"),
        (["algorithm=arpo", "train.tasks.source=epochs", "train.tasks.count=8"], "sampler.replay reads who won"),
        (["algorithm=grpo_roc"], "sampler.resample reads who won"),
        (["algorithm=training_free"], "score=success reads who won"),
        (["algorithm=parallel_grpo", "algorithm.advantage.inherit=player_0"], "the advantage of another, which lost"),
        (["algorithm=spiral", "algorithm.team=solo"], "one role, 'solo', plays several seats"),
    ],
)
def test_what_reads_one_outcome_is_refused_where_seats_have_one_each(words: list[str], reason: str) -> None:
    config = load_config(mixed("scenario=two_player", *words))
    with pytest.raises(ConfigError, match=re.escape(reason)):
        check_trainable(resolve(config, scenario_of()))
