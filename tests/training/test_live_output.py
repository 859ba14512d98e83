"""At a terminal a conversation is shown while it is spoken, and it is the same conversation."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

import mas.scenarios.relay
from mas.bus.memory import MemoryBus
from mas.config.options import Config
from mas.core.bus import Gap, Restart
from mas.core.engine import Engine
from mas.core.records import Episode
from mas.core.seeds import derive_seed
from mas.graph.load import load_team
from mas.graph.plan import TeamPlan, compile_team
from mas.roles import build_roles
from mas.runs.resolve import resolve
from mas.runtime.payloads import Piece
from mas.runtime.streaming import is_streamed
from mas.runtime.team import TeamRuntime
from mas.serving.transformers_engine import TransformersEngine
from mas.testing.scripted import ScriptedEngine
from mas.training.session import TeamSession
from mas.training.show import LiveOutput, show_episode

ERASE = "\x1b[2K"


class Chatty(ScriptedEngine):
    """Notes whether it was asked for pieces."""

    def __init__(self) -> None:
        super().__init__(lambda prompt, _, seed: f"{derive_seed(prompt, seed) % 10}[b]abc")
        self.streams = 0

    async def stream(self, request):
        self.streams += 1
        async for piece in super().stream(request):
            yield piece


def plan_of_relay() -> TeamPlan:
    spec = load_team(Path(mas.scenarios.relay.__file__).with_name("team.yaml"))
    return compile_team(spec, build_roles(spec))


def terminal(*, is_terminal: bool = True) -> Console:
    return Console(file=io.StringIO(), force_terminal=is_terminal, width=120, color_system=None)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def rows_of(console: Console) -> list[str]:
    """What was printed, without its control codes."""
    return [row for row in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", printed(console)).splitlines() if row.strip()]


async def shown(console: Console, engine: Engine, temperature: float | None = 0.0) -> Episode:
    setup = resolve(Config.model_validate({"scenario": {"name": "relay"}}))
    async with TeamRuntime(setup.plan, engine, MemoryBus(), adapters={}, timeout_s=60.0) as runtime:
        players = TeamSession(setup=setup, runtime=runtime)
        return await show_episode(players, setup.scenario.task("eval", 0), 3, console, temperature=temperature)


async def test_an_episode_is_the_same_at_a_terminal_and_is_shown_there_while_it_is_spoken():
    away, at = terminal(is_terminal=False), terminal()
    silent, spoken = Chatty(), Chatty()
    unheard, heard = await shown(away, silent), await shown(at, spoken)
    assert heard == unheard
    assert silent.streams == 0
    assert spoken.streams == len(heard.lines) > 1
    assert ERASE not in printed(away)
    rows = [row for row in rows_of(at) if row.startswith("planner  says  ")]
    first = next(line.text for line in heard.lines if line.agent == "planner")
    assert rows[0] == f"planner  says  {first[0]}", "the first row shows one character"
    assert "planner".rjust(8) + "  reads" in printed(at)


async def test_a_model_says_the_same_at_a_terminal(base_for):
    engine = TransformersEngine(base_for("relay"))
    try:
        unheard = await shown(terminal(is_terminal=False), engine, temperature=None)
        assert await shown(terminal(), engine, temperature=None) == unheard
    finally:
        await engine.close()


def output_of(console: Console) -> LiveOutput:
    return LiveOutput(console, plan_of_relay(), {"planner": "cyan", "executor": "yellow"})


def test_gaps_are_seen_and_a_new_beginning_takes_back_what_was_shown():
    console = terminal()
    output = output_of(console)
    with output.of("planner"):
        for told in (Piece(candidate=0, text="[b]a"), Gap(1, 2), Piece(candidate=0, text="d")):
            output._hear("planner", told)
        assert rows_of(console)[-1] == "planner  says  [b]a…d"
        output._hear("planner", Restart())
        output._hear("planner", Piece(candidate=0, text="y" + "x" * 500))
    told = "".join(rows_of(console)).rpartition("planner  says")[2]
    assert told.strip() == "…" + "x" * 400, "its end, where it is long"
    assert output._live is None


def test_agents_that_speak_at_the_same_time_have_a_row_each_and_lose_it_when_they_fail():
    console = terminal()
    output = output_of(console)

    def fail() -> None:
        with output.of("planner"):
            output._hear("planner", Piece(candidate=0, text="one"))
            with output.of("executor"):
                output._hear("executor", Piece(candidate=0, text="two"))
                assert rows_of(console)[-2:] == ["planner  says  one", "executor  says  two"]
                raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert output._live is None


def test_nobody_listens_where_there_is_no_terminal():
    with output_of(terminal(is_terminal=False)).of("planner"):
        assert not is_streamed()
    with output_of(terminal()).of("planner"):
        assert is_streamed()
