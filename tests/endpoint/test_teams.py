"""A team as a model: its answer is the action that the runtime plays, and nobody hears how it was found."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from clients import Stuck, client, offer, pieces, playing, problem
from conftest import SMALL, TINY, BaseFor
from loud import loud_adapter

from mas.config.options import ScenarioOptions
from mas.core.errors import ConfigError, GraphError
from mas.core.seeds import derive_seed
from mas.endpoint import TeamModel, build_app
from mas.endpoint.teams import Situation
from mas.runtime.flow import Flow
from mas.runtime.play import DecisionPoint, look, play_turn, team_action
from mas.scenarios import build_scenario
from mas.serving.transformers_engine import TransformersEngine
from mas.testing.scripted import ScriptedEngine

SITUATION = {"goal": "23", "cell": "00", "last": "-", "around": "#.#."}

ABLE = SMALL.model_copy(update={"tiny": TINY.model_copy(update={"steps": 150})})
"""A base that knows enough of the team's work not to pass always."""


def asked(team: str, message: Any, **more: Any) -> dict[str, Any]:
    content = message if isinstance(message, str) else json.dumps(message)
    return {"model": f"team:{team}", "messages": [{"role": "user", "content": content}], **more}


async def greedy_action(model: TeamModel, environment: Any) -> str:
    """One team turn of an environment as the runtime plays it."""

    async def decide(point: DecisionPoint) -> Any:
        (candidate,) = await model.runtime.ask(point, (0,), episode="wanted", temperature=0.0)
        return candidate.payload

    plan = model.runtime.plan
    return team_action(await play_turn(Flow.start(plan), environment, look(plan, environment), 0, decide))


@pytest.mark.parametrize("team", ["team", "solo"])
async def test_a_team_answers_what_the_runtime_plays_on_the_same_observation(base_for: BaseFor, team: str) -> None:
    base = base_for("plan_path", ABLE)
    engine = TransformersEngine(base)
    for number, name in enumerate(("planner", "executor", "verifier", "feedback", "solo")):
        await engine.store.publish(name, loud_adapter(base, number, spread=0.02))
    scenario = build_scenario(ScenarioOptions(name="plan_path"))
    wanted, bodies = [], []
    async with playing(engine, team) as model, client(build_app(offer(engine, teams=[model]))) as asking:
        for index in range(10):
            environment = scenario.environment()
            environment.reset(scenario.task("eval", index))
            wanted.append(await greedy_action(model, environment))
            bodies.append(asked(model.name, dict(environment.observe("solo").fields), temperature=0))
        answers = await asyncio.gather(*[asking.post("/v1/chat/completions", json=body) for body in bodies])
    choices = [answer.json()["choices"][0] for answer in answers]
    assert [choice["message"]["content"] for choice in choices] == wanted
    assert [choice["passed"] for choice in choices] == [not action for action in wanted]
    assert len(set(wanted)) > 1
    await engine.close()


def member(prompt: str, adapter: str | None, seed: int) -> str:
    """A team of plan_path that accepts the first proposal."""
    return {"P": "23", "E": "D", "V": "y", "F": "U"}[prompt[0]]


async def test_each_member_reads_its_own_fields_and_the_tokens_of_all_are_counted() -> None:
    engine = ScriptedEngine(member)
    async with playing(engine) as model, client(build_app(offer(engine, teams=[model]))) as asking:
        answer = (await asking.post("/v1/chat/completions", json=asked("plan_path", SITUATION))).json()
    prompts = [engine.tokenizer.decode(request.prompt_ids) for request in engine.requests]
    assert prompts == ["P23>", "E00-23;>", "V#.#.D>"]
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "D"}
    assert answer["choices"][0]["passed"] is False
    # 4 + 8 + 7 prompt tokens; the planner's two digits, one move, one verdict
    assert answer["usage"] == {"prompt_tokens": 19, "completion_tokens": 4, "total_tokens": 23}
    assert "23" not in json.dumps(answer["choices"]), "what the planner said stays in the team"


