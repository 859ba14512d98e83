"""Chat with what an endpoint serves, and questions for people, in a real browser over a real endpoint."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from clients import echo, offer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from studio_site import obstacles_of, overflow_of
from team_pages import ANSWER_MS, opened

from mas.bus.memory import MemoryBus
from mas.core.errors import ConfigError
from mas.endpoint import RoleModel, TeamModel
from mas.endpoint import build_app as build_endpoint
from mas.endpoint.client_keys import Entrance
from mas.endpoint.limits import ConnectionGate
from mas.endpoint.server import running
from mas.graph.load import load_team
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.human import HumanDesk
from mas.runtime.team import TeamRuntime
from mas.studio.app import build_app
from mas.studio.chat import served_address
from mas.studio.runs import Runs
from mas.testing.scripted import ScriptedEngine

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

TEAM = {
    "name": "judged",
    "roles": {"judge": {"type": "executor", "voice": "human", "trainable": False, "choices": ["U", "D"]}},
    "edges": ["start -> judge", "judge -> done"],
    "output": "judge",
}
HOSTILE = "<script>document.title='hit'</script><img src=x onerror=\"document.title='hit'\">"


@asynccontextmanager
async def _studio(tmp_path: Path, served: str) -> AsyncIterator[str]:
    async with running(build_app(Runs([tmp_path]), served=served), drain_s=1.0) as address:
        yield address


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def endpoint() -> AsyncIterator[str]:
    """An endpoint with an adapter that says its prompt backwards, and a team of one person."""
    desk, engine, bus, spec = HumanDesk(), echo(), MemoryBus(), load_team(TEAM)
    async with TeamRuntime(compile_team(spec, build_roles(spec)), engine, bus, adapters={}, desk=desk) as runtime:
        team = TeamModel(runtime, {"judge": {"task": "?"}})
        app = build_endpoint(
            offer(engine, {"a": RoleModel(chats=True)}, [team]), entrance=Entrance(key="sesame"), desk=desk
        )
        async with running(app) as address:
            yield address
    await bus.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAS_API_KEY", "sesame")
        async with _studio(tmp_path_factory.mktemp("runs"), endpoint) as address:
            yield address


async def test_a_role_answers_and_is_sent_the_conversation(browser: Any, site: str) -> None:
    async with opened(browser, site, "/chat") as page:
        await page.get_by_label("with").select_option("a")
        await page.get_by_label("your message").fill("abc")
        await page.keyboard.press("Enter")
        await page.locator("#log pre").nth(1).filter(has_text="cba").wait_for(timeout=ANSWER_MS)
        await page.get_by_label("your message").fill("xyz")
        await page.get_by_role("button", name="Send").click()
        await page.locator("#log pre").nth(3).filter(has_text="zyx").wait_for(timeout=ANSWER_MS)
        assert "cba" in await page.locator("#log pre").nth(3).inner_text()
        await page.get_by_role("button", name="New conversation").click()
        assert await page.locator("#log li").count() == 0
        assert "sesame" not in await page.content()


async def test_a_question_that_waits_for_a_person_is_answered_in_the_page(browser: Any, site: str) -> None:
    async with opened(browser, site, "/chat") as chat, opened(browser, site, "/questions") as people:
        await chat.get_by_label("with").select_option("team:judged")
        await chat.get_by_label("your message").fill(HOSTILE)
        await chat.keyboard.press("Enter")
        card = people.locator(".question")
        await card.wait_for(timeout=ANSWER_MS)
        assert HOSTILE in await card.locator("pre").inner_text()
        assert await obstacles_of(people) == []
        await card.get_by_label("your answer").fill("sideways")
        await card.get_by_role("button", name="Answer").click()
        await card.get_by_text("400").wait_for(timeout=ANSWER_MS)
        await card.get_by_label("your answer").fill("D")
        await card.get_by_role("button", name="Answer").click()
        await people.locator("#state").get_by_text("No question is open").wait_for(timeout=ANSWER_MS)
        await chat.locator("#log pre").nth(1).filter(has_text="D").wait_for(timeout=ANSWER_MS)
        assert await chat.locator("#log pre").first.inner_text() == HOSTILE
        assert "hit" not in (await chat.title(), await people.title())
        assert await obstacles_of(chat) == []
        for page in (chat, people):
            await page.set_viewport_size({"width": 390, "height": 800})
            assert await overflow_of(page) == 0


async def test_what_a_model_says_is_text(browser: Any, tmp_path: Path) -> None:
    engine = ScriptedEngine(lambda *_: HOSTILE, ("a",), has_chat=True)
    served = build_endpoint(offer(engine, {"a": RoleModel(chats=True)}))
    async with (
        running(served) as endpoint,
        _studio(tmp_path, endpoint) as address,
        opened(browser, address, "/chat") as page,
    ):
        await page.get_by_label("with").select_option("a")
        await page.get_by_label("your message").fill("hello")
        await page.keyboard.press("Enter")
        await page.locator("#log pre").nth(1).filter(has_text="img").wait_for(timeout=ANSWER_MS)
        assert await page.locator("#log pre").nth(1).inner_text() == HOSTILE
        assert await page.locator("#log img, #log script").count() == 0
        assert await page.title() == "Chat · mas studio"


async def test_only_the_chat_page_of_this_studio_may_ask(site: str) -> None:
    async with httpx.AsyncClient(base_url=site, timeout=60) as client:
        page = (await client.get("/chat")).text
        token = page.partition('data-token="')[2].partition('"')[0]
        asked = {"model": "a", "messages": [{"role": "user", "content": "hi"}]}
        good = {"origin": site, "x-studio-token": token, "content-type": "application/json"}
        for change, status in (
            ({}, 200),
            ({"origin": "http://evil.example"}, 403),
            ({"x-studio-token": "wrong"}, 403),
            ({"x-studio-token": ""}, 403),
            ({"sec-fetch-site": "cross-site"}, 403),
            ({"sec-fetch-site": "same-site"}, 403),
            ({"content-type": "text/plain"}, 415),
            ({"host": "evil.example"}, 421),
        ):
            done = await client.post("/chat/answer", content=json.dumps(asked), headers={**good, **change})
            assert done.status_code == status, (change, done.text)
        for body, status in ((b"{", 400), (b'{"model": 1}', 400), (b"x" * 300_000, 413), (b"[" * 9999, 400)):
            assert (await client.post("/chat/answer", content=body, headers=good)).status_code == status
        long = asked | {"messages": asked["messages"] * 300}
        assert (await client.post("/chat/answer", json=long, headers=good)).status_code == 413
        answers = {**good, "x-studio-token": ""}
        assert (
            await client.post("/questions/answer", json={"id": "1", "text": "U"}, headers=answers)
        ).status_code == 403
        strange = await client.post("/questions/answer", json={"id": "../models", "text": "U"}, headers=good)
        assert "404" in strange.json()["problem"]


async def test_a_server_that_is_gone_or_leads_elsewhere_is_a_problem_and_is_not_followed(tmp_path: Path) -> None:
    reached = asyncio.Event()

    def elsewhere(request: Request) -> Response:
        reached.set()
        return Response("{}")

    aside = Starlette(routes=[Route("/{rest:path}", elsewhere)])
    aside.state.gate = ConnectionGate(running=4, waiting=4)
    async with running(aside) as other:
        away = Starlette(routes=[Route("/{rest:path}", lambda request: RedirectResponse(f"{other}/v1/models"))])
        away.state.gate = ConnectionGate(running=4, waiting=4)
        async with running(away) as endpoint, _studio(tmp_path, endpoint) as address, httpx.AsyncClient() as client:
            page = await client.get(f"{address}/chat", timeout=60)
            assert (page.status_code, "307" in page.text) == (200, True)
            assert not reached.is_set()
    async with _studio(tmp_path, endpoint) as address, httpx.AsyncClient(timeout=60) as client:
        assert "does not answer" in (await client.get(f"{address}/chat")).text
        assert "does not answer" in (await client.get(f"{address}/questions/open")).json()["problem"]


async def test_without_an_address_there_is_no_chat(tmp_path: Path) -> None:
    async with running(build_app(Runs([tmp_path])), drain_s=1.0) as address, httpx.AsyncClient() as client:
        assert (await client.get(f"{address}/chat")).status_code == 404
        assert "/chat" not in (await client.get(address)).text
        own = {"origin": address}
        assert (await client.post(f"{address}/chat/answer", json={}, headers=own)).status_code == 404


@pytest.mark.parametrize(
    "address",
    [
        "http://10.0.0.1:8000",
        "http://example.com:8000",
        "https://127.0.0.1:8000",
        "http://127.0.0.1",
        "http://user:key@127.0.0.1:8000",
        "http://127.0.0.1:8000/v1?x=1",
        "http://127.0.0.1.evil.example:8000",
        "http://127.0.0.1:99999",
        "file:///etc/passwd",
        "",
    ],
)
async def test_an_address_that_is_none_of_this_machine_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="no address of this machine"):
        served_address(address)


async def test_addresses_of_this_machine_are_taken() -> None:
    for address in ("http://127.0.0.1:8000", "http://localhost:1", "http://[::1]:8000"):
        assert served_address(f"{address}/") == address
