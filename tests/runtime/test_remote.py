"""Agents elsewhere that are trained here: asked again when they vanish, and held to the version that was asked for."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import mas.scenarios.relay
from mas.bus.memory import MemoryBus
from mas.config.options import ScenarioOptions
from mas.core.engine import AdapterRef, Generation, PinnedAdapter, Request
from mas.core.environment import Task
from mas.core.errors import AgentFailed, Closed, Expired, MasError, NoRoute
from mas.core.messages import Payload
from mas.core.records import Attempt
from mas.graph.load import load_team
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.agents import RoleAgent
from mas.runtime.payloads import Candidate
from mas.runtime.placement import ENVIRONMENT, ProcessRole
from mas.runtime.play import DecisionPoint
from mas.runtime.remote import ATTEMPTS, RemoteAgents, insist
from mas.runtime.team import TeamRuntime
from mas.scenarios import build_scenario
from mas.testing.scripted import ScriptedEngine

PINNED = PinnedAdapter(AdapterRef("planner", 3), "0" * 64)


def failing(*errors: MasError) -> Callable[[], Awaitable[str]]:
    """A call that fails with each of these in turn, and then answers."""
    left = list(errors)

    async def call() -> str:
        if left:
            raise left.pop(0)
        return "answer"

    return call


async def there() -> bool:
    return True


async def gone() -> bool:
    return False


async def test_a_request_is_made_again_when_its_listener_vanished_and_another_one_came() -> None:
    notes: list[tuple[int, str]] = []
    call = failing(Closed("vanished"), NoRoute("nobody"))
    assert await insist(call, there, lambda number, error: notes.append((number, str(error)))) == "answer"
    assert notes == [(1, "vanished"), (2, "nobody"), (3, "None")]


async def test_a_request_that_is_answered_at_once_is_no_news() -> None:
    notes: list[int] = []
    assert await insist(failing(), gone, lambda number, error: notes.append(number)) == "answer"
    assert notes == []


@pytest.mark.parametrize(
    ("errors", "until_there", "message", "asked"),
    [
        ((Closed("vanished"),), gone, "vanished", 1),
        ((Expired("late"),), there, "late", 0),
        (tuple(Closed(f"killed {number}") for number in range(9)), there, f"killed {ATTEMPTS - 1}", ATTEMPTS),
    ],
    ids=["nobody comes", "another error", "it kills whoever takes it"],
)
async def test_a_request_fails_with_its_last_error(
    errors: tuple[MasError, ...], until_there: Callable[[], Awaitable[bool]], message: str, asked: int
) -> None:
    notes: list[int] = []
    with pytest.raises(MasError, match=f"^{message}$"):
        await insist(failing(*errors), until_there, lambda number, error: notes.append(number))
    assert notes == [*range(1, asked + 1)]


@pytest.mark.parametrize("text", ["planner", "planner@3", "planner@3:12", f"planner@x:{'0' * 64}"])
def test_a_pinned_adapter_is_read_as_it_is_written(text: str) -> None:
    assert PinnedAdapter.parse(str(PINNED)) == PINNED
    assert PinnedAdapter.parse(text) is None


class Named(ScriptedEngine):
    """Says `a` or `7`, and names the planner's adapter as it is told to."""

    def __init__(self, ref: AdapterRef) -> None:
        super().__init__(lambda prompt, adapter, seed: "7" if adapter is None else "a", (str(PINNED),))
        self._ref = ref

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        made = await super().generate(request)
        ref = None if request.adapter is None else self._ref
        return tuple(msgspec.structs.replace(one, adapter=ref) for one in made)


