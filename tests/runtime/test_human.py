"""People as members: their questions lie open until somebody answers what the role can read."""

import asyncio
import os
import pty

import msgspec
import pytest
from rich.console import Console
from test_policies import PAIR, SPEAKER, Table, at_once, table

from mas.bus.memory import MemoryBus
from mas.core.environment import Observation
from mas.core.errors import AgentFailed, ConfigError, GraphError, RefusedRequest
from mas.core.messages import Envelope, Note
from mas.core.role import EarlierCall, RoleSpec, View
from mas.graph.load import load_team
from mas.graph.plan import compile_team
from mas.roles import build_role, build_roles
from mas.runtime.human import HumanDesk, HumanQuestion
from mas.runtime.team import TeamRuntime
from mas.testing.scripted import ScriptedEngine
from mas.training.terminal import TerminalDesk

PERSON = SPEAKER | {"voice": "human", "trainable": False}
WITH_A_PERSON = {"roles": {"first": PERSON | {"choices": ["left", "right"]}, "last": PAIR["roles"]["last"]}}
TWO_PEOPLE = {
    "roles": {"a": PERSON, "b": PERSON, "last": SPEAKER | {"emits": "action"}},
    "edges": ["start -> a", "start -> b", "a -> last", "b -> last", "last -> done"],
}


async def lying(desk: HumanDesk, number: int) -> tuple[HumanQuestion, ...]:
    for _ in range(1000):
        if len(desk.questions()) == number:
            return desk.questions()
        await asyncio.sleep(0)
    raise AssertionError(f"{desk.questions()} lie on the desk, not {number}")


def play(sitting: Table) -> "asyncio.Task[None]":
    return asyncio.create_task(sitting.play(), name="play")


async def test_the_answer_of_a_person_is_the_agents_output() -> None:
    desk = HumanDesk()
    async with table(at_once, {}, desk=desk, **WITH_A_PERSON) as sitting:
        playing = play(sitting)
        (question,) = await lying(desk, 1)
        assert (question.team, question.agent, question.role) == ("pair", "first", "first")
        assert (question.episode, question.turn, question.choices) == ("e", 0, ("left", "right"))
        assert msgspec.json.decode(msgspec.json.encode(question), type=HumanQuestion) == question
        desk.answer(question.id, "left")
        await lying(desk, 0)
        while not playing.done():
            for more in desk.questions():
                desk.answer(more.id, "right")
            await asyncio.sleep(0)
        await playing
        assert sitting.flows[0].own("first")[0].content == "left"
        assert sitting.engine.calls == ["last"] * len(sitting.flows)


async def test_a_person_with_a_history_is_shown_what_was_asked_and_answered() -> None:
    desk, spec = HumanDesk(), RoleSpec.model_validate(PERSON | {"ask": "Is {x} even?", "history": 2})
    one, two = (View(observation=Observation({"x": x})) for x in "12")
    view = msgspec.structs.replace(two, past=(EarlierCall(one, Note(text="no")),))
    envelope = Envelope(id="q", kind="ask", source="run", target="t/a", payload=Note(text=""))
    asking = asyncio.create_task(desk.ask(envelope, build_role("a", spec), view), name="ask")
    (question,) = await lying(desk, 1)
    assert question.text == "Is 1 even?\n\nYou answered: no\n\nIs 2 even?"
    desk.answer(question.id, "yes")
    assert await asking == "yes"


async def test_what_the_role_cannot_read_is_refused_and_the_question_stays() -> None:
    desk = HumanDesk()
    async with table(at_once, {}, desk=desk, **WITH_A_PERSON) as sitting:
        playing = play(sitting)
        (question,) = await lying(desk, 1)
        with pytest.raises(RefusedRequest, match=r"'up' is not possible: is none of the choices"):
            desk.answer(question.id, "up")
        assert desk.questions() == (question,)
        with pytest.raises(RefusedRequest, match="no question '9' is open"):
            desk.answer("9", "left")
        playing.cancel()
        await lying(desk, 0)


async def test_several_people_are_asked_at_once_and_answer_in_any_order() -> None:
    desk = HumanDesk()
    async with table(at_once, {}, desk=desk, **TWO_PEOPLE) as sitting:
        playing = play(sitting)
        for question in reversed(await lying(desk, 2)):
            desk.answer(question.id, f"I am {question.agent}")
        for _ in range(1000):
            if sitting.flows:
                break
            await asyncio.sleep(0)
        assert [sitting.flows[0].own(name)[0].content for name in "ab"] == ["I am a", "I am b"]
        playing.cancel()


def test_a_team_with_a_person_needs_a_desk() -> None:
    spec = load_team(PAIR | WITH_A_PERSON)
    engine = ScriptedEngine(lambda *_: "x")
    with pytest.raises(ConfigError, match="role 'first' is played by a person"):
        TeamRuntime(compile_team(spec, build_roles(spec)), engine, MemoryBus(), adapters={})


