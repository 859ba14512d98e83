"""One seed of one case: every arm in turn, the reference first, the others with the tokens that it took."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from mas.config.load import load_config
from mas.config.options import Config
from mas.core.concurrency import run_blocking
from mas.core.environment import random_script
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.records import NO_COST, Cost
from mas.core.scenario import Scenario
from mas.observe.report_records import SUCCESS
from mas.runs.resolve import configured_scenario, resolve, resolve_training
from mas.scenarios.attempts import SOLO
from mas.scenarios.world import expert_of
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel
from mas.study.options import CaseOptions
from mas.training.base import open_base
from mas.training.baselines import BEST, attempts_for, led, why_no_single
from mas.training.compare import swapped
from mas.training.evaluate import Evaluation, evaluate, scripted
from mas.training.saved import initial_adapters
from mas.training.session import open_team
from mas.training.setup import Setup
from mas.training.trainer import Trainer, TrainingOutcome
from mas.training.watch import Point, Silent

_MANY_STEPS = 100_000
"""For arms that end by their token budget."""


Note = Callable[[str], None]
Curve = tuple[Point, ...]
Train = Callable[[Config, Scenario], tuple[TrainingOutcome, Curve]]


class ArmRun(msgspec.Struct, frozen=True, kw_only=True):
    """One seed of one arm. `greedy`, `sampled`: success, or what the case measures. `cost`, `optimiser_steps`, `steps`,
    `seconds`: of training. `curve`: greedy success while it trained, of another measure the sampled value; `calls`,
    `test_tokens`: what a task costs when it is played, sampled; `attempts`: N of best of N.
    """

    case: str
    arm: str
    seed: int
    greedy: float
    sampled: float
    cost: Cost = NO_COST
    optimiser_steps: int = 0
    steps: int = 0
    seconds: float = 0.0
    curve: tuple[Point, ...] = ()
    measure: str = SUCCESS
    calls: float = 0.0
    test_tokens: float = 0.0
    attempts: int = 1


class StudyChain(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What one process works through."""

    case: str
    options: CaseOptions
    seed: int
    eval_tasks: int

    def configure(self, arm: str, budget: int | None = None) -> Config:
        """The configuration of one arm; with a budget it trains until that is spent."""
        limits: tuple[str, ...] = ()
        if budget is not None:
            limits = (
                f"train.token_budget={budget}",
                f"train.budget_prompts={self.options.budget_prompts}",
                f"train.steps={_MANY_STEPS}",
                "train.target=null",
            )
        chosen = (f"scenario={self.options.scenario}", *self.options.overrides_of(arm), f"train.seed={self.seed}")
        config = load_config([*chosen, *limits])
        if config.algorithm.is_training_free:
            raise ConfigError(f"arm {arm!r}: a study compares adapters, and algorithm.update=training_free trains none")
        return config

    @property
    def measure(self) -> str:
        return self.options.measure

    @property
    def watched(self) -> str:
        """Which evaluations the learning curve is of."""
        return "greedy" if self.measure == SUCCESS else "sampled"

    def value(self, evaluation: Evaluation) -> float:
        """What the case tells of an evaluation.

        Raises:
            ConfigError: it does not measure that.
        """
        told = {**evaluation.measures, SUCCESS: evaluation.success}
        if self.measure not in told:
            raise ConfigError(f"case {self.case!r}: no measure {self.measure!r}. {did_you_mean(self.measure, told)}")
        return told[self.measure]

    def watcher(self) -> Silent:
        """Remembers the learning curve of what the case tells."""
        return Silent(self.watched, self.value)


def run_chain(chain: StudyChain, note: Note | None = None, train_reference: Train | None = None) -> list[ArmRun]:
    """All arms of one seed.

    Args:
        note: told of every finished arm.
        train_reference: trains the reference arm some other way, such as in a run directory with its progress shown;
            returns its learning curve, too.
    """
    play = _ChainPlay(chain, note or (lambda text: None))
    play.untrained()
    budget: int | None = None
    for arm in chain.options.arms:
        began = time.perf_counter()
        config = chain.configure(arm, budget)
        is_reference = arm == chain.options.reference
        if is_reference and train_reference is not None:
            outcome, curve = train_reference(config, play.scenario)
        else:
            watcher = chain.watcher()
            outcome = run_blocking(Trainer(resolve_training(config, play.scenario), play.base).run(watcher))
            curve = tuple(watcher.curve)
        play.trained(arm, config, outcome, curve, time.perf_counter() - began)
        budget = outcome.progress.cost.tokens(chain.options.budget_prompts) if is_reference else budget
    return play.runs


