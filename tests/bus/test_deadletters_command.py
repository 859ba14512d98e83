"""`mas deadletters` lists what a journal gave up on, keeps private payloads back, and marks letters for delivery."""

from pathlib import Path

import pytest

from mas.bus.journal import Journal
from mas.bus.journal_tables import JOURNAL_NAME, read_records
from mas.bus.memory import MemoryBus
from mas.bus.serve import EnvelopeFactory
from mas.core.messages import Note
from mas.testing.bus_suite import next_text


@pytest.fixture
async def run_dir(tmp_path: Path) -> Path:
    """A directory whose journal has an open and a private dead letter."""
    sender = EnvelopeFactory("planner")
    with Journal.open(tmp_path / JOURNAL_NAME) as journal:
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("solver") as inbox:
            await bus.publish(sender.new("solver", Note(text="go north")))
            inbox.reject(await inbox.receive(), cause="no such tool")
            await bus.publish(sender.new("solver", Note(text="my hand"), visibility=frozenset({"solver"})))
            inbox.reject(await inbox.receive(), cause="not my turn")
            await bus.close()
    return tmp_path


async def test_letters_are_listed_with_cause_attempts_and_ends_but_without_what_is_private(mas, run_dir):
    for words in (str(run_dir), str(run_dir / JOURNAL_NAME)):
        ran = mas("deadletters", words)
        assert ran.code == 0
        for text in ("2 dead letters", "planner", "solver", "no such tool", "not my turn", "go north", "[private]"):
            assert text in ran.out
        assert "my hand" not in ran.out
    assert "my hand" in mas("deadletters", str(run_dir), "--private").out


async def test_redriven_letters_are_delivered_by_the_next_bus(mas, run_dir):
    sent = [record.id for record in read_records(run_dir / JOURNAL_NAME)]
    assert "1 marked" in mas("deadletters", str(run_dir), "--redrive", sent[0]).out
    with Journal.open(run_dir / JOURNAL_NAME) as journal:
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("solver") as inbox:
            assert await next_text(inbox) == "go north"
        await bus.close()
    assert "1 dead letter" in [line.strip() for line in mas("deadletters", str(run_dir)).out.splitlines()]
    assert "1 marked" in mas("deadletters", str(run_dir), "--redrive", "all").out
    assert "has no dead letters" in mas("deadletters", str(run_dir)).out


async def test_mistakes_are_one_message(mas, run_dir, tmp_path):
    ran = mas("deadletters", str(tmp_path / "nowhere"))
    assert (ran.code, "there is no journal" in ran.err and "`mas run --journal FILE` makes one" in ran.err) == (2, True)
    ran = mas("deadletters", str(run_dir), "--redrive", "nobody")
    assert (ran.code, "no dead letter 'nobody'" in ran.err) == (2, True)