async def test_a_team_that_passes_says_so_and_invents_no_text() -> None:
    engine = ScriptedEngine(lambda prompt, *_: "n" if prompt[0] == "V" else member(prompt, None, 0))
    async with playing(engine) as model, client(build_app(offer(engine, teams=[model]))) as asking:
        body = asked("plan_path", SITUATION)
        (whole,) = (await asking.post("/v1/chat/completions", json=body)).json()["choices"]
        (chunk,) = pieces(await asking.post("/v1/chat/completions", json=body | {"stream": True}))
    assert (whole["message"]["content"], whole["passed"], whole["finish_reason"]) == ("", True, "stop")
    assert (chunk["choices"][0]["delta"]["content"], chunk["choices"][0]["passed"]) == ("", True)


async def test_a_streamed_team_comes_in_one_chunk_with_its_usage_behind() -> None:
    engine = ScriptedEngine(member)
    async with playing(engine) as model, client(build_app(offer(engine, teams=[model]))) as asking:
        body = asked("plan_path", SITUATION, stream=True, stream_options={"include_usage": True}, n=2)
        chunk, last = pieces(await asking.post("/v1/chat/completions", json=body))
    assert [choice["delta"]["content"] for choice in chunk["choices"]] == ["D", "D"]
    assert all(choice["finish_reason"] == "stop" for choice in chunk["choices"])
    assert last["usage"]["completion_tokens"] == 8


SAID = [
    {"agent": "planner", "content": "23", "failure": None},
    {"agent": "executor", "content": "D", "failure": None},
    {"agent": "verifier", "content": "y", "failure": None},
]


async def test_what_members_say_is_told_where_the_server_shows_it() -> None:
    engine = ScriptedEngine(member)
    body = asked("plan_path", SITUATION, return_messages=True, n=2)
    async with playing(engine) as model:
        served = replace(offer(engine, teams=[model]), shows_messages=True)
        async with client(build_app(served)) as asking:
            whole = (await asking.post("/v1/chat/completions", json=body)).json()
            *members, last = pieces(await asking.post("/v1/chat/completions", json=body | {"stream": True}))
            silent = await asking.post("/v1/chat/completions", json=asked("plan_path", SITUATION))
    assert [choice["messages"] for choice in whole["choices"]] == [SAID, SAID]
    assert "messages" not in silent.json()["choices"][0]
    assert [choice["messages"] for choice in last["choices"]] == [SAID, SAID]
    assert all(chunk["choices"] == [] for chunk in members)
    for index in (0, 1):
        parts = [chunk["member"] for chunk in members if chunk["member"]["index"] == index]
        assert [part["agent"] for part in parts] == ["planner", "planner", "executor", "verifier"]
        assert "".join(part["content"] for part in parts) == "23Dy", "token by token"


async def test_what_members_say_stays_in_the_team_unless_the_server_shows_it() -> None:
    engine = ScriptedEngine(member, ("a",))
    async with playing(engine) as model:
        body = asked("plan_path", SITUATION, return_messages=True)
        async with client(build_app(offer(engine, teams=[model]))) as asking:
            error = problem(await asking.post("/v1/chat/completions", json=body), 403)
            assert "--show-messages" in error["message"]
            error = problem(await asking.post("/v1/chat/completions", json=body | {"model": "a"}), 400)
            assert "for teams" in error["message"]
    assert not engine.requests


FIELDS = {"goal": "{text}", "cell": "00", "last": "-", "around": "#.#."}


def with_text(text: Any) -> dict[str, Any]:
    """The team of plan_path, that plain texts may ask."""
    spec = build_scenario(ScenarioOptions(name="plan_path")).teams["team"]
    return spec.model_dump(mode="json", exclude={"text"}) | {"text": text}


async def test_a_plain_text_becomes_the_fields_that_the_team_says() -> None:
    engine = ScriptedEngine(member)
    async with playing(engine, with_text(FIELDS)) as model, client(build_app(offer(engine, teams=[model]))) as asking:
        for message in ("23", json.dumps(SITUATION), json.dumps({"goal": "23"})):
            answer = await asking.post("/v1/chat/completions", json=asked("plan_path", message))
            if answer.status_code != 200:
                assert "The field 'cell' is missing" in problem(answer, 400)["message"]
    prompts = [engine.tokenizer.decode(request.prompt_ids) for request in engine.requests]
    assert prompts == ["P23>", "E00-23;>", "V#.#.D>"] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FIELDS | {"gaol": "x"}, "'gaol', which no member sees. Did you mean 'goal'"),
        ("goal", "'text' leaves out around, cell, last: give them, too"),
        (FIELDS | {"goal": "11"}, "leaves the text out"),
    ],
)
async def test_a_text_that_does_not_make_all_fields_is_refused(text: Any, message: str) -> None:
    with pytest.raises((ConfigError, GraphError), match=message):
        async with playing(ScriptedEngine(member), with_text(text)):
            pass


