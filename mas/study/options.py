"""What a study compares. Presets are the YAML files of `mas/conf/study`; `ablation` makes one of which roles of a team
have to be trained.

Sources of the ablation: MMOA-RAG, arXiv 2501.15228, and MATPO, arXiv 2510.04678, which freeze some agents of a
pipeline.
"""

from collections.abc import Sequence
from importlib import resources
from typing import Annotated, Literal, TypeVar

import yaml
from pydantic import Field, ValidationError

from mas.config.load import load_config, presets
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.options import Options, Positive
from mas.core.records import Prompts
from mas.graph.load import find_team
from mas.observe.report_records import SUCCESS
from mas.runs.resolve import configured_scenario

REFERENCE = "team_at_grpo"
"""The arm that presets train first; what it cost is every other arm's token budget."""
ARMS: dict[str, tuple[str, ...]] = {
    REFERENCE: ("algorithm=at_grpo",),
    "team_at_grpo_shared": ("algorithm=at_grpo", "algorithm.policy=shared"),
    "team_parallel_grpo": ("algorithm=parallel_grpo",),
    "team_parallel_grpo_shared": ("algorithm=parallel_grpo", "algorithm.policy=shared"),
    "single_agent_grpo": ("algorithm=single_grpo",),
    "one_policy_twice": ("algorithm=at_grpo", "algorithm.team=twice"),
    **{name: (f"algorithm={name}",) for name in presets("algorithm")},
}
"""Trained arms: what each overrides. `one_policy_twice` calls one policy twice without roles. Algorithms are arms."""
PLAYED = (
    *("random", "scripted", "untrained_team", "untrained_single"),
    *("leader_alone", "best_of_n_verified", "best_of_n_voted"),
)
"""Arms that are only played, at no training cost; the last three by what the reference learned."""
T = TypeVar("T", bound=Options)
ABLATION = "ablation"
ALL = "all"
EVAL_TASKS = 100
_OWN = ("scenario", "algorithm", "algorithm.roles")


class CaseOptions(Options):
    """One scenario with its arms.

    `overrides` are those of the command line, `arm_overrides` more of them for some arms (an arm that needs another
    batch size to do its best); `own_arms` are arms of this case alone, name -> overrides. The first arm is the
    reference: what it cost is every other arm's token budget. `swap`: two roles whose adapters are exchanged after it.
    `budget_prompts`: how the budget counts prompts, for all arms alike; see `train.budget_prompts`.
    `measure`: what is told in place of success, a name among the measures of an evaluation such as `nash_conv`; nobody
    is played at random for it. `matched`: what best of N spends no less of, for a task, than the reference's team does.
    """

    scenario: str
    overrides: tuple[str, ...] = ()
    arm_overrides: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    own_arms: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    arms: Annotated[tuple[str, ...], Field(min_length=1)] = (REFERENCE, "team_parallel_grpo", "single_agent_grpo")
    seeds: Positive = 3
    measure: str = SUCCESS
    swap: tuple[str, str] | None = None
    budget_prompts: Prompts = "per_call"
    matched: Literal["calls", "tokens"] = "calls"

    @property
    def reference(self) -> str:
        """The arm that is trained first."""
        return self.arms[0]

    def overrides_of(self, arm: str) -> tuple[str, ...]:
        """All that an arm overrides, after the scenario."""
        named = self.own_arms[arm] if arm in self.own_arms else ARMS[arm]
        return (*named, *self.overrides, *self.arm_overrides.get(arm, ()))


class StudyOptions(Options):
    """A study: cases by name. `eval_tasks` held-out tasks, each played greedily and sampled."""

    cases: dict[str, CaseOptions]
    eval_tasks: Annotated[int, Field(ge=1)] = 200


def read_preset(name: str, kind: type[T]) -> T:
    """A preset that is there, as its options.

    Raises:
        ConfigError: it does not fit.
    """
    try:
        return kind(**yaml.safe_load(resources.files("mas.conf").joinpath("study", f"{name}.yaml").read_text()))
    except ValidationError as error:
        raise ConfigError(f"study {name!r} does not fit: {error}") from error


def load_study(name: str) -> StudyOptions:
    """A preset by name.

    Raises:
        ConfigError: no such preset, or it does not fit.
    """
    if name not in presets("study"):
        raise ConfigError(f"no study {name!r}. {did_you_mean(name, presets('study'))}")
    study = read_preset(name, StudyOptions)
    for case, options in study.cases.items():
        for arm in (*options.arms, *options.arm_overrides):
            if arm not in ARMS and arm not in options.own_arms:
                known = [*ARMS, *options.own_arms]
                raise ConfigError(f"study {name!r}, case {case!r}: no arm {arm!r}. {did_you_mean(arm, known)}")
        if options.arms[:1] != (REFERENCE,):
            raise ConfigError(
                f"study {name!r}, case {case!r}: the first arm is {REFERENCE!r}, it sets the token budget"
            )
    return study


def subsets(roles: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Arm -> the roles that it trains: all, each alone, all but each. With two or three roles these are all subsets.

    The empty subset is the untrained team, which every study plays.
    """
    arms = {ALL: tuple(roles)} | {f"only_{role}": (role,) for role in roles}
    if len(roles) > 2:
        arms |= {f"without_{role}": tuple(other for other in roles if other != role) for role in roles}
    return arms


def ablation(overrides: Sequence[str], seeds: int) -> StudyOptions:
    """The study of the scenario and the algorithm that overrides name; further ones hold for every arm.

    Raises:
        ConfigError: no scenario is named, the team has one trainable role, or the algorithm says itself who is trained.
    """
    named = {key: value for key, _, value in (one.partition("=") for one in overrides)}
    if "scenario" not in named:
        raise ConfigError("mas study ablation needs a scenario: mas study ablation scenario=relay")
    for key in named:
        if key in ("run_dir", "train.seed"):
            raise ConfigError(f"a study has its own {key}: leave it out (--out, --seeds)")
    config = load_config(list(overrides))
    if config.algorithm.roles or config.algorithm.stages:
        raise ConfigError(
            f"algorithm={config.algorithm.name} says with algorithm.roles or .stages who is trained, and the ablation "
            "does: leave them out (algorithm.options.stages=[]), or choose another algorithm"
        )
    team = find_team(configured_scenario(config), config.algorithm.team)
    roles = [name for name, role in team.roles.items() if role.trainable]
    if len(roles) < 2:
        raise ConfigError(
            f"team {team.name!r} has the trainable roles {roles}: an ablation needs two at least; choose another "
            "scenario or algorithm.team"
        )
    algorithm = f"algorithm={named.get('algorithm', config.algorithm.name)}"
    arms = {
        arm: (algorithm, *([] if arm == ALL else [f"algorithm.roles=[{','.join(trained)}]"]))
        for arm, trained in subsets(roles).items()
    }
    rest = tuple(one for one in overrides if one.partition("=")[0] not in _OWN)
    case = CaseOptions(scenario=named["scenario"], overrides=rest, own_arms=arms, arms=tuple(arms), seeds=seeds)
    return StudyOptions(cases={case.scenario: case}, eval_tasks=EVAL_TASKS)
