"""What a traced team records: who asked whom, what was tried, which joins waited; and nothing of what was said."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as names
from spans import one, spans_in, tree_of

from mas.bus.memory import MemoryBus
from mas.config.options import ScenarioOptions
from mas.core.engine import AdapterRef, Engine
from mas.core.environment import Task
from mas.core.errors import AgentFailed, EngineError
from mas.core.messages import Payload
from mas.graph.load import load_team
from mas.graph.plan import compile_team
from mas.observe.tracing import open_tracing
from mas.roles import build_roles
from mas.runtime.play import DecisionPoint
from mas.runtime.spans import TeamSpans, TracedEngine, model_name
from mas.runtime.team import TeamRuntime
from mas.scenarios import build_scenario
from mas.serving.model_sources import Origin
from mas.testing.engine import EngineContract
from mas.testing.scripted import Answer, ScriptedEngine

SPEAKER = {"type": "agent", "view": "solo", "template": "Q>", "max_tokens": 4}
PAIR = {
    "name": "pair",
    "roles": {"first": SPEAKER, "last": SPEAKER | {"emits": "action"}},
    "edges": ["start -> first", "first -> last", "last -> done"],
    "output": "last",
}
AGENT = ["    invoke_agent {}", "      send pair/{}", "        process pair/{}", "          text_completion"]
WORLD = ["    {}", "      send pair/environment", "        process pair/environment"]


async def play(team: Mapping[str, object], answer: Answer, *, seeds: tuple[int, ...] = (1,)) -> None:
    """One episode of relay: one team turn."""
    spec = load_team({**team})
    plan = compile_team(spec, build_roles(spec))
    environment = build_scenario(ScenarioOptions(name="relay")).environment()
    environment.reset(Task(id="t", seed=1))
    bus = MemoryBus()
    async with TeamRuntime(plan, ScriptedEngine(answer, ("a",)), bus, adapters={"last": "a"}) as runtime:

        async def decide(point: DecisionPoint) -> Payload:
            if point.agent == "imagining":
                await runtime.sample_locally(point, 9, episode="e")
            return (await runtime.ask(point, seeds, episode="e", temperature=0.5))[0].payload

        await runtime.play("e", environment, decide, lambda turn, flow, step: None)
    await bus.close()


def said(prompt: str, adapter: str | None, seed: int) -> str:
    return "private"


async def test_an_episode_is_turns_of_looks_agents_and_acts(tmp_path: Path) -> None:
    with open_tracing(tmp_path, process="p", most=99):
        await play(PAIR, said)
    agents = [line.format(name) for name in ("first", "last") for line in AGENT]
    assert tree_of(tmp_path) == [
        "invoke_workflow pair",
        "  turn 0",
        *(line.format("look") for line in WORLD),
        *agents,
        *(line.format("act") for line in WORLD),
    ]


async def test_agents_and_engine_calls_have_the_attributes_of_the_conventions(tmp_path: Path) -> None:
    with open_tracing(tmp_path, process="p", most=99):
        await play(PAIR, said, seeds=(7, 8))
    spans = spans_in(tmp_path)
    operations = names.GenAiOperationNameValues
    assert one(spans, "invoke_workflow pair").attributes == {
        names.GEN_AI_OPERATION_NAME: operations.INVOKE_WORKFLOW.value,
        names.GEN_AI_AGENT_NAME: "pair",
        names.GEN_AI_CONVERSATION_ID: "e",
    }
    # "Q>" is two characters, hence tokens; of each answer four tokens fit
    assert one(spans, "invoke_agent last").attributes == {
        names.GEN_AI_OPERATION_NAME: operations.INVOKE_AGENT.value,
        names.GEN_AI_PROVIDER_NAME: "mas",
        names.GEN_AI_AGENT_NAME: "last",
        names.GEN_AI_CONVERSATION_ID: "e",
        names.GEN_AI_REQUEST_TEMPERATURE: 0.5,
        names.GEN_AI_USAGE_INPUT_TOKENS: 2,
        names.GEN_AI_USAGE_OUTPUT_TOKENS: 8,
        names.GEN_AI_RESPONSE_FINISH_REASONS: ("length", "length"),
        **{"mas.role": "last", "mas.turn": 0, "mas.visit": 0, "mas.seeds": (7, 8)},
        **{"mas.candidates": 2, "mas.answered_by": "last"},
    }
    call = [span for span in spans if span.name == "text_completion"][-1]
    assert call.attributes == {
        names.GEN_AI_OPERATION_NAME: operations.TEXT_COMPLETION.value,
        names.GEN_AI_PROVIDER_NAME: "mas",
        names.GEN_AI_REQUEST_TEMPERATURE: 0.5,
        names.GEN_AI_REQUEST_MAX_TOKENS: 4,
        names.GEN_AI_REQUEST_CHOICE_COUNT: 2,
        names.GEN_AI_USAGE_INPUT_TOKENS: 2,
        names.GEN_AI_USAGE_OUTPUT_TOKENS: 8,
        names.GEN_AI_RESPONSE_FINISH_REASONS: ("length", "length"),
        **{"mas.seeds": (7, 8), "mas.adapter.name": "a", "mas.adapter.version": 0},
    }


async def test_what_was_said_is_recorded_only_where_it_is_asked_for(tmp_path: Path) -> None:
    for folder, shows_content in (("plain", False), ("content", True)):
        with open_tracing(tmp_path / folder, process="p", most=99, shows_content=shows_content):
            await play(PAIR, said)
    plain = (tmp_path / "plain" / "spans.jsonl").read_text()
    assert "priv" not in plain
    assert "Q>" not in plain
    call = next(span for span in spans_in(tmp_path / "content") if span.name == "text_completion")
    assert call.attributes[names.GEN_AI_INPUT_MESSAGES] == (
        '[{"role":"user","parts":[{"type":"text","content":"Q>"}]}]'
    )
    assert call.attributes[names.GEN_AI_OUTPUT_MESSAGES] == (
        '[{"role":"assistant","parts":[{"type":"text","content":"priv"}],"finish_reason":"length"}]'
    )


async def test_tries_and_stand_ins_are_events_of_the_agent_without_the_error_s_text(tmp_path: Path) -> None:
    def broken(prompt: str, adapter: str | None, seed: int) -> str:
        if adapter == "a":
            raise EngineError("the secret is 7")
        return "x"

    policies = {"last": {"retries": {"attempts": 2, "wait_s": 0.001}, "fallback": "spare"}}
    roles = {"first": SPEAKER, "last": SPEAKER | {"emits": "action"}, "spare": SPEAKER | {"emits": "action"}}
    agents = {"first": "first", "last": "last"}
    with open_tracing(tmp_path, process="p", most=99):
        await play({**PAIR, "roles": roles, "agents": agents, "policies": policies}, broken)
    spans = spans_in(tmp_path)
    agent = one(spans, "invoke_agent last")
    assert agent.error is None
    assert agent.attributes["mas.answered_by"] == "spare"
    events = [(event.name, event.attributes.get("mas.attempt.cause")) for event in agent.events]
    assert events[-1] == ("attempt.succeeded", None)
    assert set(events[:-1]) == {("attempt.failed", "EngineError")}
    assert agent.events[-1].attributes["mas.attempt.purpose"] == "fallback"
    assert {span.error for span in spans if span.name == "process pair/last"} == {"EngineError"}
    assert "secret" not in (tmp_path / "spans.jsonl").read_text()


async def test_a_failed_agent_fails_its_turn_and_its_episode(tmp_path: Path) -> None:
    def broken(prompt: str, adapter: str | None, seed: int) -> str:
        raise EngineError("no")

    with open_tracing(tmp_path, process="p", most=99), pytest.raises(AgentFailed):
        await play(PAIR, broken)
    spans = spans_in(tmp_path)
    assert one(spans, "invoke_agent first").error == "EngineError"
    assert one(spans, "turn 0").error == "AgentFailed"
    assert one(spans, "invoke_workflow pair").error == "AgentFailed"


WAITING = {
    "name": "waiting",
    "roles": dict.fromkeys(("quick", "slow"), SPEAKER) | {"judge": SPEAKER | {"emits": "action"}},
    "edges": ["start -> quick", "start -> slow", "quick -> judge", "slow -> judge", "judge -> done"],
    "output": "judge",
}


@pytest.mark.parametrize("timeout_s", [None, 0.05])
async def test_joins_that_wait_and_expire_are_events_of_the_turn(timeout_s: float | None, tmp_path: Path) -> None:
    class Slow(ScriptedEngine):
        async def generate(self, request):
            if request.adapter == "a":
                await asyncio.sleep(0.02 if timeout_s is None else 0.3)
            return await super().generate(request)

    spec = load_team({**WAITING, "joins": {"judge": {"timeout_s": timeout_s}} if timeout_s else {}})
    plan = compile_team(spec, build_roles(spec))
    environment = build_scenario(ScenarioOptions(name="relay")).environment()
    environment.reset(Task(id="t", seed=1))
    bus = MemoryBus()
    with open_tracing(tmp_path, process="p", most=99):
        async with TeamRuntime(plan, Slow(said, ("a",)), bus, adapters={"slow": "a"}) as runtime:

            async def decide(point: DecisionPoint) -> Payload:
                return (await runtime.ask(point, (1,), episode="e"))[0].payload

            await runtime.play("e", environment, decide, lambda turn, flow, step: None)
    await bus.close()
    spans = spans_in(tmp_path)
    waiting, over = one(spans, "turn 0").events
    assert (waiting.name, waiting.attributes) == ("join.waiting", {"mas.join": "judge"})
    assert over.name == ("join.decided" if timeout_s is None else "join.expired")
    assert over.attributes["mas.join"] == "judge"
    assert over.attributes["mas.join.waited_s"] >= (timeout_s or 0.0)


async def test_a_play_out_is_an_agent_that_was_imagined_and_sends_nothing(tmp_path: Path) -> None:
    team = {**PAIR, "agents": {"imagining": "first", "last": "last"}}
    team["edges"] = ["start -> imagining", "imagining -> last", "last -> done"]
    with open_tracing(tmp_path, process="p", most=99):
        await play(team, said)
    tree = tree_of(tmp_path)
    at = tree.index("    invoke_agent imagining")
    assert tree[at : at + 3] == ["    invoke_agent imagining", "      text_completion", "    invoke_agent imagining"]
    imagined = [span.attributes.get("mas.imagined") for span in spans_in(tmp_path) if "imagining" in span.name]
    assert imagined.count(True) == 1


async def test_a_team_that_looks_again_without_an_act_is_in_its_next_turn(tmp_path: Path) -> None:
    async def nothing() -> None:
        """No environment."""

    with open_tracing(tmp_path, process="p", most=99) as tracer:
        spans = TeamSpans(tracer, "pair", is_distributed=False)

        async def played() -> None:
            await spans.world("look", "e", 0, nothing())
            await spans.world("look", "e", 1, nothing())
            await spans.world("act", "e", 1, nothing())

        await spans.episode("e", played())
    assert tree_of(tmp_path) == ["invoke_workflow pair", "  turn 0", "    look", "  turn 1", "    look", "    act"]


async def test_without_a_tracer_a_runtime_wraps_nothing() -> None:
    spec = load_team({**PAIR})
    bus, engine = MemoryBus(), ScriptedEngine(said, ("a",))
    async with TeamRuntime(compile_team(spec, build_roles(spec)), engine, bus, adapters={}) as runtime:
        assert runtime._spans is None
        assert runtime._client._bus is bus
        assert {member.engine for member in runtime._members.values()} == {engine}
    await bus.close()


def test_a_model_is_named_as_its_server_or_its_base_is(tmp_path: Path) -> None:
    engine = ScriptedEngine(said)
    assert model_name(engine) is None
    engine.origin = Origin("Qwen/Qwen3-0.6B")
    assert model_name(engine) == "Qwen/Qwen3-0.6B"
    engine.origin = Origin(str(tmp_path))
    assert model_name(engine) == tmp_path.name
    engine.model = "gpt"
    assert model_name(engine) == "gpt"


async def test_a_stream_is_one_span_also_where_it_is_closed_early(tmp_path: Path) -> None:
    engine = ScriptedEngine(said, ("a",))
    with open_tracing(tmp_path, process="p", most=99) as tracer:
        traced = TracedEngine(engine, tracer, chats=True)
        request = EngineContract().request(engine, seeds=(1,), max_tokens=4)
        whole = [piece async for piece in traced.stream(request)]
        pieces: AsyncGenerator = traced.stream(request)
        await anext(pieces)
        await pieces.aclose()
    assert len(whole) == 4
    first, second = spans_in(tmp_path)
    assert (first.name, first.attributes[names.GEN_AI_REQUEST_STREAM]) == ("chat", True)
    assert first.attributes[names.GEN_AI_USAGE_OUTPUT_TOKENS] == 4
    assert second.attributes[names.GEN_AI_USAGE_OUTPUT_TOKENS] == 1


class TestTracedEngine(EngineContract):
    draws = False

    @pytest.fixture(autouse=True)
    def _traced(self, tmp_path: Path):
        with open_tracing(tmp_path, process="p", most=99) as tracer:
            self.tracer = tracer
            yield

    async def make_engine(self) -> Engine:
        self.inner = ScriptedEngine(lambda prompt, adapter, seed: f"{len(prompt)}{adapter}{seed % 100}", ("a", "b"))
        return TracedEngine(self.inner, self.tracer, chats=False)

    async def publish_again(self, engine: Engine) -> AdapterRef:
        return self.inner.publish("a")
