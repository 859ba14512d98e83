"""The command `mas eval`: a trained team on held-out tasks of its own or another scenario, beside what costs less."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mas.config.options import Config, ScenarioOptions
from mas.config.stored_run import load_run_config
from mas.core.concurrency import run_blocking
from mas.core.environment import random_script
from mas.core.errors import ConfigError, RunDirectoryError
from mas.core.printable import printable
from mas.core.scenario import Finite
from mas.observe.files import STANDARD_OUTPUT, check_json_file, write_json_file
from mas.observe.progress import counting
from mas.observe.trust_option import Trust
from mas.runs.hub_source import local_run
from mas.runs.overrides import (
    PLAYING,
    JsonFile,
    Overrides,
    PlayedRun,
    Quiet,
    Sampled,
    check_sampling,
    check_used,
    tell_loading,
    transferred,
)
from mas.runs.resolve import configured_scenario, resolve
from mas.scenarios import build_scenario
from mas.scenarios.world import expert_of
from mas.training.setup import Setup

if TYPE_CHECKING:
    from mas.training.evaluate import Evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRequest:
    """What is evaluated. `trained`: the run's own configuration; `setup`: what is played."""

    run_dir: Path
    trained: Config
    setup: Setup
    tasks: int
    is_sampled: bool
    pair: tuple[str, ...] = ()
    take: str = ""
    on: str = ""
    matched: Literal["calls", "tokens"] | None = None


def evaluate(
    run_dir: PlayedRun,
    overrides: Overrides = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="held-out tasks; default: train.eval_tasks")] = None,
    sampled: Sampled = False,
    swap: Annotated[str, typer.Option(help="two roles that exchange their adapters: planner,executor")] = "",
    take: Annotated[str, typer.Option(metavar="ROLE=RUN_DIR", help="a role's adapter from another run")] = "",
    on: Annotated[
        str, typer.Option(metavar="SCENARIO", help="transfer: play this one, with scenario.options.KEY=VALUE")
    ] = "",
    baselines: Annotated[
        bool, typer.Option("--baselines", help="also random, scripted, the leader alone, and best of N of it")
    ] = False,
    matched: Annotated[
        Literal["calls", "tokens"], typer.Option(help="what best of N spends no less of than the team")
    ] = "calls",
    quiet: Quiet = False,
    json: JsonFile = None,
    trust: Trust = False,
) -> None:
    """Evaluate a trained team on held-out tasks, next to the same team untrained."""
    check_json_file(json)
    asked = asked_of(local_run(run_dir), overrides or [], tasks, is_sampled=sampled, on=on)
    console = Console(quiet=quiet or json == STANDARD_OUTPUT)
    pair = tuple(swap.split(",")) if swap else ()
    asked = replace(asked, pair=pair, take=take, matched=matched if baselines else None)
    results = play(asked, console)
    if baselines:
        results |= _scripted(asked, console)
    if json is not None:
        write_json_file(json, _for_programs(results, asked))
    if json != STANDARD_OUTPUT:
        print_results(results, title_of(asked), Console())


def _for_programs(results: "Mapping[str, Evaluation]", asked: EvaluationRequest) -> dict[str, object]:
    """What the table shows, by team; `calls` and `tokens` are per task, `interval` is of `success`."""
    teams = {
        name: {
            "success": found.success,
            "interval": [found.interval.low, found.interval.high],
            "turns": found.turns,
            "failures": found.failures,
            "calls": found.calls / len(found.episodes),
            "tokens": found.tokens / len(found.episodes),
            "measures": dict(found.measures),
        }
        for name, found in results.items()
    }
    kind = "sampled" if asked.is_sampled else "greedy"
    return {
        "run_dir": str(asked.run_dir),
        "scenario": asked.setup.scenario.name,
        "tasks": asked.tasks,
        "kind": kind,
        "teams": teams,
    }


