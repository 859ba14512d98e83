"""Search Self-Play: what proposer and solvers are paid and compared with, from the environment to the advantages."""

import re
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import msgspec
import pytest
from conftest import BaseFor
from mixed import mixed
from oracles import ORACLES, near
from parts import SKILLED, runtime_of, sample
from pydantic import ValidationError

from mas.algorithms.parts.advantages.pipeline import turn_advantages
from mas.algorithms.parts.rewards.interaction import ProposerOptions, paid_proposers
from mas.config.load import load_config
from mas.config.options import ScenarioOptions
from mas.core.errors import ConfigError, TrainingError
from mas.core.records import Episode, Turn
from mas.runs.resolve import resolve, resolve_training
from mas.scenarios import build_scenario
from mas.scenarios.propose import QUESTIONS, SOLVERS, ProposeEnvironment, answers, failed_gate, good_questions
from mas.testing.scripted import ScriptedEngine
from mas.training.check_setup import check_trainable
from mas.training.evaluate import Evaluation
from mas.training.trainer import Trainer

SSP = ORACLES["24_ssp"]
PRESET = load_config(["scenario=propose", "algorithm=search_self_play"]).algorithm
OUTCOMES = (1, 0, 0, 1, 0)
SCENARIO = build_scenario(ScenarioOptions(name="propose"))
OPPONENTS = "algorithm.opponents.players.chance=random"


def environment_of(task: str) -> ProposeEnvironment:
    environment = SCENARIO.environment()
    assert isinstance(environment, ProposeEnvironment)
    environment.reset(SCENARIO.task("train", int(task.rpartition("-")[2])))
    return environment


def prompts() -> dict[str, ProposeEnvironment]:
    """What the proposer sees in each of the first tasks."""
    found = [environment_of(f"train-{index}") for index in range(6)]
    return {f"{one.observe('proposer').fields['told']}>": one for one in found}


def script(outcomes: Sequence[int], propose: Callable[[ProposeEnvironment, int], str]) -> Any:
    """The proposer proposes; the solvers' answers to one question are right and wrong in turn, as `outcomes` says."""
    known, asked = prompts(), dict[str, int]()

    def answer(prompt: str, adapter: str | None, seed: int) -> str:
        if prompt in known:
            return propose(known[prompt], seed)
        row, question = prompt[1:-1].split(";")
        (right,) = answers(question, [thing + value for thing, value in zip("abcdefg", row, strict=True)])
        number = asked[prompt] = asked.get(prompt, -1) + 1
        return right if outcomes[number % len(outcomes)] else str((int(right) + 1) % 10)

    return answer


async def played(answer: Any, team: str = "team") -> list[Episode]:
    async with runtime_of(SCENARIO.teams[team], ScriptedEngine(answer)) as runtime:
        return await sample(runtime, SCENARIO, range(6), PRESET.sampler)


def good(environment: ProposeEnvironment, seed: int) -> str:
    return good_questions(environment.state.case)[0]


def advantages(episodes: Sequence[Episode], algorithm: Any = PRESET) -> dict[str, list[float]]:
    """Of every episode's proposer and solvers."""
    paid = paid_proposers(episodes, algorithm.reward.proposer)
    turns = [turn for episode in paid for turn in episode.turns]
    found: dict[str, list[float]] = {episode.id: [] for episode in episodes}
    for turn, advantage in zip(turns, turn_advantages(turns, algorithm.reward, algorithm.advantage), strict=True):
        found[turn.episode].append(advantage)
    return found


@pytest.mark.parametrize("team", ["team", "solo"])
async def test_the_golden_numbers_hold_through_environment_sampler_and_advantages(team: str) -> None:
    """Two proposals for each of six tasks, each attempted by five solvers of whom the first and the fourth are right.

    Both proposals of a task are the same question here; attempts are compared within one episode all the same.
    """
    episodes = await played(script(OUTCOMES, good), team)
    assert len(episodes) == 12
    for own in advantages(episodes).values():
        proposer, *solvers = own
        assert proposer == near(SSP["proposer_1_minus_acc"])
        assert sorted(solvers) == near(sorted(SSP["solver_adv"]))
    for episode in episodes:
        found = dict(zip([turn.agent for turn in episode.turns], advantages([episode])[episode.id], strict=True))
        rights = {turn.agent: turn.rewards["team.right"] for turn in episode.turns if turn.role == "solver"}
        assert set(rights) == set(SOLVERS)
        assert all((found[agent] > 0) == (right == 1) for agent, right in rights.items())


@pytest.mark.parametrize(
    ("outcomes", "number"),
    [(OUTCOMES, SSP["proposer_intermediate"]), ((1,), SSP["proposer_intermediate_at_1"]), ((0,), 0.0)],
)
async def test_the_intermediate_reward_is_best_where_half_of_the_attempts_succeed(
    outcomes: tuple[int, ...], number: float
) -> None:
    algorithm = load_config(
        ["scenario=propose", "algorithm=search_self_play", "algorithm.options.proposer.mode=intermediate"]
    ).algorithm
    for own in advantages(await played(script(outcomes, good)), algorithm).values():
        assert own[0] == near(number)


