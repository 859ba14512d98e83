"""Episodes as programs play them: whose call is whose, what is compared, and what becomes of those that fail."""

import asyncio

import httpx
import openai
import pytest
from clients import client, pieces, problem
from open_gateway import ROWS, OpenGateway, backwards, open_gateway, until

from mas.core.engine import Generation, Request
from mas.core.errors import EngineError
from mas.core.records import Episode, Turn
from mas.endpoint import running
from mas.endpoint.command import role_model
from mas.gateway.recorded import EpisodeEnd
from mas.gateway.serving import GatewayLimits
from mas.roles import build_roles
from mas.scenarios.program import ListedProgramScenario, ProgramOptions
from mas.training.tasks.plan import ProgramPlayer


def test_a_queue_is_a_player() -> None:
    from mas.gateway.queue import EpisodeQueue

    wanted = {name for name in vars(ProgramPlayer) if not name.startswith("_")} | {"play"}
    assert wanted <= set(dir(EpisodeQueue))


async def test_other_hosts_and_pages_of_others_get_no_episode() -> None:
    async with open_gateway() as gate:
        for path in ("/v1/episodes", "/v1/episodes/x/end", "/episodes/x/v1/chat/completions"):
            problem(await gate.http.post(path, headers={"Host": "evil.example"}), 421)
            for origin in ("http://evil.example", "null"):
                problem(await gate.http.post(path, headers={"Origin": origin}), 403)
        assert await gate.lease() == {"object": "wait"}


async def test_a_turn_has_what_was_drawn_and_nothing_is_tokenized_again() -> None:
    async with open_gateway() as gate:
        playing, told = gate.play(1), []
        for reward in (1.0, 0.0):
            found = await gate.lease()
            assert (found["object"], found["task"], found["kind"]) == ("episode", ROWS["train"][1], "train")
            key = found["id"]
            first = await gate.ask(key, "finder", "hello", return_token_ids=True, temperature=0.1, seed=5)
            told.append(first.json()["choices"][0])
            streamed = pieces(await gate.ask(key, "reader", "again", stream=True, max_tokens=3))
            said = "".join(event["choices"][0]["delta"].get("content", "") for event in streamed)
            assert said == "rea"
            assert (await gate.end(key, reward=reward, rewards={"reader": 0.5})).json() == {"object": "ended"}
        one, other = await playing
    assert [one.success, other.success] == [True, False]
    finder, reader = one.turns
    assert (finder.role, finder.visit, finder.turn, finder.temperature) == ("finder", 0, 0, 1.0)
    assert (reader.role, reader.temperature, reader.finish, reader.text) == ("reader", 0.7, "length", "rea")
    assert finder.rewards == {"team.reward": 1.0, "outcome": 1.0}
    assert reader.rewards == {"team.reward": 1.0, "outcome": 1.0, "own.role": 0.5}
    assert [request.prompt_ids for request in gate.engine.requests] == [
        turn.prompt_ids for episode in (one, other) for turn in episode.turns
    ]
    for episode, choice in zip((one, other), told, strict=True):
        turn = episode.turns[0]
        assert turn.completion_ids == tuple(choice["token_ids"])
        assert turn.text == choice["message"]["content"]
        assert turn.logprobs == (0.0,) * len(turn.completion_ids)
    assert finder.seed != other.turns[0].seed


async def _two(gate: OpenGateway, *calls: int) -> tuple[Episode, ...]:
    """Episodes of one task with so many calls of the finder each."""
    playing = gate.play(0)
    for count in calls:
        key = (await gate.lease())["id"]
        for number in range(count):
            await gate.ask(key, "finder", f"call {number}")
        await gate.end(key, reward=1)
    return tuple(await playing)


@pytest.mark.parametrize("compare", ["turn", "episode"])
async def test_turns_are_compared_one_by_one_or_all_of_an_episode_together(compare: str) -> None:
    async with open_gateway(compare=compare) as gate:
        one, other = await _two(gate, 2, 1)

    def key(turn: Turn) -> tuple[str, str]:
        return str(turn.group), turn.trajectory

    assert one.turns[0].group == other.turns[0].group
    assert one.turns[0].trajectory != other.turns[0].trajectory
    if compare == "turn":
        assert one.turns[1].group != one.turns[0].group
        assert len({key(turn) for turn in one.turns}) == 2
    else:
        assert len({key(turn) for turn in one.turns}) == 1


