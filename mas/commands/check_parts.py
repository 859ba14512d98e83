"""What `mas check` asks of each kind of part."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis.configuration import set_hypothesis_home_dir

from mas.algorithms.registry import find_algorithm
from mas.commands.find_parts import CheckedProperty, Part, Status
from mas.config.load import load_config
from mas.config.options import TinyOptions
from mas.config.plain_values import literal
from mas.core.concurrency import run_blocking
from mas.core.errors import ConfigError, MasError
from mas.core.role import Role, RoleSpec, parse_template
from mas.core.scenario import Scenario
from mas.core.team import TeamSpec
from mas.graph import compile_team, load_team
from mas.graph.load import find_team
from mas.roles import build_roles
from mas.roles.base import PromptedRole
from mas.roles.build import build_role
from mas.runs.resolve import resolve_training
from mas.scenarios import build_scenario
from mas.scenarios.team_lookup import trusted_team
from mas.testing.role import RoleContract
from mas.testing.scenario import ScenarioContract, is_played_by_models, play_scripted
from mas.testing.suite import PropertyFinding, held, properties

if TYPE_CHECKING:
    from mas.training.setup import TrainSetup

_MAY_LACK = ("tasks differ", "somebody idle fails")
"""What holds for most scenarios, and not where all tasks begin alike or waiting may win."""
_SMALL = TinyOptions(hidden=32, intermediate=64, layers=1, heads=2, kv_heads=1, steps=60, habit_steps=5, batch=16)
"""A tiny base that is made in a second."""
_TASKS = 8


def checked(part: Part, overrides: Sequence[str]) -> Iterator[CheckedProperty]:
    """Every property of a part, as it is found.

    Args:
        overrides: `scenario=NAME`, in which a team or an algorithm is tried, and `scenario.options.KEY=VALUE`.

    Raises:
        ConfigError: other overrides, or a scenario that cannot be built.
    """
    if wrong := [word for word in overrides if not word.startswith(("scenario=", "scenario.options."))]:
        raise ConfigError(f"{wrong[0]!r} has no effect on `mas check`, which depends on: scenario, scenario.options")
    suites = {"scenario": _of_scenario, "role": _of_role, "algorithm": _of_algorithm, "team": _of_team}
    for finding in suites[part.kind](part.name, overrides):
        may_lack = part.kind == "scenario" and finding.name in _MAY_LACK
        status: Status = "ok" if finding.why is None else "note" if may_lack else "failed"
        yield CheckedProperty(part=part.name, kind=part.kind, name=finding.name, status=status, why=finding.why or "")


def _scenario_of(overrides: Sequence[str]) -> Scenario:
    return build_scenario(load_config(overrides).scenario)


def _of_scenario(name: str, overrides: Sequence[str]) -> Iterator[PropertyFinding]:
    words = [f"scenario={literal(name)}", *(word for word in overrides if not word.startswith("scenario="))]
    made = held("it can be made with these options", lambda: _scenario_of(words))
    yield made
    if made.why is not None:
        return
    options = load_config(words).scenario  # once: the contract makes hundreds of scenarios

    class CheckedScenario(ScenarioContract):
        def make_scenario(self) -> Scenario:
            return build_scenario(options)

    yield from properties(CheckedScenario())


def _of_role(name: str, overrides: Sequence[str]) -> Iterator[PropertyFinding]:
    yield from _role_findings("role", RoleSpec(type=name))


def _role_findings(name: str, spec: RoleSpec) -> Iterator[PropertyFinding]:
    class CheckedRole(RoleContract):
        def make_role(self) -> Role:
            return build_role(name, spec)

        def fields(self) -> dict[str, str]:
            return super().fields() | dict.fromkeys(_fields_of(spec), "1")

        def legal(self) -> Iterable[str]:
            role = self.make_role()
            return role.choices if isinstance(role, PromptedRole) else ()

    made = held("it can be made", lambda: build_role(name, spec))
    yield made
    if made.why is None:
        with tempfile.TemporaryDirectory() as home:
            set_hypothesis_home_dir(home)  # so that nothing is written here
            yield from properties(CheckedRole())


def _fields_of(spec: RoleSpec) -> set[str]:
    """Fields of an observation that the role's texts name."""
    texts = [text for text in (spec.template, spec.ask, spec.prefill) if text is not None]
    names = {name for text in texts for name in parse_template(text).names}
    return {name for name in names if not name.startswith("from.") and name not in ("self", "experiences")}