async def test_a_rejected_proposal_costs_no_solver_a_token_and_has_the_invalid_reward() -> None:
    """One proposal of each task is good, the other one asks after anything: a true answer, among others."""
    answer = script(OUTCOMES, lambda environment, seed: good(environment, seed) if seed % 2 else "*+0")
    episodes = await played(answer)
    rejected = [episode for episode in episodes if not episode.measures["valid"]]
    assert 0 < len(rejected) < len(episodes)
    for episode in rejected:
        (turn,) = episode.turns
        assert (turn.role, turn.text) == ("proposer", "*+0")
        assert [line.agent for line in episode.lines] == ["proposer"]
        assert episode.calls == 1
        assert episode.completion_tokens == len(turn.completion_ids)
        assert episode.prompt_tokens == len(turn.prompt_ids)
    algorithm = load_config(["scenario=propose", "algorithm=search_self_play", "algorithm.options.proposer.invalid=-1"])
    for options, invalid in ((PRESET, 0.0), (algorithm.algorithm, -1.0)):
        found = advantages(episodes, options)
        assert {tuple(found[episode.id]) for episode in rejected} == {(invalid,)}
        assert all(found[one.id][0] == near(0.6) for one in episodes if one not in rejected)


async def test_only_what_a_gate_let_through_is_ever_asked_of_a_solver() -> None:
    """Every form of question is proposed; the solvers' prompts hold nothing but accepted ones."""
    answer = script(OUTCOMES, lambda environment, seed: QUESTIONS[seed % len(QUESTIONS)])
    for episode in await played(answer):
        case = environment_of(episode.task).state.case
        asked = {line.prompt[:-1].split(";")[1] for line in episode.lines if line.agent != "proposer"}
        proposed = episode.lines[0].text
        assert asked == ({proposed} if failed_gate(case, proposed) is None else set())


async def test_what_is_paid_adds_up_to_what_is_rewarded() -> None:
    for episode in paid_proposers(await played(script(OUTCOMES, good)), ProposerOptions()):
        assert all(dict(turn.paid) == dict(turn.rewards) for turn in episode.turns)


async def test_an_attempt_that_is_paid_no_outcome_is_an_error_that_says_what_to_do() -> None:
    (first, *_) = await played(script(OUTCOMES, good))
    turns = tuple(replaced(turn, 2.5) if turn.role == "solver" else turn for turn in first.turns)
    with pytest.raises(TrainingError, match=r"outcome 2\.5 .* name a term that is 0 for a failure"):
        paid_proposers([with_turns(first, turns)], ProposerOptions())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"term": "accepted"}, "pays role 'proposer' by what others are paid as 'accepted' after it spoke"),
        ({"role": "solver"}, "pays role 'solver' by what others are paid as 'right' after it spoke"),
        ({"role": "solver", "term": "accepted"}, "pays role 'solver' by what others are paid as 'accepted' after it"),
    ],
)
async def test_a_role_or_a_term_that_would_pay_for_nothing_is_an_error(options: dict[str, str], reason: str) -> None:
    """Solvers are not paid `accepted`, the proposer not `right`, and what came before solvers spoke is no attempt."""
    (first, *_) = await played(script(OUTCOMES, good))
    assert {turn.role for turn in first.turns} == {"proposer", "solver"}
    with pytest.raises(TrainingError, match=reason):
        paid_proposers([first], ProposerOptions.model_validate(options))


async def test_where_others_spoke_without_an_attempt_the_proposal_is_not_taken_for_a_refused_one() -> None:
    (first, *_) = await played(script(OUTCOMES, good))
    unpaid = [msgspec.structs.replace(turn, rewards={}) if turn.role == "solver" else turn for turn in first.turns]
    with pytest.raises(TrainingError, match=r"\['solver'\] had turns without that"):
        paid_proposers([with_turns(first, tuple(unpaid))], ProposerOptions(invalid=-1))
    alone = with_turns(first, tuple(turn for turn in first.turns if turn.role == "proposer"))
    (paid,) = paid_proposers([alone], ProposerOptions(invalid=-1))
    assert [turn.rewards["own.proposal"] for turn in paid.turns] == [-1]


async def test_solvers_without_a_proposer_are_paid_nothing_for_it() -> None:
    (first, *_) = await played(script(OUTCOMES, good))
    solvers = with_turns(first, tuple(turn for turn in first.turns if turn.role == "solver"))
    assert paid_proposers([solvers], ProposerOptions()) == (solvers,)


def replaced(turn: Turn, right: float) -> Turn:
    return msgspec.structs.replace(turn, rewards={"team.right": right})