class _ChainPlay:
    """The scenario and the base of a chain, and what was found so far."""

    def __init__(self, chain: StudyChain, note: Note) -> None:
        self.chain, self.note = chain, note
        self.config = chain.configure(chain.options.reference)
        self.scenario = configured_scenario(self.config)
        self.setup = resolve(self.config, self.scenario)
        self.base: BaseModel = open_base(self.setup, lambda text: None)
        self.runs: list[ArmRun] = []

    def untrained(self) -> None:
        """The arms that cost no training."""
        if self.chain.measure == SUCCESS:
            for arm, policy in (("random", random_script), ("scripted", expert_of(self.scenario))):
                found = policy and scripted(self.scenario, policy, self.chain.eval_tasks, self.chain.seed)
                if found is not None:
                    self._add(arm, found, found)
        played = {"untrained_team": self.chain.options.reference}
        if not self.chain.options.own_arms and self.config.algorithm.team != SOLO:
            played["untrained_single"] = "single_agent_grpo"
        for arm, team in played.items():
            config = self.chain.configure(team)
            self._evaluated(arm, setup := resolve(config, self.scenario), initial_adapters(setup, self.base))

    def trained(self, arm: str, config: Config, outcome: TrainingOutcome, curve: Curve, seconds: float) -> None:
        """One trained arm, and the reference with two roles' adapters exchanged."""
        spent = outcome.progress
        cost: dict[str, Any] = {
            "cost": spent.cost,
            "optimiser_steps": spent.optimiser_steps,
            "steps": spent.step,
            "seconds": seconds,
            "curve": curve,
        }
        setup = resolve(config, self.scenario)
        found = self._evaluated(arm, setup, outcome.adapters, cost=cost)
        if arm == self.chain.options.reference and self.has_leader:
            self._beside(setup, outcome.adapters, found)
        if arm == self.chain.options.reference and self.chain.options.swap is not None:
            exchanged = swapped(setup.trained_adapters, self.chain.options.swap)
            name = f"{arm}, {' and '.join(self.chain.options.swap)} swapped"
            self._evaluated(name, setup, outcome.adapters, exchanged, cost={"cost": cost["cost"]})

    @property
    def has_leader(self) -> bool:
        """Whether a single agent can play beside the reference's team."""
        return self.chain.measure == SUCCESS and why_no_single(self.setup) is None

    def _beside(self, setup: Setup, adapters: Mapping[str, AdapterWeights], team: Evaluation) -> None:
        """The reference's leader alone, and best of N of it, N from what the team spends when it is sampled."""
        try:
            adapter_of = led(setup)
        except ConfigError as error:
            self.note(f"{self.chain.case}: leader_alone, best_of_n: not measured, {error}")
            return
        single, tasks = setup.with_team(SOLO), self.chain.eval_tasks
        alone = self._evaluated("leader_alone", single, adapters, adapter_of)
        count = attempts_for(team, alone, self.chain.options.matched)

        async def play() -> dict[str, Evaluation]:
            async with open_team(single, self.base, adapters, adapter_of) as session:
                return {
                    kind: await best(session.runtime, self.scenario, tasks, count, seed=self.chain.seed)
                    for kind, best in BEST.items()
                }

        for kind, found in run_blocking(play()).items():
            self._add(f"best_of_n_{kind}", found, found, attempts=count)

    def _evaluated(
        self,
        arm: str,
        setup: Setup,
        adapters: Mapping[str, AdapterWeights],
        adapter_of: Mapping[str, str] | None = None,
        cost: Mapping[str, Any] | None = None,
    ) -> Evaluation:
        """Play an arm greedily and sampled, and return the second."""
        tasks, seed = self.chain.eval_tasks, self.chain.seed
        greedy, sampled = run_blocking(evaluate_both(setup, self.base, tasks, seed, adapters, adapter_of))
        self._add(arm, greedy, sampled, **(cost or {}))
        return sampled

    def _add(self, arm: str, greedy: Evaluation, sampled: Evaluation, **cost: Any) -> None:
        tasks = len(sampled.episodes)
        run = ArmRun(
            case=self.chain.case,
            arm=arm,
            seed=self.chain.seed,
            greedy=self.chain.value(greedy),
            sampled=self.chain.value(sampled),
            measure=self.chain.measure,
            calls=sampled.calls / tasks,
            test_tokens=sampled.tokens / tasks,
            **cost,
        )
        self.runs.append(run)
        self.note(describe(run))


async def evaluate_both(
    setup: Setup,
    base: BaseModel,
    tasks: int,
    seed: int,
    adapters: Mapping[str, AdapterWeights],
    adapter_of: Mapping[str, str] | None = None,
) -> tuple[Evaluation, Evaluation]:
    """Play held-out tasks greedily and sampled."""
    async with open_team(setup, base, adapters, adapter_of) as session:
        greedy = await evaluate(session.runtime, setup.scenario, tasks, temperature=0.0, seed=seed)
        return greedy, await evaluate(session.runtime, setup.scenario, tasks, temperature=None, seed=seed)


def describe(run: ArmRun) -> str:
    """One line for the terminal."""
    cost = f", {run.cost.tokens() / 1e3:.0f}k tokens" if run.cost.calls else ""
    return f"{run.case} seed {run.seed}: {run.arm}: greedy {run.greedy:.2f}, sampled {run.sampled:.2f}{cost}"