async def test_equal_programs_get_equal_answers_whatever_seed_they_ask_for() -> None:
    said = []
    for seed in (1, 2):
        async with open_gateway() as gate:
            playing = gate.play(0)
            for _ in range(2):
                key = (await gate.lease())["id"]
                said.append((await gate.ask(key, "finder", "x", seed=seed)).json()["choices"][0]["message"]["content"])
                await gate.end(key, reward=0)
            await playing
    assert said[:2] == said[2:]
    assert said[0] != said[1]


async def test_calls_of_no_episode_of_another_role_or_of_an_episode_that_is_over_are_refused() -> None:
    async with open_gateway() as gate:
        playing = gate.play(0)
        first, second = (await gate.lease())["id"], (await gate.lease())["id"]
        hello = {"model": "finder", "messages": [{"role": "user", "content": "hi"}]}
        assert problem(await gate.http.post("/v1/chat/completions", json=hello), 400)["code"] == "no_episode"
        for model in ("org/base:1", "other", "team:x", "finde"):
            error = problem(await gate.ask(first, model, "hi"), 404)
            assert (error["param"], error["code"]) == ("model", "model_not_found")
        assert "Did you mean" in error["message"] or "finder" in error["message"]
        assert problem(await gate.ask("guess", "finder", "hi"), 404)["code"] == "no_episode"
        assert problem(await gate.end(first, reward=1), 409)["code"] == "no_calls"
        await gate.ask(first, "finder", "hi")
        for body, why in (
            ('{"reward": Infinity}', "finite"),
            ("{}", "say how it went"),
            ('{"reward": 1, "failed": "x"}', "say how it went"),
            ('{"failed": "x", "success": true}', "no success"),
            ('{"reward": 1, "rewards": {"reader": 1}}', "a role without a call"),
            ('{"reward": 1, "rewards": 1}', "rewards: Input should be an object"),
            ('{"reward": 1, "extra": 2}', "extra"),
            ("[]", "Input should be an object"),
        ):
            answer = await gate.http.post(
                f"/v1/episodes/{first}/end", content=body, headers={"content-type": "application/json"}
            )
            assert why in problem(answer, 400)["message"]
        for _ in range(2):
            assert (await gate.end(first, reward=1)).status_code == 200  # its answer may have been lost
        assert problem(await gate.end(first, reward=2), 410)["code"] == "episode_over"
        assert problem(await gate.ask(first, "finder", "hi"), 410)["code"] == "episode_over"
        await gate.ask(second, "finder", "hi")
        header = {"x-mas-reward": "0.25", "content-type": "application/json"}
        wrong = {**header, "x-mas-reward": "much"}
        assert problem(await gate.http.post(f"/v1/episodes/{second}/end", headers=wrong), 400)
        assert (await gate.http.post(f"/v1/episodes/{second}/end", headers=header)).status_code == 200
        one, other = await playing
    assert (one.rewards, other.rewards) == ({"reward": 1.0}, {"reward": 0.25})
    assert len(one.turns) == 1


async def test_an_episode_that_fails_is_played_again_and_stays_in_the_record_after_three_attempts() -> None:
    async with open_gateway() as gate:
        playing = gate.play(0)
        good = (await gate.lease())["id"]
        seeds = set()
        for number in range(3):
            key = (await gate.lease())["id"]
            await gate.ask(key, "finder", "x")
            seeds.add(gate.engine.requests[-1].seeds)
            assert (await gate.end(key, failed=f"tool {number} is gone")).status_code == 200
        assert (await gate.lease())["object"] == "wait"
        await gate.ask(good, "finder", "x")
        await gate.end(good, reward=1)
        one, other = await playing
    assert len(seeds) == 3
    assert (one.status, other.status, other.turns) == ("done", "failed", ())
    assert other.cause == "3 attempts failed, the last one: tool 2 is gone"
    assert [attempt.cause for attempt in other.attempts] == [f"tool {number} is gone" for number in range(3)]
    assert other.calls == 3  # all that was spent on it
    assert other.prompt_tokens == sum(len(request.prompt_ids) for request in gate.engine.requests[:3])


