"""Who a server is: names that lead to it, and web pages whose browser sends requests to it."""

import httpx
import pytest
from clients import HELLO, client, echo, offer, problem

from mas.cli import CommandsByName
from mas.core.errors import ConfigError
from mas.endpoint import build_app, known_hosts, running
from mas.endpoint.client_keys import Entrance

PATHS = ("/health", "/v1/models", "/metrics", "/v1/questions")


@pytest.mark.parametrize("key", [None, "sesame"])
async def test_a_name_that_somebody_points_at_this_machine_is_not_answered(key: str | None) -> None:
    async with (
        running(build_app(offer(echo()), entrance=Entrance(key=key))) as url,
        httpx.AsyncClient(base_url=url) as asking,
    ):
        for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "[::2]"):
            headers = {"Host": host, "Authorization": f"Bearer {key}"}
            for path in PATHS:
                error = problem(await asking.get(path, headers=headers), 421)
                assert error["code"] == "wrong_host"
                assert "--allow-host" in error["message"]
            problem(await asking.post("/v1/chat/completions", json=HELLO, headers=headers), 421)


async def test_it_answers_to_the_names_of_this_machine_and_to_its_own_address() -> None:
    async with running(build_app(offer(echo()))) as url, httpx.AsyncClient(base_url=url) as asking:
        for host in ("localhost", "LOCALHOST:1", "localhost.", "127.0.0.1", "[::1]:8000", "[::ffff:127.0.0.1]"):
            assert (await asking.get("/v1/models", headers={"Host": host})).status_code == 200, host
    async with httpx.AsyncClient(transport=httpx.ASGITransport(build_app(offer(echo())))) as asking:
        assert (await asking.get("http://[2001:DB8:0::7]:80/health")).status_code == 200, "where the connection came to"


async def test_more_names_are_answered_to_if_it_is_told_so() -> None:
    app = build_app(offer(echo()), entrance=Entrance(hosts=known_hosts("0.0.0.0", ["MAS.example", "2001:db8::8"])))
    async with client(app) as asking:
        for host in ("mas.example", "mas.example:443", "[2001:db8:0::8]:80", "localhost"):
            assert (await asking.get("/health", headers={"Host": host})).status_code == 200, host
        problem(await asking.get("/health", headers={"Host": "other.mas.example"}), 421)
        problem(await asking.get("/health", headers={"Host": "0.0.0.0"}), 421)


@pytest.mark.parametrize(
    "origin",
    [
        *("http://evil.example", "https://evil.example:8000", "null", "http://127.0.0.1.evil.example", "http://[", ""),
        *("http://evil.example\\@localhost/", "http://evil.example#@localhost", "other-extension://localhost"),
    ],
)
async def test_web_pages_of_others_are_not_answered(origin: str) -> None:
    async with client(build_app(offer(echo()))) as asking:
        error = problem(await asking.get("/v1/models", headers={"Origin": origin}), 403)
        assert error["code"] == "wrong_origin"
        problem(await asking.post("/v1/chat/completions", json=HELLO, headers={"Origin": origin}), 403)
        problem(await asking.options("/v1/chat/completions", headers={"Origin": origin}), 403)


async def test_pages_of_this_machine_are_answered() -> None:
    async with client(build_app(offer(echo()))) as asking:
        for origin in ("http://localhost:3000", "http://127.0.0.1:8000", "https://mas"):
            assert (await asking.get("/v1/models", headers={"Origin": origin})).status_code == 200, origin


@pytest.mark.parametrize("name", ["", "http://mas.example", "mas.example:80", "*", "a b", "-a.example", "a..b"])
def test_a_name_that_is_none_is_one_clear_error(name: str) -> None:
    with pytest.raises(ConfigError, match="no host name or address"):
        known_hosts("127.0.0.1", [name])


async def test_a_long_foreign_name_is_not_repeated_whole() -> None:
    async with client(build_app(offer(echo()))) as asking:
        error = problem(await asking.get("/health", headers={"Host": "e" * 5000}), 421)
    assert len(error["message"]) < 500


def test_every_command_that_listens_takes_the_names_that_its_errors_tell_to_allow() -> None:
    options = {
        name: {word for one in command.params for word in one.opts} for name, command in CommandsByName().items()
    }
    listening = {name for name, words in options.items() if "--host" in words and name != "broker"}
    assert listening == {"serve", "studio", "gateway", "tinker", "openenv"}
    assert all("--allow-host" in options[name] for name in listening)