async def test_a_raw_prompt_asks_a_team_too() -> None:
    engine = ScriptedEngine(member)
    async with playing(engine) as model, client(build_app(offer(engine, teams=[model]))) as asking:
        body = {"model": "team:plan_path", "prompt": json.dumps(SITUATION)}
        assert (await asking.post("/v1/completions", json=body)).json()["choices"][0]["text"] == "D"
        problem(await asking.post("/v1/completions", json=body | {"prompt": [1, 2]}), 400)


async def test_the_seed_reaches_every_member_and_temperature_only_when_given() -> None:
    engine = ScriptedEngine(member)
    async with playing(engine) as model, client(build_app(offer(engine, teams=[model]))) as asking:
        for more in ({"seed": 5}, {"seed": 5, "temperature": 0}, {"seed": 5, "temperature": 0.5}):
            await asking.post("/v1/chat/completions", json=asked("plan_path", SITUATION, **more))
    assert [request.sampling.temperature for request in engine.requests] == [1.0] * 3 + [0.0] * 3 + [0.5] * 3
    seeds = [(derive_seed("single", 5, 0, agent, 0),) for agent in ("planner", "executor", "verifier")]
    assert [request.seeds for request in engine.requests] == seeds * 3


WRONG = [
    ("go to 23", "read fields, not plain text"),
    ({**SITUATION, "goal": None}, "every field is a text"),
    ({**SITUATION, "goal": 23}, "The field 'goal' is 23; every field is a text"),
    ({"goal": "23"}, "The field 'cell' is missing"),
    ({**SITUATION, "gaol": "23"}, "Did you mean 'goal'"),
    ({**SITUATION, "plnner": {"goal": "11"}}, "Did you mean 'planner'"),
    ('{"goal": "\\ud800"}', "read fields, not plain text"),
]


@pytest.mark.parametrize(("message", "text"), WRONG, ids=[str(message)[:30] for message, _ in WRONG])
async def test_a_message_that_is_no_situation_is_refused_with_the_fields_and_an_example(
    message: Any, text: str
) -> None:
    engine = ScriptedEngine(member)
    async with playing(engine) as model, client(build_app(offer(engine, teams=[model]))) as asking:
        error = problem(await asking.post("/v1/chat/completions", json=asked("plan_path", message)), 400)
    assert text in error["message"]
    assert "around, cell, goal, last" in error["message"]
    assert model.example in error["message"]
    assert engine.requests == []


@pytest.mark.parametrize(
    "more",
    [
        {"max_tokens": 5}, {"stop": "x"}, {"stop_token_ids": [1]}, {"ignore_eos": True}, {"logprobs": True},
        {"return_token_ids": True},
    ],
)  # fmt: skip
async def test_what_members_have_of_their_own_cannot_be_asked_of_a_team(more: dict[str, Any]) -> None:
    engine = ScriptedEngine(member)
    async with playing(engine) as model, client(build_app(offer(engine, teams=[model]))) as asking:
        error = problem(await asking.post("/v1/chat/completions", json=asked("plan_path", SITUATION, **more)), 400)
    assert error["param"] in more


@pytest.mark.parametrize(
    "more", [{"stop": []}, {"top_k": -1}, {"response_format": {"type": "text"}}, {"tools": [], "tool_choice": "none"}]
)
async def test_what_changes_nothing_can_be_asked_of_a_team(more: dict[str, Any]) -> None:
    engine = ScriptedEngine(member)
    async with playing(engine) as model, client(build_app(offer(engine, teams=[model]))) as asking:
        answer = await asking.post("/v1/chat/completions", json=asked("plan_path", SITUATION, **more))
    assert answer.status_code == 200, answer.text


