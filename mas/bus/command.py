"""The command `mas deadletters`: what a journal gave up on, and marking it for another delivery."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mas.bus.journal_tables import JOURNAL_NAME, Record, State, journal_at, read_records, redrive
from mas.bus.wire import read_plain
from mas.core.errors import JournalError
from mas.core.naming import listed
from mas.core.printable import printable

_DAMAGED = dict.fromkeys(("source", "target", "kind"), "?")
"""Shown of a message whose bytes are none."""
_SHOWN = 200
"""Characters of a payload that a row shows."""


def deadletters(
    journal: Annotated[
        Path, typer.Argument(metavar="JOURNAL", help=f"a journal, or a directory with one named {JOURNAL_NAME}")
    ],
    again: Annotated[
        list[str] | None,
        typer.Option("--redrive", metavar="ID", help="deliver this one again; may be repeated; `all`: every one"),
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="show private payloads, too")] = False,
) -> None:
    """List the dead letters of a bus's journal; mark them for delivery by the next bus that opens it."""
    path = journal_at(journal)
    dead = read_records(path, (State.DEAD, State.EXPIRED))
    if again:
        unknown = set(again) - {record.id for record in dead} - {"all"}
        if unknown:
            raise JournalError(f"{path} has no dead letter {listed(unknown)}; `mas deadletters {path}` lists them")
        number = sum(redrive(path, None if name == "all" else name) for name in dict.fromkeys(again))
        typer.echo(f"{number} marked: the next bus that opens {path} delivers them")
        return
    if not dead:
        typer.echo(f"{path} has no dead letters")
        return
    Console().print(_table(dead, is_private_shown=private))


def _table(records: list[Record], *, is_private_shown: bool) -> Table:
    table = Table(title="1 dead letter" if len(records) == 1 else f"{len(records)} dead letters, oldest first")
    for column in ("id", "from", "to", "kind", "attempts", "died (UTC)", "cause", "payload"):
        table.add_column(column, justify="right" if column == "attempts" else "left", overflow="fold")
    for record in records:
        plain = _DAMAGED if record.damage is not None else read_plain(record.frame)
        died = datetime.fromtimestamp(record.ended_at or record.at, UTC).isoformat(sep=" ", timespec="seconds")
        payload = _payload(plain, is_private_shown=is_private_shown)
        words = (record.id, plain["source"], plain["target"], plain["kind"], str(record.tries), died[:19], record.cause)
        table.add_row(*(Text(printable(word)) for word in (*words, payload)))
    return table


def _payload(plain: dict[str, Any], *, is_private_shown: bool) -> str:
    if plain is _DAMAGED:
        return ""
    if plain.get("visibility") is not None and not is_private_shown:
        return "[private]"
    text = json.dumps(plain["payload"]["fields"], ensure_ascii=False, default=repr)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
