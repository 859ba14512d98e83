"""Ctrl-C on a team at work."""

import asyncio
import os
import signal

import pytest
from test_policies import Behave, table

from mas.core.errors import Halted
from mas.runtime.team import TeamRuntime, drains_on_interrupt


def waits_for(gate: asyncio.Event, began: asyncio.Event) -> Behave:
    async def behave(name: str, call: int) -> None:
        began.set()
        await gate.wait()

    return behave


async def waits_for_nothing(name: str, call: int) -> None:
    pass


async def draining(runtime: TeamRuntime) -> None:
    for _ in range(1000):
        if runtime.is_draining:
            return
        await asyncio.sleep(0)
    raise AssertionError("the signal was not noticed")


async def test_in_a_thread_that_is_not_the_main_one_it_changes_nothing() -> None:
    async def playing() -> bool:
        async with table(waits_for_nothing, {}) as sitting:
            with drains_on_interrupt(sitting.runtime):
                await sitting.play()
                return sitting.runtime.is_draining

    assert await asyncio.to_thread(asyncio.run, playing()) is False


async def test_the_first_ctrl_c_lets_the_turn_end(capsys: pytest.CaptureFixture[str]) -> None:
    gate, began = asyncio.Event(), asyncio.Event()
    async with table(waits_for(gate, began), {}) as sitting:
        with drains_on_interrupt(sitting.runtime):
            playing = asyncio.create_task(sitting.play(), name="play")
            await began.wait()
            os.kill(os.getpid(), signal.SIGINT)
            await draining(sitting.runtime)
            gate.set()
            await asyncio.wait([playing])
        assert len(sitting.flows) == 1
        assert sitting.flows[0].committed
    assert "Ctrl-C again stops at once" in capsys.readouterr().err


async def test_the_second_ctrl_c_ends_it() -> None:
    async with table(waits_for(asyncio.Event(), began := asyncio.Event()), {}) as sitting:
        with drains_on_interrupt(sitting.runtime):
            playing = asyncio.create_task(sitting.play(), name="play")
            await began.wait()
            os.kill(os.getpid(), signal.SIGINT)
            await draining(sitting.runtime)
            os.kill(os.getpid(), signal.SIGINT)
            with pytest.raises(Halted, match="was cancelled"):
                await playing
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert sitting.flows == []
    assert sitting.engine.stopped == ["first"]
