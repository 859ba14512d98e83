"""The command `mas demo`: one team of a real model, before and after."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from mas.api.train import train_setup
from mas.config.load import load_config
from mas.core.printable import printable
from mas.observe.report_records import Conversation, ConversationPair
from mas.runs.resolve import resolve

DEMO_OVERRIDES = (
    *("scenario=shop", "model=smollm2", "model.threads=2"),
    *("algorithm.sampler.candidates=8", "train.steps=24", "train.eval_every=12"),
)
"""What is trained: a customer and a seller of SmolLM2-135M, one adapter each."""
_SHOWN_TASKS = 3

Tiny = Annotated[bool, typer.Option("--tiny", help="the study of the tiny base instead, which mas makes itself")]


def demo(
    out: Annotated[
        Path | None, typer.Option(help="run directory; default: runs/demo, with --tiny runs/demo-tiny")
    ] = None,
    tiny: Tiny = False,
) -> None:
    """Train a customer and a seller of SmolLM2-135M in minutes on two cores; show what they say before and after.

    Run the same command again to resume an interrupted training.
    """
    out = out or Path("runs/demo-tiny" if tiny else "runs/demo")
    if tiny:
        from mas.study.command import tiny_demo

        tiny_demo(out)
        return
    console = Console()
    config = load_config([*DEMO_OVERRIDES, f"run_dir={out}"])
    setup = resolve(config)
    train_setup(config, setup, console)
    from mas.observe.report import write_report
    from mas.runs.report import build_report

    report = build_report(out, config, setup.plan)
    write_report(out / "report.html", report)
    show_demo(console, report.conversations)
    console.print(Text(" ".join(report.headline), style="bold"))
    console.print(f"Curves and whole conversations: {out / 'report.html'}", soft_wrap=True)


def show_demo(console: Console, comparisons: Sequence[ConversationPair]) -> None:
    """What the team said of the same held-out tasks before and after. Model text is never read as markup."""
    for comparison in comparisons[:_SHOWN_TASKS]:
        world = next((scene.world for scene in comparison.before.scenes), comparison.title)
        console.print(Text(f"\n{printable(world)}", style="bold"))
        for label, conversation in (("before", comparison.before), ("after", comparison.after)):
            console.print(_conversation_line(label, conversation), soft_wrap=True)
    console.print()


def _conversation_line(label: str, conversation: Conversation) -> Text:
    said = ", ".join(f"{line.agent} says '{printable(line.text).strip()}'" for line in conversation.lines)
    outcome = ("right", "green") if conversation.is_success else ("wrong", "red")
    return Text.assemble((f"  {label:<7}", "dim"), said, ": ", outcome)
