"""The commands `mas bench ...`. Heavy modules are imported inside them."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

_WIDTH = 160
"""Columns of the tables where they are not on a terminal."""
bench = typer.Typer(
    name="bench",
    help="Measure mas against others, interleaved on this machine; exit code 1 where a target is not met.",
    no_args_is_help=True,
)

JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="write machine, rows and targets there")]
Repeats = Annotated[int, typer.Option(min=1, help="measured rounds, after one to warm up")]
Threads = Annotated[int, typer.Option(min=1, help="torch threads of every competitor")]
Seed = Annotated[int, typer.Option(help="of weights, prompts and draws")]


@bench.command()
def serving(
    json: JsonFile = None,
    size: Annotated[list[str] | None, typer.Option(help="of the model: 1M, 10M, smollm2; may be repeated")] = None,
    repeats: Repeats = 5,
    requests: Annotated[int, typer.Option(min=4, help="completions of one round; smollm2 has its own")] = 64,
    seed: Seed = 0,
    without: Annotated[list[str] | None, typer.Option(metavar="NAME", help="leave out: generate, peft, vllm")] = None,
    threads: Threads = 2,
) -> None:
    """Tokens per second of the engines, with and without adapters, against transformers, PEFT and vLLM."""
    from benchmarks.result import check_writable, write_result
    from benchmarks.serving.options import PRETRAINED, REFERENCE, SIZES, ServingBench
    from benchmarks.table import print_result

    options = ServingBench(
        sizes=tuple(size or (*SIZES, *PRETRAINED)),
        repeats=repeats,
        requests=requests,
        seed=seed,
        without=frozenset(without or ()),
        threads=threads,
    )
    if json is not None:
        check_writable(json)
    from benchmarks.serving.run import bench_serving

    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    result = asyncio.run(bench_serving(options, lambda text: console.print(text, style="dim", highlight=False)))
    print_result(console, result, reference=REFERENCE)
    if json is not None:
        write_result(json, result)
    raise typer.Exit(result.exit_code)


@bench.command()
def learner(
    json: JsonFile = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="a workload's name or YAML file; may be repeated"),
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="draw the rows there: .svg or .png")] = None,
    repeats: Repeats = 5,
    seed: Seed = 0,
    without: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="leave out: packed, trl, checkpointing, floor")
    ] = None,
    threads: Threads = 2,
) -> None:
    """Tokens per second and memory of a learner's step, against PEFT and TRL on the same tokens."""
    from benchmarks.learner.options import DEFAULT_WORKLOADS, LearnerBench
    from benchmarks.learner.workload import load_workload
    from benchmarks.plot import check_plot, write_plot
    from benchmarks.result import check_writable, write_result
    from benchmarks.table import print_result

    options = LearnerBench(
        workloads=tuple(load_workload(name) for name in workload or DEFAULT_WORKLOADS),
        repeats=repeats,
        seed=seed,
        without=frozenset(without or ()),
        threads=threads,
    )
    if json is not None:
        check_writable(json)
    if plot is not None:
        check_plot(plot)
    from benchmarks.learner.run import bench_learner

    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    result = asyncio.run(bench_learner(options, lambda text: console.print(text, style="dim", highlight=False)))
    print_result(console, result, reference="PEFT padded, or 1st")
    if json is not None:
        write_result(json, result)
    if plot is not None:
        write_plot(plot, result)
    raise typer.Exit(result.exit_code)


@bench.command()
def bus(
    json: JsonFile = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="request, one_by_one, fan_out, graph, agents, rollout, mqtt_request, mqtt_one_way; may be repeated; "
            "default all",
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="draw the rows there: .svg or .png")] = None,
    repeats: Repeats = 5,
    without: Annotated[list[str] | None, typer.Option(metavar="NAME", help="leave out: autogen, langgraph")] = None,
) -> None:
    """What messages, graph runs, agents and rollouts cost, against autogen-core, langgraph and bare aiomqtt."""
    from benchmarks.bus.options import WORKLOADS, BusBench
    from benchmarks.plot import check_plot, write_bars
    from benchmarks.result import check_writable, write_result
    from benchmarks.table import print_result

    options = BusBench(
        workloads=tuple(dict.fromkeys(workload or WORKLOADS)), repeats=repeats, without=frozenset(without or ())
    )
    if json is not None:
        check_writable(json)
    if plot is not None:
        check_plot(plot)
    from benchmarks.bus.run import CPU, bench_bus

    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    result = asyncio.run(bench_bus(options, lambda text: console.print(text, style="dim", highlight=False)))
    print_result(console, result, reference="1st")
    if json is not None:
        write_result(json, result)
    if plot is not None:
        write_bars(plot, result, CPU)
    raise typer.Exit(result.exit_code)


