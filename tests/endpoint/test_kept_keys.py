"""The keys of requests to teams: who joins which request, what is kept of it, and what is refused."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from clients import client, echo, offer, pieces, problem
from kept_lives import ALONE, ASKED, CHAT, KEY, Voices, answer, life, open_questions, said, until

from mas.bus.journal import Journal
from mas.bus.memory import MemoryBus
from mas.core.engine import Generation, Request
from mas.core.errors import ConfigError, EngineError, JournalError, RefusedRequest
from mas.endpoint import KeptRequests, TeamModel, build_app, running
from mas.endpoint.client_keys import ClientLimits
from mas.graph.load import load_team
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.replay_log import ReplayLog
from mas.runtime.team import TeamRuntime


async def test_two_requests_without_a_key_are_two_plays(tmp_path: Path) -> None:
    body = {name: value for name, value in ASKED.items() if name != "seed"}
    async with life(tmp_path / "bus.sqlite", team=ALONE) as served, client(served.app) as asking:
        answers = [said(await asking.post(CHAT, json=body))[0] for _ in range(3)]
    assert len(served.engine.asked) == 3
    assert len(set(answers)) > 1, "each has a seed of its own"


@pytest.mark.parametrize("more", [{}, {"n": 3}, {"temperature": 0}])
async def test_a_result_outlives_the_process_and_is_no_second_play(tmp_path: Path, more: dict[str, Any]) -> None:
    journal, body = tmp_path / "bus.sqlite", {**ASKED, **more, "seed": 2**64 - 1}
    async with life(journal, team=ALONE) as served, client(served.app) as asking:
        first = (await asking.post(CHAT, json=body, headers=KEY)).json()
        assert len(served.engine.asked) == more.get("n", 1)
    async with life(journal, team=ALONE) as served, client(served.app) as asking:
        again = (await asking.post(CHAT, json=body, headers=KEY)).json()
        metrics = (await asking.get("/metrics")).text
    assert (again["choices"], again["usage"]) == (first["choices"], first["usage"])
    assert served.engine.asked == []
    assert "mas_generated_tokens_total{" not in metrics, "nothing was generated for it"


async def test_each_client_has_its_own_keys_and_pays_for_what_it_joins(tmp_path: Path) -> None:
    known = [
        ClientLimits(name=name, sha256=hashlib.sha256(name.encode()).hexdigest(), tokens_per_day=limit)
        for name, limit in (("alice", 1_000), ("bob", 10_000))
    ]
    async with life(tmp_path / "bus.sqlite", team=ALONE, clients=known) as served, client(served.app) as asking:

        async def ask(name: str) -> httpx.Response:
            return await asking.post(CHAT, json=ASKED, headers=KEY | {"Authorization": f"Bearer {name}"})

        cost = (await ask("alice")).json()["usage"]["total_tokens"]
        joined = -(-1_000 // cost) - 1
        assert joined > 0
        for _ in range(joined):
            assert (await ask("alice")).json()["usage"]["total_tokens"] == cost
        assert "1000 tokens a day" in problem(await ask("alice"), 429)["message"]
        assert len(served.engine.asked) == 1
        await ask("bob")
        assert len(served.engine.asked) == 2, "the same key of another client is another request"


async def test_a_client_that_leaves_pays_for_its_request_which_goes_on(tmp_path: Path) -> None:
    alice = ClientLimits(name="alice", sha256=hashlib.sha256(b"alice").hexdigest(), tokens_per_day=1)
    headers = KEY | {"Authorization": "Bearer alice"}
    async with life(tmp_path / "bus.sqlite", clients=[alice]) as served, client(served.app, **headers) as asking:
        leaving = asyncio.create_task(asking.post(CHAT, json=ASKED), name="leaving")
        asked = await open_questions(served, 2)
        leaving.cancel()
        await asyncio.wait([leaving])
        for question in asked.values():
            await answer(asking, question, "U")
        await until(lambda: served.kept.under_way == 0)
        assert "1 tokens a day" in problem(await asking.post(CHAT, json=ASKED), 429)["message"]
        metrics = (await asking.get("/metrics")).text
    assert 'mas_generated_tokens_total{model="team:judged"}' in metrics


async def test_a_seed_that_the_client_left_out_is_the_same_when_it_comes_again(tmp_path: Path) -> None:
    body = {name: value for name, value in ASKED.items() if name != "seed"} | {"n": 2}
    answers = []
    for _ in range(2):
        async with life(tmp_path / "bus.sqlite", team=ALONE) as served, client(served.app) as asking:
            answers.append((await asking.post(CHAT, json=body, headers=KEY)).json()["choices"])
    assert answers[0] == answers[1]
    assert served.engine.asked == []


async def test_a_streamed_team_is_joined_by_the_same_streamed_request(tmp_path: Path) -> None:
    body = ASKED | {"stream": True}
    async with life(tmp_path / "bus.sqlite", team=ALONE) as served, client(served.app) as asking:
        streams = [pieces(await asking.post(CHAT, json=body, headers=KEY)) for _ in range(2)]
        problem(await asking.post(CHAT, json=ASKED, headers=KEY), 422)
    first, second = [chunk["choices"][0]["delta"]["content"] for (chunk,) in streams]
    assert first == second
    assert served.engine.asked == ["writer"]


@pytest.mark.parametrize("other", [{"seed": 8}, {"messages": [{"role": "user", "content": "?"}]}, {"n": 2}])
async def test_a_key_with_another_body_is_refused_while_it_runs_and_later(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    journal = tmp_path / "bus.sqlite"
    async with life(journal) as served, client(served.app) as asking:
        turn = asyncio.create_task(asking.post(CHAT, json=ASKED, headers=KEY), name="turn")
        asked = await open_questions(served, 2)
        refused = problem(await asking.post(CHAT, json=ASKED | other, headers=KEY), 422)
        assert "'3f1c' was given with another request" in refused["message"]
        assert refused["code"] == "idempotency_key"
        for question in asked.values():
            await answer(asking, question, "U")
        said(await turn)
        problem(await asking.post(CHAT, json=ASKED | other, headers=KEY), 422)
    async with life(journal) as served, client(served.app) as asking:
        problem(await asking.post(CHAT, json=ASKED | other, headers=KEY), 422)
        assert served.engine.asked == []


@pytest.mark.parametrize("key", ["", "a b", "k" * 256, "é"])
async def test_a_key_that_is_none_is_refused(tmp_path: Path, key: str) -> None:
    async with life(tmp_path / "bus.sqlite", team=ALONE) as served, client(served.app) as asking:
        for headers in ([("Idempotency-Key", key.encode())], [("Idempotency-Key", b"a")] * 2):
            refused = problem(await asking.post(CHAT, json=ASKED, headers=headers), 400)
            assert "1 to 255 visible ASCII characters" in refused["message"]


async def test_more_than_may_be_under_way_is_refused_and_a_join_is_not(tmp_path: Path) -> None:
    async with life(tmp_path / "bus.sqlite", most=1) as served, client(served.app) as asking:
        turns = [asyncio.create_task(asking.post(CHAT, json=ASKED, headers=KEY), name="turn")]
        asked = await open_questions(served, 2)
        turns.append(asyncio.create_task(asking.post(CHAT, json=ASKED, headers=KEY), name="turn"))
        problem(await asking.post(CHAT, json=ASKED), 429)
        for question in asked.values():
            await answer(asking, question, "U")
        first, second = await asyncio.gather(*turns)
        assert said(first) == said(second)


class Failing(Voices):
    """Fails until it is `well`."""

    error: Exception = EngineError("no memory")
    is_well = False

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        answered = await super().generate(request)
        if not self.is_well:
            raise self.error
        return answered


async def test_what_failed_goes_on_under_its_key_and_is_over_without_one(tmp_path: Path) -> None:
    engine = Failing()
    async with life(tmp_path / "bus.sqlite", engine, team=ALONE) as served, client(served.app) as asking:
        problem(await asking.post(CHAT, json=ASKED), 500)
        problem(await asking.post(CHAT, json=ASKED, headers=KEY), 500)
    async with life(tmp_path / "bus.sqlite", engine, team=ALONE) as served, client(served.app) as asking:
        assert served.kept.under_way == 1, "only what a client can ask for again"
        await until(lambda: served.kept.under_way == 0)
        engine.is_well = True
        said(await asking.post(CHAT, json=ASKED, headers=KEY))
        assert len(engine.asked) == 4


async def test_what_no_member_can_be_asked_is_not_kept(tmp_path: Path) -> None:
    engine = Failing()
    engine.error = RefusedRequest("far too long")
    async with life(tmp_path / "bus.sqlite", engine, team=ALONE) as served, client(served.app) as asking:
        problem(await asking.post(CHAT, json=ASKED | {"n": 2}, headers=KEY), 400)
        engine.is_well = True
        said(await asking.post(CHAT, json=ASKED, headers=KEY))  # another request: the key is free again


async def test_the_openai_client_sends_the_key_with_every_try(tmp_path: Path) -> None:
    engine = Failing()
    async with (
        life(tmp_path / "bus.sqlite", engine, team=ALONE) as served,
        running(served.app) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as asking,
    ):
        messages: Any = ASKED["messages"]
        with pytest.raises(openai.InternalServerError):
            await asking.chat.completions.create(model="team:judged", messages=messages, seed=7, extra_headers=KEY)
        engine.is_well = True
        for _ in range(2):
            done = await asking.chat.completions.create(
                model="team:judged", messages=messages, seed=7, extra_headers=KEY
            )
            assert done.choices[0].message.content.startswith("writer ")
        with pytest.raises(openai.UnprocessableEntityError, match="another request"):
            await asking.chat.completions.create(model="team:judged", messages=messages, seed=8, extra_headers=KEY)
    assert len(engine.asked) == 2


async def test_a_journal_of_something_else_is_refused(tmp_path: Path) -> None:
    journal = tmp_path / "bus.sqlite"
    async with life(journal, team=ALONE) as served, client(served.app) as asking:
        said(await asking.post(CHAT, json=ASKED))
        with pytest.raises(JournalError, match="is open already, here or in another process"):
            async with life(journal, team=ALONE):
                pass
    longer = ALONE | {"roles": {**ALONE["roles"], "closer": {"type": "executor"}}, "output": "closer"}
    longer["edges"] = ["start -> writer", "writer -> closer", "closer -> done"]
    for options, text in (
        ({"team": ALONE, "run": "two"}, "run 'one', now it is 'two'"),
        ({"team": ALONE | {"name": "other"}}, "with that team; served are 'other'"),
        ({"team": longer}, "with another team of this name"),
    ):
        with pytest.raises(JournalError, match=text):
            async with life(journal, **options):
                pass


async def test_a_journal_of_mas_run_is_refused(tmp_path: Path) -> None:
    async with life(tmp_path / "bus.sqlite", team=ALONE) as served:
        model = TeamModel(served.runtime, {"writer": {"task": "?"}})
        await model.turn("Up?", 1, None, settings={"train.seed": 1})
    with pytest.raises(JournalError, match="by something else than requests"):
        async with life(tmp_path / "bus.sqlite", team=ALONE):
            pass


async def test_a_team_without_the_log_cannot_be_kept(tmp_path: Path) -> None:
    spec, engine, bus = load_team(ALONE), echo(), MemoryBus()
    with Journal.open(tmp_path / "bus.sqlite") as journal:
        async with TeamRuntime(compile_team(spec, build_roles(spec)), engine, bus, adapters={}) as runtime:
            with pytest.raises(ConfigError, match="needs the log"):
                KeptRequests(ReplayLog(journal), [TeamModel(runtime, {"writer": {"task": "?"}})])
    await bus.close()


async def test_without_a_journal_the_key_changes_nothing() -> None:
    spec, engine, bus = load_team(ALONE), Voices(), MemoryBus()
    async with TeamRuntime(compile_team(spec, build_roles(spec)), engine, bus, adapters={}) as runtime:
        model = TeamModel(runtime, {"writer": {"task": "?"}})
        async with client(build_app(offer(engine, teams=[model]))) as asking:
            for body in (ASKED, ASKED | {"seed": 8}):
                said(await asking.post(CHAT, json=body, headers=KEY))
    assert len(engine.asked) == 2
    await bus.close()
