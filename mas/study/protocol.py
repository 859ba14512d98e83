"""The protocol of a fair comparison: which runs it has, and what they will cost.

1. Sweep: every arm of every base is trained at every point of one grid, and measured on validation tasks.
2. Test: every arm is trained anew at its best point, with seeds that the sweep has not used, and measured on test
   tasks.

All runs end by one token budget, counted in the same column for all arms, and by nothing that is measured. Training,
validation and test tasks differ by content.
"""

from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Annotated, Literal, Self

import msgspec
import yaml
from pydantic import Field, model_validator

from mas.config.load import load_config
from mas.config.options import Config
from mas.core.errors import ConfigError
from mas.core.options import Options, Positive
from mas.core.records import Prompts
from mas.core.seeds import digest
from mas.graph.load import read_file
from mas.study.held_out import Part
from mas.study.options import read_preset

UNTRAINED = "no_rl"
"""The row of the base as it is, at no cost."""
CELLS: dict[tuple[str, str], str] = {
    (grouping, sampling): f"{grouping}_{sampling}"
    for grouping in ("agent_turn", "episode")
    for sampling in ("branching", "parallel")
}
"""Grouping and sampling -> arm: the four cells of the design."""
ARMS: dict[str, tuple[str, ...]] = {
    "agent_turn_branching": ("algorithm=at_grpo",),
    "agent_turn_parallel": ("algorithm=parallel_grpo", "algorithm.advantage.key=prompt"),
    "episode_branching": ("algorithm=at_grpo", "algorithm.advantage.key=episode"),
    "episode_parallel": ("algorithm=parallel_grpo",),
    "sft_only": ("algorithm=dpo", "algorithm.options.dpo=0", "algorithm.options.sft=1"),
}
"""`agent_turn`: candidates of one prompt are compared; `episode`: all of a role in one task. `branching`: candidates
at every decision, one of which goes on; `parallel`: whole episodes. `sft_only` imitates candidates above their mean."""
_STEPS = 100_000
"""More than any budget pays for."""

Stage = Literal["sweep", "test"]


class SweepGrid(Options):
    """All combinations are tried, for every arm."""

    lr: Annotated[tuple[float, ...], Field(min_length=1)] = (1e-3, 3e-3, 1e-2)
    minibatches: Annotated[tuple[Positive, ...], Field(min_length=1)] = (1, 4)
    tasks_per_step: Annotated[tuple[Positive, ...], Field(min_length=1)] = (8, 16)

    def points(self) -> list[tuple[str, ...]]:
        """Overrides of every point."""
        return [
            (f"learner.lr={lr:g}", f"learner.minibatches={parts}", f"train.tasks_per_step={tasks}")
            for lr, parts, tasks in product(self.lr, self.minibatches, self.tasks_per_step)
        ]


def _one_base() -> dict[str, tuple[str, ...]]:
    return {"base": ()}


class ProtocolCase(Options):
    """One scenario, `budget` tokens for each run. `bases`: name -> overrides that make a base. `run_s`: seconds of a
    run as measured when the case was written, for the plan. `test_seeds`, `grid`: of this case alone."""

    scenario: str
    budget: Positive
    overrides: tuple[str, ...] = ()
    bases: dict[str, tuple[str, ...]] = Field(default_factory=_one_base, min_length=1)
    grid: SweepGrid | None = None
    test_seeds: Positive | None = None
    run_s: Annotated[float, Field(gt=0)]


class ProtocolOptions(Options):
    """A protocol: cases by name, `arms` name -> overrides, of which every other one is compared with `reference`.

    `budget_prompts`: which tokens the budgets count, see `train.budget_prompts`. Test seeds are `first_test_seed` and
    those after it. `curve_tasks` test tasks are played every `eval_every` steps of a test run, for its curve alone.
    """

    cases: Annotated[dict[str, ProtocolCase], Field(min_length=1)]
    arms: dict[str, tuple[str, ...]] = ARMS
    reference: str = "agent_turn_branching"
    grid: SweepGrid = SweepGrid()
    budget_prompts: Prompts = "per_call"
    validation_tasks: Positive = 100
    test_tasks: Positive = 200
    curve_tasks: Positive = 50
    eval_every: Positive = 10
    sweep_seeds: Positive = 2
    test_seeds: Positive = 12
    first_test_seed: Positive = 1000

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.reference not in self.arms:
            raise ValueError(f"reference={self.reference!r} is none of the arms {list(self.arms)}")
        if UNTRAINED in self.arms:
            raise ValueError(f"{UNTRAINED!r} is the untrained base: give the arm another name")
        if self.first_test_seed < self.sweep_seeds:
            raise ValueError(
                f"first_test_seed={self.first_test_seed} is a seed of the sweep, which has 0 to "
                f"{self.sweep_seeds - 1}: make it {self.sweep_seeds} or more"
            )
        return self

    def places(self) -> Iterator[tuple[str, str]]:
        return ((case, base) for case, options in self.cases.items() for base in options.bases)

    def grid_of(self, case: str) -> SweepGrid:
        """The grid of a case, one for all its arms."""
        return self.cases[case].grid or self.grid

    def seeds_of(self, case: str) -> range:
        return range(self.first_test_seed, self.first_test_seed + (self.cases[case].test_seeds or self.test_seeds))