async def test_an_episode_of_a_program_that_died_is_given_to_another_one() -> None:
    async with open_gateway(candidates=1) as gate:
        playing = gate.play(0)
        lost = (await gate.lease())["id"]
        await gate.ask(lost, "finder", "x")
        gate.now[0] = 9
        await gate.ask(lost, "finder", "y")
        gate.now[0] = 18
        await gate.queue.expire()
        assert (await gate.lease())["object"] == "wait"  # 9 s after its last call
        gate.now[0] = 20
        await gate.queue.expire()
        assert problem(await gate.ask(lost, "finder", "x"), 410)["code"] == "episode_over"
        found = (await gate.lease())["id"]
        assert found != lost
        await gate.ask(found, "finder", "z")
        await gate.end(found, reward=1)
        (episode,) = await playing
    assert [turn.text.partition(" ")[0] for turn in episode.turns] == ["finder"]
    assert episode.calls == 3
    assert [attempt.cause for attempt in episode.attempts] == ["nothing was heard of it for 10 s"]


async def test_a_call_that_came_to_nothing_is_made_again_with_its_own_seed() -> None:
    broken = {"first"}

    def answer(prompt: str, adapter: str | None, seed: int) -> str:
        if broken and "first" in prompt:
            broken.clear()
            raise EngineError("the engine stumbled")
        return backwards(prompt, adapter, seed)

    async with open_gateway(answer=answer, candidates=1) as gate:
        playing = gate.play(0)
        key = (await gate.lease())["id"]
        problem(await gate.ask(key, "finder", "first"), 500)
        assert (await gate.ask(key, "finder", "second")).status_code == 200
        path = f"/episodes/{key}/v1/chat/completions"
        body = {"model": "finder", "messages": [{"role": "user", "content": "first"}]}
        assert (await gate.http.post(path, json=body, headers={"x-stainless-retry-count": "1"})).status_code == 200
        assert (await gate.http.post(path, json=body, headers={"x-stainless-retry-count": "1"})).status_code == 200
        await gate.end(key, reward=1)
        (episode,) = await playing
    asked = [request.seeds for request in gate.engine.requests]
    assert asked[0] == asked[2]  # the scripted engine notes a request before it answers
    assert len({*asked}) == 3
    assert [turn.visit for turn in episode.turns] == [0, 1, 2]
    assert episode.measures == {"calls_cut": 1.0}


async def test_turns_are_numbered_as_their_calls_began_whoever_was_answered_first() -> None:
    release = asyncio.Event()

    async with open_gateway(candidates=1) as gate:
        generate = gate.engine.generate

        async def slow(request: Request) -> tuple[Generation, ...]:
            if "part one" in gate.engine.tokenizer.decode(request.prompt_ids):
                await release.wait()
            return await generate(request)

        gate.engine.generate = slow  # type: ignore[method-assign]
        playing = gate.play(0)
        key = (await gate.lease())["id"]
        first = asyncio.create_task(gate.ask(key, "finder", "part one"))
        await until(lambda: gate.queue.find(key).episode.under_way == 1)
        await gate.ask(key, "finder", "part two")
        assert problem(await gate.end(key, reward=1), 409)["code"] == "under_way"
        release.set()
        await first
        await gate.end(key, reward=1)
        (episode,) = await playing
    decode = gate.engine.tokenizer.decode
    assert [("part one" in decode(turn.prompt_ids), turn.visit) for turn in episode.turns] == [(True, 0), (False, 1)]