@pytest.mark.parametrize("more", [{"trainable": True}, {"adapter": "a"}, {"peer": "p"}])
def test_a_person_is_not_trained_and_has_no_adapter(more: dict[str, object]) -> None:
    with pytest.raises(GraphError, match="plays this role"):
        load_team(PAIR | {"roles": {"first": PERSON | more, "last": SPEAKER}})


async def test_at_the_terminal_lines_answer_the_oldest_question_until_it_is_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    end, begin = os.pipe()
    desk = TerminalDesk(Console(), end)
    async with table(at_once, {}, desk=desk, **WITH_A_PERSON) as sitting:
        playing = play(sitting)
        await lying(desk, 1)
        os.write(begin, b"up\nle")
        os.write(begin, b"ft\n" + b"right\n" * 20)
        os.close(begin)
        await playing
        assert sitting.flows[0].own("first")[0].content == "left"
        assert all(flow.own("first")[0].content == "right" for flow in sitting.flows[1:])
    os.close(end)
    printed = capsys.readouterr().out
    assert "you are first" in printed
    assert "is none of the choices" in " ".join(printed.split())


async def test_what_models_said_cannot_steer_the_terminal_of_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    end, begin = os.pipe()
    desk, spec = TerminalDesk(Console(width=200), end), RoleSpec.model_validate(PERSON | {"ask": "Is {x} even?"})
    view = View(observation=Observation({"x": "\x1b]52;c;eA==\x07\x9b2J\u202e2"}))
    envelope = Envelope(id="q", kind="ask", source="run", target="t/a", payload=Note(text=""))
    asking = asyncio.create_task(desk.ask(envelope, build_role("a", spec), view), name="ask")
    await lying(desk, 1)
    os.write(begin, b"yes\n")
    assert await asking == "yes"
    assert r"Is \x1b]52;c;eA==\x07\x9b2J\u202e2 even?" in capsys.readouterr().out
    os.close(begin)
    os.close(end)


async def test_an_answer_of_several_lines_has_a_backslash_at_the_end_of_all_but_the_last() -> None:
    end, begin = os.pipe()
    desk = TerminalDesk(Console(quiet=True), end)
    free = PERSON | {"choices": ()}
    with_a_person = WITH_A_PERSON | {"roles": {**WITH_A_PERSON["roles"], "first": free}}
    async with table(at_once, {}, desk=desk, **with_a_person) as sitting:
        playing = play(sitting)
        await lying(desk, 1)
        os.write(begin, b"one \\\n  two\\")
        os.write(begin, b"\nthree\n" + b"right\n" * 20)
        os.close(begin)
        await playing
    os.close(end)
    assert sitting.flows[0].own("first")[0].content == "one \n  two\nthree"


async def test_at_the_terminal_a_question_that_nobody_waits_for_any_more_is_said_to_be_gone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    end, begin = os.pipe()
    desk = TerminalDesk(Console(), end)
    async with table(at_once, {}, desk=desk, **WITH_A_PERSON) as sitting:
        playing = play(sitting)
        await lying(desk, 1)
        os.write(begin, b"left\n")
        await playing
        assert "nobody waits" not in capsys.readouterr().out
    async with table(at_once, {}, desk=desk, **WITH_A_PERSON) as sitting:
        playing = play(sitting)
        await lying(desk, 1)
        playing.cancel()
        await lying(desk, 0)
    os.close(begin)
    os.close(end)
    assert capsys.readouterr().out.count("nobody waits for this answer any more") == 1


async def test_a_terminal_that_is_closed_is_an_input_that_has_ended() -> None:
    keyboard, end = pty.openpty()
    desk = TerminalDesk(Console(quiet=True), end)
    async with table(at_once, {}, desk=desk, **WITH_A_PERSON) as sitting:
        playing = play(sitting)
        await lying(desk, 1)
        os.close(keyboard)
        with pytest.raises(AgentFailed, match="the input ended"):
            await asyncio.wait_for(playing, 30)
    os.close(end)


async def test_a_line_that_was_typed_too_late_does_not_answer_the_next_question() -> None:
    keyboard, end = pty.openpty()
    desk = TerminalDesk(Console(quiet=True), end)
    async with table(at_once, {}, desk=desk, **WITH_A_PERSON) as sitting:
        playing = play(sitting)
        await lying(desk, 1)
        playing.cancel()
        await lying(desk, 0)
        os.write(keyboard, b"left\n")
        playing = play(sitting)
        await lying(desk, 1)
        os.write(keyboard, b"right\n" * 20)
        await playing
        assert all(flow.own("first")[0].content == "right" for flow in sitting.flows)
    os.close(keyboard)
    os.close(end)


async def test_an_input_that_ends_is_the_end_of_the_turn() -> None:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    async with table(at_once, {}, desk=TerminalDesk(Console(quiet=True), descriptor), **WITH_A_PERSON) as sitting:
        with pytest.raises(AgentFailed, match="the input ended before"):
            await sitting.play()
    os.close(descriptor)