def with_turns(episode: Episode, turns: tuple[Turn, ...]) -> Episode:
    return msgspec.structs.replace(episode, turns=turns)


class Steps:
    """A watcher that keeps all episodes."""

    def __init__(self) -> None:
        self.episodes: list[Episode] = []
        self.metrics: list[dict[str, Any]] = []

    def on_resume(self, step: int) -> None:
        """Nothing to keep."""

    def on_step(self, step: int, metrics: dict[str, Any], episodes: Sequence[Episode]) -> None:
        self.episodes += episodes
        self.metrics.append(metrics)

    def on_note(self, step: int, note: Any) -> None:
        """Nothing to keep."""

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        """Nothing to keep."""


@pytest.mark.nightly(of=16)
async def test_a_run_pays_its_proposer_by_its_own_solvers(base_for: BaseFor) -> None:
    usual = ["train.steps=2", "train.tasks_per_step=8", "train.eval_tasks=2", "train.eval_every=0"]
    config = load_config(["scenario=propose", "algorithm=search_self_play", *usual])
    config = config.model_copy(update={"model": SKILLED})
    steps = Steps()
    await Trainer(resolve_training(config, SCENARIO), base_for("propose", SKILLED)).run(steps)
    assert {episode.measures["valid"] for episode in steps.episodes} == {0, 1}
    for episode in steps.episodes:
        proposer, *solvers = episode.turns
        p = episode.measures.get("solve_rate")
        assert len(solvers) == (0 if p is None else 5)
        assert proposer.rewards["own.proposal"] == pytest.approx(0 if p is None else 1 - p)
    earned = [metrics["roles"]["proposer"]["terms"]["own.proposal"] for metrics in steps.metrics]
    proposals = [episode.turns[0].rewards["own.proposal"] for episode in steps.episodes]
    assert earned == [pytest.approx(fmean(part)) for part in (proposals[:16], proposals[16:])]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["algorithm=at_grpo", "algorithm.reward.proposer.mode=failure"],
            "with sampler.mode=tree: that is of whole episodes",
        ),
        (
            ["algorithm=at_grpo", "algorithm.sampler.mode=full_tree", "algorithm.advantage.key=episode"],
            "with sampler.mode=full_tree: a turn is in many episodes",
        ),
        (["algorithm.options.proposer.left=1"], "mode=failure pays 1 - p"),
        (["algorithm.options.proposer.invalid=1"], "less than or equal to 0"),
        (["algorithm.options.proposer.invalid=-inf"], "finite number"),
        (["algorithm.options.proposer.mode=intermediate", "algorithm.options.proposer.left=inf"], "finite number"),
        (
            ["algorithm.options.proposer.mode=intermediate", "algorithm.options.proposer.left=-1"],
            "greater than or equal",
        ),
        (["algorithm.options.proposer.mode=intermediate", "algorithm.options.proposer.right=nan"], "finite number"),
        (
            ["algorithm.advantage.key=group", "algorithm.advantage.single=zero", OPPONENTS],
            "opponents does not go together with reward.proposer",
        ),
        (
            ["algorithm.reward.proposer=null", OPPONENTS],
            "opponents does not go together with advantage.key=episode",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused_with_the_reason(words: list[str], reason: str) -> None:
    with pytest.raises((ConfigError, ValidationError), match=re.escape(reason)):
        load_config(mixed("scenario=propose", "algorithm=search_self_play", *words))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["scenario=relay", "algorithm=parallel_grpo", "algorithm.reward.proposer.mode=failure"],
            "'proposer', and team 'relay' has no such role",
        ),
        (["scenario=propose", "algorithm.options.proposer.role=asker"], "'asker', and team 'propose' has no such role"),
        (
            ["scenario=propose", "algorithm.options.proposer.term=won"],
            "'won', and scenario 'propose' pays no such term",
        ),
    ],
)
def test_what_a_scenario_does_not_have_is_refused_by_name(words: list[str], reason: str) -> None:
    config = load_config(mixed("algorithm=search_self_play", *words))
    with pytest.raises(ConfigError, match=re.escape(reason)):
        check_trainable(resolve(config))


def test_a_team_without_another_role_than_the_one_that_is_paid_is_refused() -> None:
    words = ["algorithm=parallel_grpo", "algorithm.team=solo", "algorithm.reward.proposer.mode=failure"]
    config = load_config(mixed("scenario=relay", *words, "algorithm.reward.proposer.role=solo"))
    with pytest.raises(ConfigError, match="'relay_solo' has no other role, whose attempts could be read"):
        check_trainable(resolve(config))


def test_agents_of_one_role_are_not_compared_where_each_role_has_one() -> None:
    config = load_config(["scenario=relay", "algorithm=parallel_grpo", "algorithm.advantage.key=episode"])
    with pytest.raises(ConfigError, match="has one of each"):
        check_trainable(resolve(config))
