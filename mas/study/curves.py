"""Learning curves of any runs, from their directories: a panel per scenario, a series per team, a line per seed.

Runs of one scenario with other options are another panel, and runs of one team with other settings another series: no
mean is over runs that were trained in different ways. Free of torch.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from mas.config.access import is_inside
from mas.config.checks import unused_reason
from mas.config.load import leaves
from mas.config.options import Config
from mas.config.plain_values import read_stored
from mas.config.stored_run import load_run_config
from mas.core.errors import ConfigError, RunDirectoryError
from mas.core.naming import did_you_mean
from mas.core.records import Cost
from mas.core.seeds import digest
from mas.observe.curves import curve
from mas.observe.metrics import read_metrics
from mas.observe.report_records import Chart, Series

SUCCESS = "eval/greedy/success"
X_LABELS = {
    "step": "training step",
    "tokens": "tokens, the prompt of every call",
    "completion_tokens": "tokens of completions",
    "calls": "calls",
    "optimiser_steps": "optimiser steps",
}

_OF_THE_RUN = (
    *("run_dir", "train.seed", "train.checkpoint_every", "train.keep_checkpoints", "train.sample_every"),
    *("train.record_every", "train.record_keep"),
)
_OF_THE_LOOK = ("train.eval_every", "trace.")
_TEAM = "algorithm.team"
_SHARE = (-0.02, 1.02)

Settings = Mapping[str, str]


class CurveRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run directory. `settings`: all that its training depends on but the seed, by dotted key, as text."""

    path: Path
    seed: int
    scenario: str
    options: Settings
    team: str
    settings: Settings
    lines: list[dict[str, Any]]
    is_over: bool


def read_run(path: Path) -> CurveRun:
    """What a run directory says.

    Raises:
        RunDirectoryError: it is none, it has no metrics yet, or its files are damaged.
    """
    config = load_run_config(path, uses=())
    lines = read_metrics(path / "metrics.jsonl")
    if not lines:
        raise RunDirectoryError(f"Run directory {path} holds no metrics yet. Train on: mas train run_dir={path}")
    settings = {
        key: str(value)
        for key, value in leaves(config.model_dump(mode="json"))
        if value != {} and not key.startswith((*_OF_THE_RUN, *_OF_THE_LOOK)) and unused_reason(key, config) is None
    }
    options = {key: settings.pop(key) for key in list(settings) if key.startswith("scenario.")}
    team = settings.pop(_TEAM, config.algorithm.team)
    if team.endswith((".yaml", ".yml")) and is_inside(team, path):  # another file is the user's, or anybody's
        settings["team"] = digest(Path(team).read_text(encoding="utf-8"))[:6]
        team = str(read_stored(Path(team)).get("name", team))
    return CurveRun(
        path=path,
        seed=config.train.seed,
        scenario=config.scenario.name,
        options=options,
        team=team,
        settings=settings,
        lines=lines,
        is_over=_is_over(config, lines),
    )


def learning_curves(runs: Sequence[CurveRun], *, metric: str = SUCCESS, x: str = "step") -> tuple[Chart, ...]:
    """A chart per scenario and its options, in the order of the runs; a series per team and its other settings.

    Args:
        metric: flat name, such as `roles/planner/reward`.
        x: a name of `X_LABELS`.

    Raises:
        ConfigError: another x, a series with the same seed twice, or a metric that a run does not have.
    """
    if x not in X_LABELS:
        raise ConfigError(f"no x axis {x!r}. {did_you_mean(x, X_LABELS)}")
    charts = []
    for title, own in _labelled(runs, lambda run: run.scenario, lambda run: run.options).items():
        teams = _labelled(own, lambda run: run.team, lambda run: run.settings)
        charts.append(
            Chart(
                title=title,
                x_label=X_LABELS[x],
                y_label="success, greedy" if metric == SUCCESS else metric,
                series=tuple(_series(name, title, seeds, metric, x) for name, seeds in teams.items()),
                y_range=_SHARE if metric.rpartition("/")[2] == "success" else None,
            )
        )
    return tuple(charts)


def _series(name: str, scenario: str, runs: Sequence[CurveRun], metric: str, x: str) -> Series:
    ordered = sorted(runs, key=lambda run: run.seed)
    for one, other in pairwise(ordered):
        if one.seed == other.seed:
            raise ConfigError(
                f"{one.path} and {other.path} are the same training of {scenario}, {name}, with the same seed "
                f"{one.seed}: leave one out"
            )
    for run in ordered:
        _check_metric(run, metric, x)
    over = [run.is_over for run in ordered]
    return curve(name, [run.lines for run in ordered], metric, ended=over, x=x)


def _check_metric(run: CurveRun, metric: str, x: str) -> None:
    """Raise the error that names the run."""
    try:
        curve("", [run.lines], metric, x=x)
    except ConfigError as error:
        raise ConfigError(f"{run.path}: {error}") from None


def _labelled(
    runs: Sequence[CurveRun], name_of: Callable[[CurveRun], str], settings_of: Callable[[CurveRun], Settings]
) -> dict[str, list[CurveRun]]:
    """The runs by name, and where settings differ under one name by these, too: `team, lie=0.0`."""
    named: dict[str, list[CurveRun]] = {}
    for run in runs:
        named.setdefault(name_of(run), []).append(run)
    groups: dict[str, list[CurveRun]] = {}
    for name, own in named.items():
        keys = _telling([settings_of(run) for run in own])
        for run in own:
            settings = settings_of(run)
            parts = [f"{_short(key, keys)}={settings[key]}" for key in keys if key in settings]
            groups.setdefault(", ".join([name, *parts]), []).append(run)
    return groups


def _telling(settings: Sequence[Settings]) -> list[str]:
    """Keys that tell these apart, few of them: one is taken where it parts what those before it left together."""
    chosen: list[str] = []
    for key in dict.fromkeys(key for one in settings for key in one):
        if _kinds(settings, [*chosen, key]) > _kinds(settings, chosen):
            chosen.append(key)
    return chosen


def _kinds(settings: Sequence[Settings], keys: Sequence[str]) -> int:
    kinds: set[Hashable] = {tuple(one.get(key) for key in keys) for one in settings}
    return len(kinds)


def _short(key: str, among: Sequence[str]) -> str:
    """The last part of a dotted key; all of it where another key ends so, too, or where it is but a name."""
    last = key.rpartition(".")[2]
    if last == "name":
        return key.rpartition(".")[0]
    return key if sum(other.rpartition(".")[2] == last for other in among) > 1 else last


def _is_over(config: Config, lines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the run ended as its configuration says: all steps, the token budget, or the target."""
    train, last = config.train, lines[-1]["step"]
    spent = max((_spent(line).tokens(train.budget_prompts) for line in lines), default=0)
    greedy = [found["success"] for line in lines if (found := line.get("eval", {}).get("greedy")) is not None]
    is_spent = train.token_budget is not None and spent >= train.token_budget
    is_reached = train.target is not None and bool(greedy) and greedy[-1] >= train.target
    return last >= train.steps or is_spent or is_reached


def _spent(line: Mapping[str, Any]) -> Cost:
    """Of the steps up to a line of metrics; nothing where it is one of an evaluation."""
    return Cost(**{name: line.get(name, 0) for name in Cost.__struct_fields__})
