"""What an agent was asked before and answered, in this team turn and in earlier ones."""

import pickle
from collections.abc import Callable, Mapping

import pytest
from words import WordWorld

from mas.bus.memory import MemoryBus
from mas.core.environment import Observation, Task
from mas.core.messages import Items, Note, Payload
from mas.core.role import EarlierCall
from mas.graph.load import load_team
from mas.graph.plan import TeamPlan, compile_team
from mas.roles import build_roles
from mas.runtime.flow import Flow
from mas.runtime.play import DecisionPoint
from mas.runtime.team import TeamRuntime
from mas.serving.model_text import MessageTokenizer, ModelLimits
from mas.testing.scripted import Answer, ScriptedEngine

SEEN = {name: Observation({"x": "1"}) for name in "ab"}


def loop_plan(**a: object) -> TeamPlan:
    """`b` sends `a` back up to three times."""
    verifier = {"type": "verifier", "accept_text": "on", "reject_text": "again"}
    edges = ["start -> a", "a -> b", "b -> a when reject loop 3", "b -> done when accept"]
    spec = load_team(
        {"name": "loop", "roles": {"a": {"type": "executor", "view": "solo"} | a, "b": verifier | {"view": "solo"}},
         "edges": edges, "joins": {"a": "any"}, "output": "a"}
    )  # fmt: skip
    return compile_team(spec, build_roles(spec))


def say(flow: Flow, agent: str, payload: Payload | str) -> Flow:
    said = flow.plan.roles[agent.split("[")[0]].parse(payload) if isinstance(payload, str) else payload
    return flow.begin(agent).complete(agent, said)


def shown(calls: tuple[EarlierCall, ...]) -> list[tuple[list[str], list[str], str]]:
    """What was heard, what was said before, and the answer, of each call."""
    return [
        ([one.payload.content for one in call.view.messages], [own.content for own in call.view.own],
         call.answer.content)
        for call in calls
    ]  # fmt: skip


def test_earlier_calls_of_a_team_turn_are_shown_with_what_was_heard_then() -> None:
    flow = Flow.start(loop_plan())
    assert flow.view("a", SEEN["a"]).past == ()
    flow = say(say(say(say(flow, "a", "one"), "b", "again"), "a", "two"), "b", "again").begin("a")
    view = flow.view("a", SEEN["a"])
    assert shown(view.past) == [([], [], "one"), (["again"], ["one"], "two")]
    assert [call.view.observation for call in view.past] == [SEEN["a"]] * 2
    assert [own.content for own in view.own] == ["one", "two"]
    assert len(view.messages) == 2


@pytest.mark.parametrize(("spec", "count"), [({"ask": "{x}"}, 0), ({"history": 0}, 0), ({"history": 1}, 1),
                                             ({"history": 5}, 2), ({"history": 5, "ask": "{x}"}, 2)])  # fmt: skip
def test_a_view_has_as_many_earlier_calls_as_its_role_shows(spec: Mapping[str, object], count: int) -> None:
    flow = Flow.start(loop_plan(**spec))
    flow = say(say(say(say(flow, "a", "one"), "b", "again"), "a", "two"), "b", "again").begin("a")
    assert [call.answer.content for call in flow.view("a", SEEN["a"]).past] == ["one", "two"][2 - count :]


def test_the_next_team_turn_remembers_for_roles_with_a_history() -> None:
    plan = loop_plan(history=3)
    first = say(say(say(say(Flow.start(plan), "a", "one"), "b", "again"), "a", "two"), "b", "on")
    past = first.remembered(SEEN)
    assert shown(past["a"]) == [([], [], "one"), (["again"], ["one"], "two")]
    assert set(past) == {"a"}
    later = {name: Observation({"x": "2"}) for name in "ab"}
    second = say(say(Flow.start(plan, past=past), "a", "three"), "b", "again").begin("a")
    view = second.view("a", later["a"])
    assert [call.answer.content for call in view.past] == ["one", "two", "three"]
    assert [call.view.observation.fields["x"] for call in view.past] == ["1", "1", "2"]
    assert [call.view.past for call in view.past] == [()] * 3
    over = say(second.complete("a", Note(text="four")), "b", "on")
    assert [call.answer.content for call in over.remembered(later)["a"]] == ["two", "three", "four"]
    assert Flow.start(loop_plan()).remembered(SEEN) == {}


def test_turns_after_different_calls_are_different_and_pickle() -> None:
    plan = loop_plan(history=3)
    pasts = [say(say(Flow.start(plan), "a", word), "b", "on").remembered(SEEN) for word in ("one", "one", "two")]
    keys = [Flow.start(plan, past=past).key() for past in pasts]
    assert keys[0] == keys[1] != keys[2]
    assert Flow.start(plan).key() not in keys
    again = pickle.loads(pickle.dumps(Flow.start(plan, past=pasts[0])))
    assert again.key() == keys[0]