async def test_a_conversation_without_a_user_is_no_situation() -> None:
    engine = ScriptedEngine(member)
    async with playing(engine) as model, client(build_app(offer(engine, teams=[model]))) as asking:
        body = {"model": "team:plan_path", "messages": [{"role": "system", "content": "hi"}]}
        assert "no message of the user" in problem(await asking.post("/v1/chat/completions", json=body), 400)["message"]


async def test_the_example_of_the_models_list_is_a_held_out_task_and_can_be_asked() -> None:
    engine = ScriptedEngine(member)
    async with playing(engine) as model, client(build_app(offer(engine, teams=[model]))) as asking:
        card = (await asking.get("/v1/models/team:plan_path")).json()
        answer = await asking.post("/v1/chat/completions", json=asked("plan_path", card["example"]))
    world = build_scenario(ScenarioOptions(name="plan_path"))
    environment = world.environment()
    environment.reset(world.task("eval", 0))
    assert json.loads(card["example"]) == environment.observe("solo").fields
    assert (card["kind"], card["owned_by"], answer.status_code) == ("team", "mas", 200)


TALKERS = {
    "name": "talkers",
    "roles": {"planner": {"type": "planner"}, "executor": {"type": "executor"}},
    "edges": ["start -> planner", "planner -> executor", "executor -> done"],
    "output": "executor",
}


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("sort the list", "task: sort the list"),
        ('{"task": "{}"}', "task: {}"),
        ("42", "task: 42"),
        ("[1]", "task: [1]"),
    ],
)
async def test_plain_text_goes_to_every_member_of_a_team_that_reads_no_fields(message: str, fields: str) -> None:
    engine = ScriptedEngine(lambda prompt, *_: "do it" if prompt.endswith("planner:") else "done")
    async with playing(engine, TALKERS) as model, client(build_app(offer(engine, teams=[model]))) as asking:
        answer = await asking.post("/v1/chat/completions", json=asked("talkers", message))
    prompts = [engine.tokenizer.decode(request.prompt_ids) for request in engine.requests]
    assert prompts == [f"{fields}\nplanner:", f"{fields}\nplanner: do it\nexecutor:"]
    assert answer.json()["choices"][0]["message"]["content"] == "done"


async def test_a_team_that_chats_takes_plain_text_although_it_has_templates() -> None:
    engine = ScriptedEngine(lambda prompt, *_: "y" if "verifier" in prompt else "D" if "executor" in prompt else "23")
    async with playing(engine, chats=True) as model, client(build_app(offer(engine, teams=[model]))) as asking:
        answer = await asking.post("/v1/chat/completions", json=asked("plan_path", "you stand in the dark"))
        wrong = await asking.post("/v1/chat/completions", json=asked("plan_path", {"darkness": "all"}))
    assert answer.status_code == 200
    shown = engine.tokenizer.decode(engine.requests[0].prompt_ids)
    assert "task: you stand in the dark" in shown
    assert "or plain text for all members as the field 'task'" in problem(wrong, 400)["message"]


def solving(view: str, ask: str) -> dict[str, Any]:
    """A team of one agent that is asked with some fields of a view."""
    roles = {"solver": {"type": "executor", "view": view, "ask": ask}}
    return {"name": "solving", "roles": roles, "edges": ["start -> solver", "solver -> done"], "output": "solver"}


async def test_a_plain_text_is_the_only_field_that_a_team_which_chats_is_asked_with() -> None:
    engine = ScriptedEngine(lambda *_: "7")
    async with (
        playing(engine, solving("solver", "{question} Be brief."), scenario="questions", chats=True) as model,
        client(build_app(offer(engine, teams=[model]))) as asking,
    ):
        answer = await asking.post("/v1/chat/completions", json=asked("solving", "How many days has a week?"))
        named = await asking.post("/v1/chat/completions", json=asked("solving", {"question": "Days?"}))
        wrong = await asking.post("/v1/chat/completions", json=asked("solving", {"task": "Days?"}))
    assert [found.json()["choices"][0]["message"]["content"] for found in (answer, named)] == ["7", "7"]
    texts = [engine.tokenizer.decode(request.prompt_ids) for request in engine.requests]
    assert ["How many days has a week? Be brief." in texts[0], "Days? Be brief." in texts[1]] == [True, True]
    assert "or plain text for all members as 'question'" in problem(wrong, 400)["message"]