def asked_of(
    run_dir: Path, overrides: list[str], tasks: int | None, *, is_sampled: bool = False, on: str = ""
) -> EvaluationRequest:
    """Read the run's configuration and open the scenario. `tasks` None: `train.eval_tasks`.

    Raises:
        ConfigError: overrides without effect, no such scenario, a team that it has not, no or fewer tasks, or
            limits that the engine cannot sample with. Otherwise as `load_run_config`.
    """
    check_used("eval", overrides, (*PLAYING, "train.eval_tasks"))
    trained, config = transferred(run_dir, overrides, on)
    setup = resolve(config)
    count = config.train.eval_tasks if tasks is None else tasks
    _check_apart(run_dir, config.scenario, setup)
    if count < 1:
        raise ConfigError(f"{count} tasks: at least one is played")
    if isinstance(setup.scenario, Finite) and count > (size := setup.scenario.size("eval")):
        raise ConfigError(f"{count} tasks: scenario {setup.scenario.name!r} holds out {size}: --tasks {size} at most")
    if is_sampled:
        check_sampling(setup)
    return EvaluationRequest(run_dir=run_dir, trained=trained, setup=setup, tasks=count, is_sampled=is_sampled, on=on)


def _check_apart(run_dir: Path, played: ScenarioOptions, setup: Setup) -> None:
    """Refuse to count as held out what a run may have trained on with other options.

    Raises:
        ConfigError: its class and the one that is played say nothing of what their tasks are. Otherwise as
            `load_run_config`.
    """
    why_not_apart = getattr(setup.scenario, "why_not_apart", None)  # of a user's class
    if why_not_apart is None or load_run_config(run_dir, uses=()).scenario == played:
        return
    trained = load_run_config(run_dir, uses=("code", "file"))  # whose class is imported now
    if (why := why_not_apart(build_scenario(trained.scenario))) is not None:
        raise ConfigError(f"run {run_dir} was trained with {trained.scenario.name} {trained.scenario.options}: {why}")


def play(asked: EvaluationRequest, console: Console) -> "dict[str, Evaluation]":
    """Play the tasks and return the evaluations by name, as `mas.training.compare.compare` gives them. May be called
    where an event loop runs.

    Raises:
        As `compare`, `compare_taught` and `evaluate_served`.
    """
    what = f"evaluating {asked.run_dir} on {asked.tasks} held-out tasks of {asked.setup.scenario.name}"
    tell_loading(console, what, asked.setup)
    playing = _playing(asked, console)
    with counting(Console(stderr=True, quiet=console.quiet)) as counted:
        results: dict[str, Evaluation] = run_blocking(
            playing(tasks=asked.tasks, is_sampled=asked.is_sampled, counted=counted)
        )
    return results


def _playing(asked: EvaluationRequest, console: Console) -> Callable[..., Any]:
    """What plays the tasks, with all that it needs loaded."""
    from mas.runs.check_transfer import check_adapters
    from mas.training.base import open_base
    from mas.training.compare import compare_taught, evaluate_served
    from mas.training.saved import saved_experiences, saved_samplers

    setup = asked.setup
    is_served, has_text = setup.is_served_elsewhere, setup.algorithm.is_training_free
    if asked.matched is not None and (is_served or has_text):
        raise ConfigError("--baselines plays an adapter of this run alone, and it has none here")
    if has_text:
        if asked.pair or asked.take:
            raise ConfigError(
                "--swap exchanges adapters, --take brings one; this run has learned experiences and no adapter"
            )
        known = saved_experiences(asked.run_dir, setup.algorithm)
        check_adapters(setup, known)
        home = configured_scenario(asked.trained)
        bare = None if is_served else open_base(setup, partial(console.print, markup=False), home=home)
        return partial(compare_taught, setup, bare, known)
    if is_served:
        if asked.pair or asked.take:
            raise ConfigError(
                "--swap exchanges adapters of this run, --take replaces one; with "
                f"engine={setup.engine.name} the server's play"
            )
        return partial(evaluate_served, setup, saved_samplers(asked.run_dir, setup))
    return _with_adapters(asked, setup, console)


def _with_adapters(asked: EvaluationRequest, setup: Setup, console: Console) -> Callable[..., Any]:
    from mas.runs.check_transfer import check_prompts
    from mas.training.base import open_base
    from mas.training.baselines import why_no_leader
    from mas.training.compare import compare
    from mas.training.saved import saved_adapters

    setup, matched = _beginning(setup, console), asked.matched
    taken_role, taken_run = _checked_adapters(asked, setup)
    base = open_base(setup, partial(console.print, markup=False), home=configured_scenario(asked.trained))
    adapters = saved_adapters(asked.run_dir, base)
    if asked.on:
        check_prompts(setup, base)
    taken = {} if taken_run is None else {taken_role: saved_adapters(taken_run, base)}
    if matched is not None and (why := why_no_leader(setup)):
        console.print(Text(f"leader alone, best of N: not possible, {why}"), soft_wrap=True)
        matched = None
    return partial(compare, setup, base, adapters, swap=asked.pair, taken=taken, matched=matched)


