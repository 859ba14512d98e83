"""The commands `mas doctor` and `mas base`: whether a model works here, and bases made beforehand."""

import time

import typer
from rich.console import Console
from rich.text import Text

from mas.config.options import SMOLLM2
from mas.core.printable import printable
from mas.observe.files import STANDARD_OUTPUT, check_json_file, write_json_file
from mas.runs.overrides import JsonFile, Overrides, Quiet, check_used, configured
from mas.runs.resolve import words_note
from mas.scenarios import SCENARIOS


def doctor(overrides: Overrides = None, quiet: Quiet = False, json: JsonFile = None) -> None:
    """Say whether a model works here: template, stop tokens, context, memory, speed. Exit code 1 if it does not."""
    given = overrides or []
    _, setup = configured(given)
    check_used("doctor", given, ("scenario", "model", "engine", "algorithm=", "algorithm", "learner", "train"))
    check_json_file(json)
    console, result = Console(quiet=quiet or json == STANDARD_OUTPUT), Console(quiet=json == STANDARD_OUTPUT)
    console.print(Text(f"looking at model={setup.model.path} for {setup.scenario.name}", style="dim"), soft_wrap=True)
    if (note := words_note(setup)) is not None:
        console.print(Text(printable(note)), soft_wrap=True)
    from mas.training.diagnosis import diagnose

    findings = []
    for finding in diagnose(setup, lambda text: console.print(Text(printable(text), style="dim"))):
        style = "red" if finding.is_fatal else ""
        line = Text.assemble((f"{finding.name:<14}", "bold"), (printable(finding.text), style))
        (result if finding.is_fatal else console).print(line, soft_wrap=True)
        findings.append(finding)
    broken = [finding.name for finding in findings if finding.is_fatal]
    if json is not None:
        shown = [{"name": one.name, "text": one.text, "is_fatal": one.is_fatal} for one in findings]
        write_json_file(json, {"works": not broken, "findings": shown})
    if broken:
        result.print(Text(f"does not work here: {', '.join(broken)}", style="bold red"), soft_wrap=True)
        raise typer.Exit(1)
    result.print(Text("works here", style="bold green"))


def base(overrides: Overrides = None) -> None:
    """Make a base model and keep it in the cache: the tiny base of scenario=NAME (of all without one), or smollm2."""
    given = overrides or []
    began = time.perf_counter()
    if given == [SMOLLM2]:
        from mas.serving.model_sources import smollm2

        path = smollm2(lambda text: typer.echo(text, err=True))
        typer.echo(f"{SMOLLM2}\t{path}\t{time.perf_counter() - began:.1f} s")
        return
    names = [name for name, entry in SCENARIOS.items() if entry.is_demonstrated]
    is_chosen = any(word.lstrip("+").partition("=")[0].partition(".")[0] == "scenario" for word in given)
    wanted = [configured([*given, *more]) for more in ([[]] if is_chosen else [[f"scenario={n}"] for n in names])]
    check_used("base", given, ("scenario", "model", "engine"))
    from mas.training.base import progress_in, tiny_base

    for _, setup in wanted:
        began, name = time.perf_counter(), setup.scenario.name
        path = tiny_base(setup.scenario, setup.model.tiny, progress_in(lambda text: typer.echo(text, err=True), name))
        typer.echo(f"{name}\t{path}\t{time.perf_counter() - began:.1f} s")
