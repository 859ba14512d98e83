"""The command `mas export`: data for other trainers, or the team itself."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mas.core.errors import ConfigError
from mas.observe.trust_option import Trust
from mas.runs.hub_source import local_run
from mas.runs.overrides import PLAYING, Overrides, PlayedRun, check_used, exported
from mas.runs.resolve import resolve


def export(
    run_dir: PlayedRun,
    overrides: Overrides = None,
    out: Annotated[
        Path | None,
        typer.Option(help="a new directory for ROLE.sft.jsonl and ROLE.dpo.jsonl, or with --card for the team; export"),
    ] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="training tasks to sample; default: 16")] = None,
    algorithm: Annotated[str, typer.Option(help="samples and labels in place of the run's own, such as dpo")] = "",
    card: Annotated[
        bool, typer.Option("--card", help="write the team instead: adapters, team file, model card; upload nothing")
    ] = False,
    hub: Annotated[
        str, typer.Option(metavar="ORG/NAME", help="upload what --card writes to this repository of a model hub")
    ] = "",
    public: Annotated[
        bool, typer.Option("--public", help="with --hub: everybody may read the repository; else it is private")
    ] = False,
    trust: Trust = False,
) -> None:
    """Write completions to imitate and pairs to prefer, role by role, from trees of a trained team; or publish it.

    With --card or --hub the team itself is written, for others to run: `mas run hub:ORG/NAME`. The hub's address is
    HF_ENDPOINT; the token is HF_TOKEN, or that of `hf auth login`.
    """
    run_dir = local_run(run_dir)
    if card or hub:
        given = {"--tasks": tasks, "--algorithm": algorithm or None, "--out": out if hub else None}
        _check_team_export(given, card=card, hub=hub, public=public)
        from mas.runs.publish import export_team, publish_team

        if card:
            export_team(run_dir, out or _EXPORT, overrides or [])
            typer.echo(str(out or _EXPORT))
        else:
            typer.echo(publish_team(run_dir, hub, overrides=overrides or [], is_public=public))
        return
    if public:
        raise ConfigError("--public says who may read what --hub uploads: add --hub ORG/NAME")
    config = exported(run_dir, overrides or [], algorithm)
    check_used("export", overrides or [], (*PLAYING, "algorithm.sampler", "algorithm.options", "algorithm.reward"))
    from mas.training.check_setup import check_trainable
    from mas.training.export import check_export, export_run

    setup, count, folder = resolve(config), tasks or 16, out or _EXPORT
    check_trainable(setup)
    check_export(setup, count, folder)
    for role, rows in asyncio.run(export_run(setup, run_dir, count, folder, Console().print)).items():
        typer.echo(f"{role}\t{rows.positives} to imitate\t{rows.pairs} pairs")


_EXPORT = Path("export")


def _check_team_export(given: Mapping[str, object], *, card: bool, hub: str, public: bool) -> None:
    """Refuse options that have no effect on the export of a team."""
    if card and hub:
        raise ConfigError("--card writes the team into --out and uploads nothing, --hub uploads it: choose one")
    if public and not hub:
        raise ConfigError("--public says who may read what --hub uploads: add --hub ORG/NAME")
    if unused := [name for name, value in given.items() if value is not None]:
        raise ConfigError(f"{unused[0]} has no effect on `mas export {'--hub' if hub else '--card'}`: leave it out")