async def test_a_request_that_fails_leaves_nothing_and_does_not_end_the_episode() -> None:
    async with open_gateway(candidates=1) as gate:
        playing = gate.play(0)
        key = (await gate.lease())["id"]
        problem(await gate.ask(key, "finder", "x", logit_bias={"1": 5}), 400)
        problem(await gate.ask(key, "finder", "x" * 200_000), 400)
        assert problem(await gate.ask(key, "finder", "x", n=2), 400)["param"] == "n"
        assert (await gate.ask(key, "finder", "x")).status_code == 200
        await gate.end(key, reward=1)
        (episode,) = await playing
    assert [turn.visit for turn in episode.turns] == [0]
    assert episode.calls == 1


@pytest.mark.parametrize("compare", ["turn", "episode"])
async def test_what_a_role_is_paid_adds_up_to_the_episodes_reward(compare: str) -> None:
    """By turn every turn is a trajectory, so that equal rewards are no difference for whoever reads them."""
    async with open_gateway(compare=compare) as gate:
        episodes = await _two(gate, 1, 2)
    turns = [turn for episode in episodes for turn in episode.turns]
    trajectories: dict[str, list[Turn]] = {}
    for turn in turns:
        trajectories.setdefault(turn.trajectory, []).append(turn)
    for own in trajectories.values():
        paid = {name: sum(turn.paid.get(name, 0.0) for turn in own) for name in own[0].rewards}
        assert paid == own[0].rewards
    groups = {str(turn.group): turn.group for turn in turns}
    assert len(groups) == (2 if compare == "turn" else 1)


async def test_who_leaves_while_it_waits_takes_no_episode_along() -> None:
    async with open_gateway(limits=GatewayLimits(idle_s=10, lease_s=30)) as gate, running(gate.app) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = b"{}"
        head = f"POST /v1/episodes HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        await until(lambda: gate.queue.waiting == 1)
        writer.close()
        await writer.wait_closed()
        del reader
        await until(lambda: gate.queue.waiting == 0)
        playing = gate.play(0)
        await asyncio.sleep(0)
        assert gate.queue.counts["playing"] == 0
        playing.cancel()


async def test_programs_with_tasks_of_their_own_begin_episodes_by_name() -> None:
    async with open_gateway(has_tasks=False) as gate:
        playing = gate.play(0), gate.play(1)

        async def call(episode: str, task: str) -> httpx.Response:
            body = {"model": "finder", "messages": [{"role": "user", "content": f"{task} {episode}"}]}
            headers = {"x-mas-episode": episode, "x-mas-task": task}
            return await gate.http.post("/v1/chat/completions", json=body, headers=headers)

        together = await asyncio.gather(*(call("a1", "A") for _ in range(3)))
        assert [answer.status_code for answer in together] == [200] * 3  # in one episode
        assert (await gate.lease(task="B", id="b1"))["task"] == "B"
        assert (await call("b1", "B")).status_code == 200
        assert problem(await call("a1", "B"), 409)["code"] == "other_task"
        assert problem(await call("a/1", "A"), 400)["code"] == "wrong_name"
        refused = problem(await call("c1", "C"), 503)
        assert refused["code"] == "step_full"
        assert "A (1), B (1)" in refused["message"]
        assert (await call("a2", "A")).status_code == 200
        assert problem(await call("a3", "A"), 503)
        assert (await call("b2", "B")).status_code == 200
        for episode in ("a1", "a2", "b1", "b2"):
            await gate.end(episode, reward=float(episode[1] == "1"))
        first, second = [await one for one in playing]
    assert [(one.task, len(one.turns), one.success) for one in (*first, *second)] == [
        ("A", 3, True), ("A", 1, False), ("B", 1, True), ("B", 1, False),
    ]  # fmt: skip
    assert {turn.group.task for one in second for turn in one.turns} == {"B"}


