"""Heartbeats count only from the agent that was asked."""

import asyncio

import pytest
from virtual_time import play

from mas.core.errors import Expired
from mas.core.messages import Beat, Envelope, Note
from mas.runtime.streaming import Heartbeat

REQUEST = Envelope(id="r", kind="note", source="t/run", target="t/solver", payload=Note(text="?"))


def beat(source: str, principal: str | None, correlation: str = "r") -> Envelope:
    return Envelope(
        id="b", kind="beat", source=source, target="t/run", payload=Beat(number=0), correlation=correlation,
        principal=principal,
    )  # fmt: skip


def silent_after_s(heartbeat: Heartbeat, sign: Envelope) -> float:
    """When the wait for an answer ends, with a beat every 2 s up to 20 s and 3 s of silence allowed."""

    async def whole() -> float:
        async def beating() -> None:
            for _ in range(10):
                await asyncio.sleep(2.0)
                await heartbeat.handle(sign)

        beats = asyncio.create_task(beating(), name="beats")
        with pytest.raises(Expired, match="'t/solver' sent no heartbeat for 3 s"):
            await heartbeat.watch(REQUEST, 3.0, asyncio.get_running_loop().create_future())
        ended = asyncio.get_running_loop().time()
        await beats
        return ended

    return play(whole())


def test_beats_of_the_agent_that_was_asked_count() -> None:
    # the last beat comes at 20 s
    assert silent_after_s(Heartbeat(), beat("t/solver", None)) == pytest.approx(23.0)
    assert silent_after_s(Heartbeat(is_vouched=True), beat("t/solver", "t/solver")) == pytest.approx(23.0)


@pytest.mark.parametrize(
    ("is_vouched", "sign"),
    [
        (False, beat("t/other", None)),
        (False, beat("t/solver", None, correlation="another")),
        (True, beat("t/other", "t/other")),
        (True, beat("t/solver", "t/other")),
        (True, beat("t/solver", None)),
        (True, beat("t/solver", "t/solver", correlation="another")),
    ],
)
def test_beats_of_somebody_else_or_for_something_else_do_not_count(is_vouched: bool, sign: Envelope) -> None:
    assert silent_after_s(Heartbeat(is_vouched=is_vouched), sign) == pytest.approx(3.0)
