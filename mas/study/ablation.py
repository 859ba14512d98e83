"""The freeze ablation: one study of which roles of a team have to be trained.

Sources: MMOA-RAG, arXiv 2501.15228, and MATPO, arXiv 2510.04678, which freeze some agents of a pipeline.
"""

from collections.abc import Sequence

from mas.config.load import load_config
from mas.core.errors import ConfigError
from mas.graph.find import find_team
from mas.runs.resolve import configured_scenario
from mas.study.options import CaseOptions, StudyOptions

ABLATION = "ablation"
ALL = "all"
EVAL_TASKS = 100
_OWN = ("scenario", "algorithm", "algorithm.roles")


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