async def test_a_step_that_ends_before_programs_begin_and_one_that_plays_a_task_twice_end_as_they_should() -> None:
    async with open_gateway(has_tasks=False, candidates=1) as gate:
        waiting = gate.play(0), gate.play(1)
        await until(lambda: gate.queue.counts["open"] == 2)
        for task in reversed(waiting):
            task.cancel()
        assert [type(one) for one in await asyncio.gather(*waiting, return_exceptions=True)] == [
            asyncio.CancelledError
        ] * 2
        playing = gate.play(0), gate.play(1)
        for episode in ("a1", "a2"):
            await gate.lease(task="A", id=episode)
        for episode in ("a2", "a1"):
            await gate.ask(episode, "finder", "x")
            await gate.end(episode, reward=1)
        assert [one.task for group in [await one for one in playing] for one in group] == ["A", "A"]


async def test_a_task_of_a_programs_own_is_compared_as_far_as_it_was_played() -> None:
    async with open_gateway(has_tasks=False, candidates=3) as gate:
        playing = gate.play(0)
        for episode in ("a1", "a2"):
            await gate.lease(task="A", id=episode)
            await gate.ask(episode, "finder", "x")
            await gate.end(episode, reward=1)
        await gate.queue.expire()
        assert not playing.done()
        gate.now[0] = 11
        await gate.queue.expire()
        one, two, missing = await playing
    assert (one.status, two.status, missing.status) == ("done", "done", "failed")
    assert missing.cause == "no further episode of this task began within 10 s"


async def test_who_waits_hears_at_once_that_training_is_over() -> None:
    async with open_gateway(limits=GatewayLimits(idle_s=10, lease_s=3600)) as gate:
        waiting = asyncio.create_task(gate.lease())
        await until(lambda: gate.queue.waiting == 1)
        await gate.queue.close("3 steps done")
        assert await waiting == {"object": "over", "reason": "3 steps done"}
        assert (await gate.http.get("/v1/episodes")).json() == {
            "object": "episodes", "open": 0, "playing": 0, "played": 0, "over": "3 steps done",
        }  # fmt: skip


async def test_two_hundred_episodes_at_the_same_time_are_not_mixed_up() -> None:
    async with open_gateway(candidates=100) as gate:
        playing = gate.play(0), gate.play(1, seed=2)

        async def program() -> None:
            async with client(gate.app) as http:
                found = (await http.post("/v1/episodes", json={})).json()
                assert found["object"] == "episode"
                async with openai.AsyncOpenAI(
                    base_url=f"http://mas/episodes/{found['id']}/v1", api_key="none", http_client=http
                ) as asking:
                    words = [f"{found['id']} {number}" for number in range(5)]
                    roles = [("finder", "reader")[number % 2] for number in range(5)]
                    for role, text in zip(roles, words, strict=True):
                        said = await asking.chat.completions.create(
                            model=role, messages=[{"role": "user", "content": text}]
                        )
                        content = said.choices[0].message.content
                        assert content is not None
                        assert text[::-1] in content
                    key = int(found["id"][:6], 16)
                    await http.post(f"/v1/episodes/{found['id']}/end", json={"reward": key})

        await asyncio.gather(*(program() for _ in range(200)))
        groups = [await one for one in playing]
    assert [len(group) for group in groups] == [100, 100]
    decode = gate.engine.tokenizer.decode
    keys = set()
    for episode in (one for group in groups for one in group):
        prompts = [decode(turn.prompt_ids) for turn in episode.turns]
        (key,) = {word for prompt in prompts for word in prompt.split() if len(word) == 24}
        assert episode.rewards == {"reward": int(key[:6], 16)}
        assert [turn.role for turn in episode.turns] == ["finder", "reader", "finder", "reader", "finder"]
        assert [f"{key} {number}" in prompt for number, prompt in enumerate(prompts)] == [True] * 5
        keys.add(key)
    assert len(keys) == 200


def test_an_end_says_one_thing() -> None:
    assert EpisodeEnd(reward=0).failed is None
    with pytest.raises(ValueError, match="say how it went"):
        EpisodeEnd()


def test_a_role_is_told_what_the_program_sends_and_nothing_else() -> None:
    """A chat without a system message gets none of a role's duty."""
    scenario = ListedProgramScenario(ProgramOptions(roles=("finder", "reader")), ROWS)
    roles = build_roles(scenario.teams["team"])
    assert [role_model(role, scenario, chats=True).system for role in roles.values()] == ["", ""]