def test_instances_remember_their_own_items() -> None:
    spec = load_team(
        {"name": "map", "roles": {"p": {"type": "planner", "emits": "items", "view": "solo"},
                                  "w": {"view": "solo", "history": 2}, "e": {"type": "executor", "view": "solo"}},
         "edges": ["start -> p", "p -> w map", "w -> e", "e -> done"], "output": "e"}
    )  # fmt: skip
    plan, seen = compile_team(spec, build_roles(spec)), {name: Observation({"x": "1"}) for name in "pwe"}
    past: Mapping[str, tuple[EarlierCall, ...]] = {}
    for turn in ("1", "2"):
        flow = say(Flow.start(plan, past=past), "p", Items(items=(f"x{turn}", f"y{turn}")))
        flow = flow.begin("w[0]").begin("w[1]")
        view = flow.view("w[1]", seen["w"])
        flow = flow.complete("w[1]", Note(text=f"b{turn}")).complete("w[0]", Note(text=f"a{turn}"))
        past = flow.remembered(seen)
    assert shown(view.past) == [(["y1"], [], "b1")]
    assert {name: [call.answer.content for call in calls] for name, calls in past.items()} == {
        "w[0]": ["a1", "a2"],
        "w[1]": ["b1", "b2"],
    }


class ChatScript(ScriptedEngine):
    """Is sent messages."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.tokenizer = MessageTokenizer()
        self._limits = ModelLimits(vocabulary=MessageTokenizer.size, context=4096)


async def conversations(spec: Mapping[str, object], says: Callable[[str, int], str], turns: int) -> list[list[str]]:
    """What the model is sent at each call of a team of one that plays `turns` team turns, as role: text."""
    team = load_team(
        {"name": "solo", "roles": {"solo": {"type": "executor", "view": "solo", "max_tokens": 9} | spec},
         "edges": ["start -> solo", "solo -> done"], "output": "solo"}
    )  # fmt: skip
    asked: list[list[str]] = []

    def answer(prompt: str, adapter: str | None, seed: int) -> str:
        return says(prompt, seed)

    engine = ChatScript(answer)
    world, bus = WordWorld(turns), MemoryBus()
    world.reset(Task(id="t", seed=0))
    async with TeamRuntime(compile_team(team, build_roles(team)), engine, bus, adapters={}, chats=True) as runtime:

        async def decide(point: DecisionPoint) -> Payload:
            (said,) = await runtime.ask(point, (point.turn,), episode="e")
            asked.append([f"{one['role']}: {one['content']}" for one in engine.tokenizer.messages(said.prompt_ids)])
            return said.payload

        await runtime.play("e", world, decide, lambda *_: None)
    await bus.close()
    return asked


ASK = {"instructions": "Be brief.", "ask": "Said: {said}. Go on.", "history": 2}


async def test_an_episode_is_one_conversation_in_the_models_own_roles() -> None:
    asked = await conversations(ASK, lambda prompt, seed: "abcd"[seed], 4)
    told = "system: Be brief."
    assert asked[0] == [told, "user: Said: . Go on."]
    assert asked[2] == [
        told,
        "user: Said: . Go on.",
        "assistant: a",
        "user: Said: a. Go on.",
        "assistant: b",
        "user: Said: ab. Go on.",
    ]
    assert asked[3][1:4] == ["user: Said: a. Go on.", "assistant: b", "user: Said: ab. Go on."]
    assert len(asked[3]) == 6


async def test_without_a_history_each_team_turn_is_asked_alone() -> None:
    asked = await conversations(ASK | {"history": None}, lambda prompt, seed: "abcd"[seed], 3)
    assert [len(one) for one in asked] == [2, 2, 2]


async def test_thoughts_are_not_repeated_and_failures_are() -> None:
    spec = ASK | {"pattern": "[abc]", "max_tokens": 30}
    asked = await conversations(spec, lambda prompt, seed: ("<think>x</think> a", "oh", "c")[seed], 3)
    assert asked[2][2::2] == ["assistant: a", "assistant: oh"]
    assert asked[2][3] == "user: Said: a. Go on."


def test_the_text_behind_a_payload_reaches_nobody_else() -> None:
    said = Note(text="yes", raw="<think>secret</think> yes")
    flow = Flow.start(loop_plan()).begin("a").complete("a", said)
    (message,) = flow.messages("b")
    assert (message.payload, flow.own("a")) == (Note(text="yes"), (said,))
    assert said.without_raw() == Note(text="yes")
    with pytest.raises(TypeError, match="Own has a field 'raw'"):

        class Own(Payload):
            raw: str