async def test_a_team_that_chats_and_asks_with_several_fields_wants_them_by_name() -> None:
    engine, team = ScriptedEngine(lambda *_: "D"), solving("planner", "Where is {goal}?")
    async with playing(engine, team, chats=True) as model, client(build_app(offer(engine, teams=[model]))) as asking:
        wrong = await asking.post("/v1/chat/completions", json=asked("solving", "it is dark"))
    assert "The members of this team read fields, not plain text." in problem(wrong, 400)["message"]
    assert engine.requests == []


async def test_views_that_differ_in_one_field_are_told_apart_by_their_names() -> None:
    async with playing(ScriptedEngine(member), TALKERS) as talkers:
        example = {"planner": {"hand": "AK", "pot": "9"}, "executor": {"hand": "QJ", "pot": "9"}}
        model = TeamModel(talkers.runtime, example)
        assert json.loads(model.example) == {"hand": "AK", "pot": "9", "executor": {"hand": "QJ"}}
        situation = model.situation(model.example)
        assert {view: situation.observe(view).fields for view in example} == example


def test_a_situation_is_a_world_of_one_turn() -> None:
    situation = Situation("team", {"planner": {"goal": "23"}})
    assert situation.to_move() == ("team",)
    before = situation.clone()
    situation.step({"team": "D"})
    assert (situation.to_move(), before.to_move()) == ((), ("team",))
    assert "23" in situation.render()


async def test_a_client_that_leaves_stops_its_team_and_no_other() -> None:
    engine = Stuck()
    engine.answer = member
    async with playing(engine) as model:
        leaving, staying = [asyncio.create_task(model.turn(model.example, n, None), name="turn") for n in range(2)]
        for _ in range(2):
            await engine.asked.acquire()
        leaving.cancel()
        await engine.cancelled.acquire()
        engine.released.set()
        assert (await staying).action == "D"
        await asyncio.wait([leaving])
        assert not model.runtime.world.episodes, "no world of a turn that is over is kept"


async def test_an_error_inside_a_team_is_logged_and_its_text_told_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def broken(prompt: str, adapter: str | None, seed: int) -> str:
        raise ValueError("the planner said 23")

    engine = ScriptedEngine(broken)
    async with playing(engine) as model, client(build_app(offer(engine, teams=[model]))) as asking:
        answer = await asking.post("/v1/chat/completions", json=asked("plan_path", SITUATION))
    assert "the planner said" not in problem(answer, 500)["message"]
    assert "the planner said 23" in caplog.text


async def test_a_situation_too_long_for_a_member_is_the_clients_mistake() -> None:
    engine = ScriptedEngine(member)
    async with playing(engine) as model, client(build_app(offer(engine, teams=[model]))) as asking:
        body = asked("plan_path", SITUATION | {"goal": "2" * 5000})
        assert "exceed the context" in problem(await asking.post("/v1/chat/completions", json=body), 400)["message"]
        assert (await asking.get("/health")).status_code == 200


async def test_how_often_a_team_s_loop_was_taken_is_counted() -> None:
    # The first reply is sent back once, the second is kept; counters begin at 0.
    script = {"F!efrc>": "u", "F!efrr>": "k", "F.efoc>": "k", "C!efr;>": "c", "C.efo;>": "c", "C!efr;cu>": "r"}
    engine = ScriptedEngine(lambda prompt, adapter, seed: script[prompt])
    async with playing(engine, scenario="safe_reply") as model, client(build_app(offer(engine, teams=[model]))) as on:
        before = (await on.get("/metrics")).text
        actions = [
            (await on.post("/v1/chat/completions", json=asked("safe_reply", {"request": request}))).json()
            for request in ("!efr", ".efo")
        ]
        after = (await on.get("/metrics")).text
    assert [answer["choices"][0]["message"]["content"] for answer in actions] == ["r", "c"]
    loop = 'mas_team_loops_total{loop="feedback-conversation",model="team:safe_reply"}'
    turns = 'mas_team_turns_total{model="team:safe_reply"}'
    assert f"{loop} 0.0" in before
    assert f"{turns} 0.0" in before
    assert f"{loop} 1.0" in after
    assert f"{turns} 2.0" in after