@bench.command()
def scenarios(
    json: JsonFile = None,
    scenario: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="one that is measured; may be repeated; default all")
    ] = None,
    size: Annotated[str | None, typer.Option(help="of all of them: small, medium, ...; default the smallest")] = None,
    repeats: Repeats = 3,
    without: Annotated[list[str] | None, typer.Option(metavar="NAME", help="leave out: rollout")] = None,
) -> None:
    """What steps, copies and snapshots of environments cost, and rollouts in them beside their engine."""
    from benchmarks.result import check_writable, write_result
    from benchmarks.scenarios.options import ScenariosBench
    from benchmarks.table import print_result
    from mas.scenarios.catalogue import scenario_names

    names = tuple(dict.fromkeys(scenario or scenario_names()))
    options = ScenariosBench(scenarios=names, size=size, repeats=repeats, without=frozenset(without or ()))
    if json is not None:
        check_writable(json)
    from benchmarks.scenarios.run import bench_scenarios

    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    result = asyncio.run(bench_scenarios(options, lambda text: console.print(text, style="dim", highlight=False)))
    print_result(console, result, reference="1st")
    if json is not None:
        write_result(json, result)
    raise typer.Exit(result.exit_code)


@bench.command()
def staleness(
    json: JsonFile = None,
    case: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="relay, two_hop, smollm2; may be repeated; default relay and two_hop"),
    ] = None,
    staleness: Annotated[
        list[int] | None, typer.Option(help="of samples, in updates; may be repeated; default 0, 1 and 2")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="measured runs, each with a seed of its own, after one")] = 3,
    words: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="options of all runs")] = None,
) -> None:
    """What sampling while the learner works brings in time, and costs in success."""
    from benchmarks.result import check_writable, write_result
    from benchmarks.staleness.options import StalenessBench
    from benchmarks.table import print_result

    default = StalenessBench()
    options = StalenessBench(
        cases=tuple(dict.fromkeys(case or default.cases)),
        staleness=tuple(staleness or default.staleness),
        repeats=repeats,
        words=tuple(words or ()),
    )
    if json is not None:
        check_writable(json)
    from benchmarks.staleness.run import bench_staleness

    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    result = asyncio.run(bench_staleness(options, lambda text: console.print(text, style="dim", highlight=False)))
    print_result(console, result, reference="1st")
    if json is not None:
        write_result(json, result)
    raise typer.Exit(result.exit_code)


@bench.command()
def scale(
    json: JsonFile = None,
    kinds: Annotated[str, typer.Option(metavar="KIND,...", help="of clusters: local, ray")] = "local,ray",
    workers: Annotated[str, typer.Option(metavar="N,...", help="rollout workers; 1 among them")] = "1,2,4,8",
    latency_ms: Annotated[float, typer.Option(metavar="MS", help="of every call of the engine")] = 20.0,
    repeats: Repeats = 3,
) -> None:
    """What rollout workers cost beside one process, how they scale, and their memory and start."""
    from benchmarks.result import check_writable, write_result
    from benchmarks.scale.options import ScaleBench, numbers, split
    from benchmarks.table import print_result

    options = ScaleBench(
        kinds=split(kinds), workers=numbers("--workers", workers), latency_ms=latency_ms, repeats=repeats
    )
    if json is not None:
        check_writable(json)
    from benchmarks.scale.run import bench_scale

    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    result = asyncio.run(bench_scale(options, lambda text: console.print(text, style="dim", highlight=False)))
    print_result(console, result, reference="1st")
    if json is not None:
        write_result(json, result)
    raise typer.Exit(result.exit_code)


@bench.command()
def probes(
    json: JsonFile = None,
    system: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="mas, langgraph, ...; may be repeated; default all")
    ] = None,
    venvs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="virtual environments, called like the systems")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="put the tables between the marks of this Markdown page")
    ] = None,
) -> None:
    """What orchestrators make of eight graphs with a trap each; exit code 1 where mas does not keep its promise."""
    from benchmarks.probes.options import ProbesBench
    from benchmarks.probes.page import check_page, table, write_page
    from benchmarks.probes.run import run_probes, write_report
    from benchmarks.probes.systems import SYSTEMS
    from benchmarks.result import check_writable

    options = ProbesBench(systems=tuple(dict.fromkeys(system or SYSTEMS)), venvs=venvs)
    if json is not None:
        check_writable(json)
    if page is not None:
        check_page(page)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    report = asyncio.run(run_probes(options, lambda text: console.print(text, style="dim", highlight=False)))
    console.print(table(report))
    if json is not None:
        write_report(json, report)
    if page is not None:
        write_page(page, report)
    raise typer.Exit(report.exit_code)