def _checked_adapters(asked: EvaluationRequest, setup: Setup) -> tuple[str, Path | None]:
    """The role of `--take` and its run, None without it; what names no adapter is refused before the base is loaded."""
    from mas.runs.check_transfer import check_adapters
    from mas.training.compare import adapter_to_take, swapped
    from mas.training.saved import adapter_directories

    check_adapters(setup, (path.name for path in adapter_directories(asked.run_dir)))
    if asked.pair:
        swapped(setup.trained_adapters, asked.pair)  # only for its errors
    if not asked.take:
        return "", None
    role, _, other = asked.take.partition("=")
    if not other:
        raise ConfigError(f"--take {asked.take!r} names no run: write ROLE=RUN_DIR, such as --take planner=runs/owl")
    adapter_to_take(role, (path.name for path in adapter_directories(Path(other))), setup.trained_adapters)
    return role, Path(other)


def _beginning(setup: Setup, console: Console) -> Setup:
    """Without `train.start` where it is not here any more: the untrained team then has adapters that change nothing."""
    from mas.training.saved import start_directories

    start = setup.train.start
    if start is None:
        return setup
    try:
        start_directories(start)
    except RunDirectoryError as error:
        note = f"untrained: with adapters that change nothing, not those of train.start={start}: {error}"
        console.print(Text(printable(note)), soft_wrap=True)
        return setup.with_start(None)
    return setup


def _scripted(asked: EvaluationRequest, console: Console) -> "dict[str, Evaluation]":
    """Play at random and by the scenario's expert; which one there is not is told."""
    from mas.training.evaluate import scripted

    results = {}
    for name, policy, lacks in (
        ("random", random_script, "does not list its legal actions"),
        ("scripted", expert_of(asked.setup.scenario), "has no expert"),
    ):
        played = None if policy is None else scripted(asked.setup.scenario, policy, asked.tasks, asked.setup.train.seed)
        if played is None:
            console.print(Text(f"{name}: not possible, {asked.setup.scenario.name} {lacks}"), soft_wrap=True)
        else:
            results[name] = played
    return results


def title_of(asked: EvaluationRequest) -> str:
    """Of the table with the results."""
    kind = "sampled" if asked.is_sampled else "greedy"
    return f"{asked.setup.scenario.name}: {asked.tasks} held-out tasks, {kind}"


def print_results(results: "Mapping[str, Evaluation]", title: str, console: Console) -> None:
    """Print the table of evaluations, and below it what the environment measured and how loops went."""
    console.print(_table(results, title))
    _print_measures(results, console)


def _table(results: "Mapping[str, Evaluation]", title: str) -> Table:
    table = Table(title=Text(printable(title)))  # a text would be read as markup
    table.add_column("team")
    for column in ("success", "95 %", "turns", "failures", "calls per task", "tokens per task"):
        table.add_column(column, justify="right")
    for name, result in results.items():
        cost = (f"{spent / len(result.episodes):.1f}" for spent in (result.calls, result.tokens))
        interval = f"{result.interval.low:.2f}–{result.interval.high:.2f}"
        means = (f"{result.success:.3f}", interval, f"{result.turns:.1f}", f"{result.failures:.3f}")
        table.add_row(Text(name), *means, *cost)
    unplayed = {episode.cause for result in results.values() for episode in result.episodes if episode.cause}
    if unplayed:
        table.caption = Text(printable("not every task could be played: " + "; ".join(sorted(unplayed)[:3])))
    return table


def _print_measures(results: "Mapping[str, Evaluation]", console: Console) -> None:
    for name, result in results.items():
        if result.measures:
            told = ", ".join(f"{measure} {value:.3f}" for measure, value in result.measures.items())
            console.print(Text(f"{name}: {told}"), soft_wrap=True)
        for loop, gate in result.loops.items():
            console.print(Text(f"{name}: {gate.line(loop)}"), soft_wrap=True)
