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


@bench.callback()
def suite() -> None:
    """Say that `serving` is one of several commands, though there may be only one."""


@bench.command()
def serving(
    json: JsonFile = None,
    size: Annotated[list[str] | None, typer.Option(help="of the model: 1M, 10M; may be repeated")] = None,
    repeats: Repeats = 5,
    requests: Annotated[int, typer.Option(min=4, help="completions of one round")] = 64,
    seed: Seed = 0,
    without: Annotated[list[str] | None, typer.Option(metavar="NAME", help="leave out: generate, peft, vllm")] = None,
    threads: Threads = 2,
) -> None:
    """Tokens per second of the engines, with and without adapters, against transformers, PEFT and vLLM."""
    from mas.bench.result import check_writable, write_result
    from mas.bench.serving.options import REFERENCE, ServingBench
    from mas.bench.table import print_result

    options = ServingBench(
        sizes=tuple(size or ("1M", "10M")),
        repeats=repeats,
        requests=requests,
        seed=seed,
        without=frozenset(without or ()),
        threads=threads,
    )
    if json is not None:
        check_writable(json)
    from mas.bench.serving.run import bench_serving

    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    result = asyncio.run(bench_serving(options, lambda text: console.print(text, style="dim", highlight=False)))
    print_result(console, result, reference=REFERENCE)
    if json is not None:
        write_result(json, result)
    raise typer.Exit(result.exit_code)
