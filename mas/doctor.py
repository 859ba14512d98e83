"""The command `mas doctor`: whether a model works on this machine, before anything is trained."""

import typer
from rich.console import Console
from rich.text import Text

from mas.core.text import printable
from mas.overrides import Overrides, check_used, configured


def doctor(overrides: Overrides = None) -> None:
    """Say whether a model works here: template, stop tokens, context, memory, speed. Exit code 1 if it does not."""
    given = overrides or []
    _, setup = configured(given)
    check_used("doctor", given, ("scenario", "model", "engine", "algorithm=", "algorithm", "learner", "train"))
    console = Console()
    console.print(Text(f"looking at model={setup.model.path} for {setup.scenario.name}", style="dim"), soft_wrap=True)
    from mas.training.diagnosis import diagnose

    broken = []
    for finding in diagnose(setup, lambda text: console.print(Text(printable(text), style="dim"))):
        style = "red" if finding.is_fatal else ""
        line = Text.assemble((f"{finding.name:<14}", "bold"), (printable(finding.text), style))
        console.print(line, soft_wrap=True)
        if finding.is_fatal:
            broken.append(finding.name)
    if broken:
        console.print(Text(f"does not work here: {', '.join(broken)}", style="bold red"), soft_wrap=True)
        raise typer.Exit(1)
    console.print(Text("works here", style="bold green"))
