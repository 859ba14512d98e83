"""The commands `mas cluster`: what a cluster of processes needs (`plan`), what it may gain (`simulate`), and what one
does (`status`).

None starts a process. Heavy modules are imported inside them.
"""

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mas.core.errors import ConfigError
from mas.core.host import gib
from mas.core.printable import printable
from mas.observe.files import check_json_file, write_json_file
from mas.runs.cluster_status import show_status
from mas.runs.overrides import JsonFile, Overrides, check_used, configured
from mas.runs.simulate import simulate_run
from mas.training.setup import Setup

if TYPE_CHECKING:
    from mas.training.cluster_estimates import ClusterPlan

cluster = typer.Typer(
    name="cluster",
    help="What training in several processes needs, what it may gain, and what it does.",
    no_args_is_help=True,
)
cluster.command("simulate")(simulate_run)
cluster.command("status")(show_status)

_USED = ("scenario", "model", "engine", "algorithm=", "algorithm", "learner", "train", "cluster")


@cluster.command()
def plan(
    overrides: Overrides = None,
    memory: Annotated[
        float | None,
        typer.Option(help="GiB that each process has; default: what is free here"),
    ] = None,
    json: JsonFile = None,
) -> None:
    """Say what each kind of process needs of memory, and how many adapter versions an engine holds.

    Exit code 1: one process alone needs more than there is.
    """
    given = overrides or []
    check_used("cluster plan", given, _USED)
    if memory is not None and not 0 < memory < math.inf:
        raise ConfigError(f"--memory {memory}: a number of GiB above 0, such as 80")
    check_json_file(json)
    _, setup = configured(given)
    console = Console()
    from mas.serving.base_measures import Footprint
    from mas.serving.model import load_text
    from mas.training.base import base_path
    from mas.training.check_setup import check_trainable
    from mas.training.cluster_estimates import memory_here, plan_cluster
    from mas.training.estimates import Work

    check_trainable(setup)
    path = base_path(setup, lambda text: console.print(Text(printable(text), style="dim"), soft_wrap=True))
    work = Work.bound(setup, load_text(setup.model, path))
    found = plan_cluster(setup, Footprint.of(setup.model, path), work)
    free = memory_here(setup) if memory is None else round(memory * 2**30)
    _print_plan(console, setup, found, free)
    if json is not None:
        write_json_file(json, _plan_record(found, setup, free))
    if free is not None and found.too_large(free):
        raise typer.Exit(1)


def _print_plan(console: Console, setup: Setup, found: "ClusterPlan", free: int | None) -> None:
    slots = found.slots
    model = f"{setup.model.path} in {setup.model.dtype}, adapters of rank {setup.model.highest_rank}"
    lines = [f"{setup.scenario.name}, team {setup.team.name}: {slots.adapters} trained adapters; base {model}"]
    console.print(Text(printable(lines[0])), soft_wrap=True)
    console.print(_plan_table(found))
    console.print(
        Text(
            f"adapter slots of an engine: {slots.slots} = {slots.adapters} adapters x (staleness {slots.staleness} + 2)"
            f" + 1 for the bare base; {slots.least_versions} versions where a batch holds its version only until it is "
            "complete"
        ),
        soft_wrap=True,
    )
    for line in (*_engine_lines(setup, found), *_verdict(found, free)):
        console.print(Text(line), soft_wrap=True)


def _plan_table(found: "ClusterPlan") -> Table:
    table = Table(title="Estimated memory of one process of each kind")
    table.add_column("process", overflow="fold")
    for column in ("count", "base", "adapters", "optimiser", "KV cache", "activations", "device", "host"):
        table.add_column(column, justify="right", overflow="fold")
    for one in found.processes:
        parts = (one.base, one.adapters, one.optimiser, one.cache, one.activations, one.device, one.host)
        table.add_row(one.kind, str(one.count), *(gib(part) if part else "-" for part in parts))
    return table


def _engine_lines(setup: Setup, found: "ClusterPlan") -> list[str]:
    """What vLLM must be started with."""
    from mas.training.cluster_estimates import vllm_adapters

    slots, name = found.slots, setup.engine.name
    if name == "vllm":
        room = vllm_adapters(setup, slots)
        line = f"vLLM: max_loras of at least {slots.slots}, max_cpu_loras no less; mas sets both from engine.adapters"
        enough = setup.engine.places >= slots.versions
        is_set = f"{setup.engine.places} is enough" if enough else f"leave it out, or set engine.adapters={room}"
        return [f"{line}: {is_set}"]
    if name == "vllm_server":
        return [f"vLLM: {slots.server_flags}"]
    return []


def _verdict(found: "ClusterPlan", free: int | None) -> list[str]:
    """Whether it fits, for people."""
    from mas.training.estimates import LESS_MEMORY

    what = "device memory of each process" if found.on_gpu else "memory of each process"
    together = f"all processes together need {gib(found.together())}" + (" of it" if found.on_gpu else "")
    if free is None:
        return [f"{what}: how much there is is not known here, give --memory GIB; {together}"]
    lines = []
    for one in found.too_large(free):
        needed = one.needed(on_gpu=found.on_gpu)
        lines.append(f"does not fit: a process of {one.kind} needs {gib(needed)}, and {gib(free)} are there")
    if lines:
        return [*lines, f"{LESS_MEMORY}; model.dtype=bfloat16 halves the base"]
    fits = "fit" if found.together() <= free else "do not fit"
    return [f"fits: each process alone into {gib(free)} ({what}); {together}, which {fits} into one such memory"]


def _plan_record(found: "ClusterPlan", setup: Setup, free: int | None) -> object:
    from mas.training.cluster_estimates import vllm_adapters

    slots = found.slots
    is_vllm = setup.engine.name in ("vllm", "vllm_server")
    return {
        "is_estimate": True,
        "on_gpu": found.on_gpu,
        "slots": asdict(slots)
        | {"slots": slots.slots, "versions": slots.versions, "least_versions": slots.least_versions},
        "vllm": {"adapters": vllm_adapters(setup, slots), "max_loras": slots.slots, "max_cpu_loras": slots.slots}
        if is_vllm
        else None,
        "processes": [
            asdict(one) | {"device": one.device, "needed": one.needed(on_gpu=found.on_gpu)} for one in found.processes
        ],
        "together": found.together(),
        "memory": free,
        "fits": None if free is None else not found.too_large(free),
    }