class StudyJob(msgspec.Struct, frozen=True, kw_only=True):
    """One run: an arm of a base at a point of the grid with a seed, measured on the tasks of its stage. Arm `no_rl` is
    not trained, and its `point` is empty."""

    stage: Stage
    case: str
    base: str
    arm: str
    point: tuple[str, ...]
    seed: int

    @property
    def part(self) -> Part:
        """The tasks that it is measured on."""
        return "validation" if self.stage == "sweep" else "test"

    def configure(self, options: ProtocolOptions) -> Config:
        case = options.cases[self.case]
        is_test = self.stage == "test"
        arm = options.arms[options.reference if self.arm == UNTRAINED else self.arm]
        limits = (
            f"train.seed={self.seed}",
            f"train.token_budget={case.budget}",
            f"train.budget_prompts={options.budget_prompts}",
            f"train.steps={_STEPS}",
            "train.target=null",
            f"train.eval_every={options.eval_every if is_test else 0}",
            f"train.eval_tasks={min(options.curve_tasks, options.test_tasks) if is_test else 1}",
        )
        words = [f"scenario={case.scenario}", *case.overrides, *case.bases[self.base], *arm, *self.point, *limits]
        try:
            return load_config(words)
        except ConfigError as error:
            raise ConfigError(f"case {self.case!r}, arm {self.arm!r}: {error}") from error

    def key(self, options: ProtocolOptions, config: Config, contents: str) -> str:
        """What its result depends on, for the file that keeps it. `config`: `configure(options)`; `contents`: see
        `contents_digest`."""
        tasks = options.test_tasks if self.stage == "test" else options.validation_tasks
        return digest(self.stage, self.arm, tasks, config.model_dump_json(), contents)


def sweep_jobs(options: ProtocolOptions) -> list[StudyJob]:
    """All runs of the sweep; each arm has the same points and seeds."""
    return [
        StudyJob(stage="sweep", case=case, base=base, arm=arm, point=point, seed=seed)
        for case, base in options.places()
        for arm in options.arms
        for point in options.grid_of(case).points()
        for seed in range(options.sweep_seeds)
    ]


def final_jobs(options: ProtocolOptions, best: Mapping[tuple[str, str, str], tuple[str, ...]]) -> list[StudyJob]:
    """All runs of the test, with the untrained base for each seed. `best`: (case, base, arm) -> its point."""
    return [
        StudyJob(stage="test", case=case, base=base, arm=arm, point=best.get((case, base, arm), ()), seed=seed)
        for case, base in options.places()
        for arm in (UNTRAINED, *options.arms)
        for seed in options.seeds_of(case)
    ]


def plan_text(options: ProtocolOptions, measured_s: Mapping[tuple[str, str], Sequence[float]], workers: int) -> str:
    """The plan as Markdown: runs, tokens and hours of every case and base.

    Args:
        measured_s: seconds of the runs that are done, by case and base; where there are none `run_s` counts.
        workers: runs at a time.
    """
    lines = [
        "| case | base | sweep: arms x points x seeds | test: arms x seeds | done | Mtokens | hours |",
        "|---|---|---|---|---|---|---|",
    ]
    hours_all = tokens_all = runs_all = 0.0
    for name, base in options.places():
        case, arms = options.cases[name], len(options.arms)
        points, seeds = len(options.grid_of(name).points()), len(options.seeds_of(name))
        runs = arms * (points * options.sweep_seeds + seeds)
        done = measured_s.get((name, base), ())
        run_s = sum(done) / len(done) if done else case.run_s
        hours, tokens = max(runs - len(done), 0) * run_s / workers / 3600, runs * case.budget / 1e6
        hours_all, tokens_all, runs_all = hours_all + hours, tokens_all + tokens, runs_all + runs
        lines.append(
            f"| `{name}` | `{base}` | {arms} x {points} x {options.sweep_seeds} | {arms} x {seeds} "
            f"| {len(done)} of {runs} | {tokens:.1f} | {hours:.1f} |"
        )
    counted = {"per_call": "the prompt of every call", "shared": "equal prompts of a step once", "none": "no prompts"}
    lines += [
        "",
        f"{runs_all:.0f} runs, {tokens_all:.1f} million tokens ({counted[options.budget_prompts]}), about "
        f"{hours_all:.1f} hours from now with {workers} runs at a time. Arms: {', '.join(options.arms)}; beside them "
        f"{UNTRAINED}, which costs no training.",
    ]
    return "\n".join(lines) + "\n"


def find_protocol(name: str) -> ProtocolOptions | None:
    """The protocol in a file, or a preset of `mas/conf/study` that is one: that says a budget of its own; None: none.

    Raises:
        MasError: the file cannot be read, or does not fit.
    """
    if name.endswith((".yaml", ".yml")):
        return read_file(ProtocolOptions, Path(name), "a study")
    file = resources.files("mas.conf").joinpath("study", f"{name}.yaml")
    if file.is_file() and "budget" in next(iter(yaml.safe_load(file.read_text())["cases"].values())):
        return read_preset(name, ProtocolOptions)
    return None