def _of_team(name: str, overrides: Sequence[str]) -> Iterator[PropertyFinding]:
    def compiled() -> object:
        team = trusted_team(Path(name))
        return compile_team(team, build_roles(team))

    made = held("its file is a team, and its graph is well formed", compiled)
    yield made
    if made.why is not None:
        return
    for role, spec in load_team(name).roles.items():
        if spec.voice != "tools":
            yield held(f"role {role} keeps the contract of roles", partial(_keeps, role, spec))
    if any(word.startswith("scenario=") for word in overrides):
        yield from _played(name, _scenario_of(overrides))


def _keeps(name: str, spec: RoleSpec) -> None:
    for finding in _role_findings(name, spec):
        assert finding.why is None, f"{finding.name}: {finding.why}"


def _played(name: str, scenario: Scenario) -> Iterator[PropertyFinding]:
    fits = held(f"it fits the views and seats of {scenario.name}", lambda: find_team(scenario, name))
    yield fits
    if fits.why is None and is_played_by_models(team := find_team(scenario, name)):
        yield held(f"it plays {scenario.name} to the end with scripted answers", lambda: _play(scenario, team))


def _play(scenario: Scenario, team: TeamSpec) -> None:
    for index in range(3):
        run_blocking(play_scripted(scenario, team, "train", index))


def _of_algorithm(name: str, overrides: Sequence[str]) -> Iterator[PropertyFinding]:
    recipe = find_algorithm(name).recipe
    chosen = (
        [] if any(word.startswith("scenario=") for word in overrides) else [f"scenario={recipe.scenario or 'relay'}"]
    )
    tiny = [f"model.tiny.{key}={value}" for key, value in _SMALL.model_dump(exclude_defaults=True).items()]
    steps = ["train.steps=1", f"train.tasks_per_step={_TASKS}", "train.eval_first=false", "train.eval_tasks=1"]
    words = [*chosen, *overrides, f"algorithm={literal(name)}", *recipe.beside.split(), *tiny, *steps]
    if any(word.startswith("model=") for word in words):
        words = [word for word in words if word not in tiny]

    def setup_of(*more: str) -> "TrainSetup":
        return resolve_training(load_config([*words, *more]))

    fits = held("its parts are options that there are, and fit together", setup_of)
    yield fits
    if fits.why is not None:
        return
    setup = setup_of()
    adapters = set(setup.trained_adapters.values())
    if setup.model.path != "tiny" or not adapters:
        return
    yield held(
        f"an update in {setup.scenario.name} changes every adapter: {', '.join(sorted(adapters))}",
        lambda: _check_changed(setup, adapters),
    )
    role, adapter = next(iter(setup.trained_adapters.items()))
    try:
        alone = setup_of(f"algorithm.roles=[{role}]") if len(adapters) > 1 else None
    except MasError:  # it trains its roles together
        return
    if alone is not None:
        yield held(
            f"an update with algorithm.roles=[{role}] changes the adapter {adapter} and no other",
            lambda: _check_changed(alone, {adapter}),
        )


def _check_changed(setup: "TrainSetup", expected: set[str]) -> None:
    """One step of training in memory, and which adapters are not as they were."""
    from mas.training.base import open_base  # loads torch
    from mas.training.saved import initial_adapters
    from mas.training.trainer import Trainer
    from mas.training.watch import Silent

    base = open_base(setup, lambda text: None, is_trained=True)
    before, trainer = initial_adapters(setup, base), Trainer(setup, base)
    after = run_blocking(trainer.run(Silent())).adapters
    changed = {
        name
        for name, weights in after.items()
        if any(not new.equal(old) for new, old in zip(weights.parameters(), before[name].parameters(), strict=True))
    }
    assert changed == expected, f"changed: {_listed(changed)}; to be changed: {_listed(expected)}"


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