async def play(engine: ScriptedEngine, attempts: list[Attempt]) -> list[str]:
    """Play an episode of relay as its trainer does, agents elsewhere; whom it asked on the bus."""
    spec, bus = load_team(Path(mas.scenarios.relay.__file__).with_name("team.yaml")), MemoryBus()
    plan, asked = compile_team(spec, build_roles(spec)), []
    bus.tap(lambda envelope: asked.append(envelope.target) if envelope.source == "relay/run" else None)

    async def until_there(address: str) -> bool:
        return False

    remote = RemoteAgents(pinned=lambda role: PINNED if role == "planner" else None, until_there=until_there)
    trains = ProcessRole(hosts=frozenset((ENVIRONMENT,)), principal="trainer", process="1", remote=remote)
    speaks = ProcessRole(hosts=frozenset(plan.roles), principal="agents", process="2")
    trainer = TeamRuntime(plan, ScriptedEngine(lambda *_: ""), bus, adapters={}, place=trains)
    agents = TeamRuntime(plan, engine, bus, adapters={}, place=speaks)

    async def decide(point: DecisionPoint) -> Payload:
        (candidate,) = await trainer.ask(point, (7,), episode="e")
        assert await trainer.sample_locally(point, 7, episode="e") == candidate
        return candidate.payload

    environment = build_scenario(ScenarioOptions(name="relay")).environment()
    environment.reset(Task(id="train-0", seed=0))
    async with trainer, agents:
        await trainer.play("e", environment, decide, lambda *_: None, on_attempt=attempts.append)
    return asked


async def test_what_an_agent_elsewhere_would_say_is_asked_over_the_bus_and_of_the_same_version() -> None:
    engine, attempts = Named(PINNED.ref), list[Attempt]()
    asked = await play(engine, attempts)
    assert [name for name in asked if name != "relay/environment"] == ["relay/planner"] * 2 + ["relay/executor"] * 2
    assert [request.adapter for request in engine.requests] == [str(PINNED)] * 2 + [None] * 2
    assert attempts == []


@pytest.mark.parametrize("ref", [AdapterRef("planner", 2), AdapterRef("executor", 3)])
async def test_candidates_of_another_version_are_refused(ref: AdapterRef) -> None:
    with pytest.raises(AgentFailed, match=rf"NotServed: .*to use adapter planner@3 and used {ref}$"):
        await play(Named(ref), [])


async def test_an_agent_that_is_not_there_fails_its_episode_and_that_is_noted() -> None:
    class Leaves(Named):
        async def generate(self, request: Request) -> tuple[Generation, ...]:
            raise Closed("it left")

    attempts: list[Attempt] = []
    with pytest.raises(AgentFailed, match="agent 'planner' failed in turn 0: Closed: it left"):
        await play(Leaves(PINNED.ref), attempts)
    assert [(one.asked, one.number, one.cause) for one in attempts] == [("planner", 1, "Closed: it left")]


@pytest.mark.parametrize("changed", [{"role": "executor"}, {"seed": 8}])
async def test_an_answer_of_another_role_or_to_another_question_is_refused(
    changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = RoleAgent.answer

    async def other(self: RoleAgent, *args: Any, **named: Any) -> tuple[Candidate, ...]:
        return tuple(msgspec.structs.replace(one, **changed) for one in await answer(self, *args, **named))

    monkeypatch.setattr(RoleAgent, "answer", other)
    with pytest.raises(AgentFailed, match="RunError: role 'planner' was asked for 1 candidates and answered, as"):
        await play(Named(PINNED.ref), [])


async def test_an_answer_with_fewer_supports_than_tokens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = RoleAgent.answer

    async def other(self: RoleAgent, *args: Any, **named: Any) -> tuple[Candidate, ...]:
        found = await answer(self, *args, **named)
        replace = msgspec.structs.replace
        return tuple(replace(one, generation=replace(one.generation, supports=(b"",) * 9)) for one in found)

    monkeypatch.setattr(RoleAgent, "answer", other)
    with pytest.raises(AgentFailed, match=r"RunError: role 'planner' answered [0-8] tokens with 9 supports"):
        await play(Named(PINNED.ref), [])
