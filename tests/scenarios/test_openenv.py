"""The client of OpenEnv: against stand-ins that answer wrongly in every way, and against the package's own server.

The package needs an older MCP SDK than mas is developed with. So its server runs in another environment, which
`make install-foreign` makes, or whose Python MAS_OPENENV_PYTHON names; without it those tests are skipped.
"""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.request import urlopen

import pytest
from foreign import foreign_python, why_none

from mas.config.access import option_accesses
from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Task
from mas.core.errors import ConfigError, EnvironmentFault
from mas.core.role import View
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.scenarios import build_scenario
from mas.scenarios.bridges import open_bridge
from mas.scenarios.bridges.openenv import MOST_BYTES, text_field
from mas.testing.environment import EnvironmentContract

pytest.importorskip("websockets")
PYTHON = foreign_python("openenv")
real = pytest.mark.skipif(not PYTHON, reason=why_none("openenv"))
SCHEMA: dict[str, Any] = {
    "properties": {"message": {"type": "string"}, "metadata": {"type": "object"}},
    "required": ["message"],
}
Handler = Callable[[Any], None]


def observed(told: Any, *, reward: Any = None, done: Any = False) -> str:
    data = {"observation": {"told": told, "metadata": {}}, "reward": reward, "done": done}
    return json.dumps({"type": "observation", "data": data})


@contextmanager
def served(handler: Handler, schema: Any = SCHEMA, status: int = 200) -> Iterator[str]:
    """A stand-in: the id of a server whose sessions are handled so."""
    from websockets.datastructures import Headers
    from websockets.http11 import Response
    from websockets.sync.server import serve

    def http(connection: Any, request: Any) -> Response | None:
        if request.path == "/ws":
            return None
        body = json.dumps({"action": schema}).encode()
        return Response(status, "OK", Headers({"Content-Length": str(len(body)), "Connection": "close"}), body)

    def quietly(connection: Any) -> None:
        try:
            handler(connection)
        except Exception:  # noqa: BLE001 - the client has gone
            return

    with serve(quietly, "127.0.0.1", 0, process_request=http, close_timeout=1) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"openenv:http://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()


def polite(connection: Any) -> None:
    """Counts down from 2; the seed is told."""
    left = 2
    for message in connection:
        asked = json.loads(message)
        if asked["type"] == "reset":
            left = 2
            connection.send(observed(f"seed {asked['data']['seed']}"))
        else:
            left -= 1
            connection.send(observed(f"{left} left, {asked['data']}", reward=0.5, done=left == 0))


def begun(name: str, seed: int = 1) -> Environment:
    environment = open_bridge(name)
    environment.reset(Task(id="train-1", seed=seed))
    return environment


def test_an_episode_is_a_session_with_the_tasks_seed() -> None:
    with served(polite) as name:
        environment = begun(name, seed=7)
        assert environment.observe("player").fields == {
            "seat": "player", "seen": "told: seed 7", "legal": "any text", "note": ""
        }  # fmt: skip
        step = environment.step({"player": "hello"})
        assert (step.rewards, step.illegal) == ({"player": {"payoff": 0.5}}, ())
        assert "{'message': 'hello'}" in environment.observe("player").fields["seen"]
        assert not environment.success()
        clone = environment.clone()
        assert environment.step({"player": '{"message": "x", "metadata": {"a": 1}}'}).rewards["player"]["payoff"] == 0.5
        assert environment.to_move() == ()
        assert environment.success()
        assert clone.to_move() == ("player",)
        clone.step({"player": "bye"})
        assert clone.success()


def test_actions_that_are_no_single_text_are_json_of_the_schema() -> None:
    schema = {"properties": {"x": {"type": "integer"}}, "required": ["x"]}
    with served(polite, schema) as name:
        environment = begun(name)
        assert '"integer"' in environment.observe("player").fields["legal"]
        assert environment.step({"player": "3"}).illegal == ("player",)
        assert environment.observe("player").fields["note"] == "This was no action."
        assert environment.step({"player": '{"x": 3}'}).illegal == ()
    assert text_field(SCHEMA) == "message"
    assert text_field(schema) is None
    assert text_field({"properties": {"a": {"type": "string", "enum": ["b"]}}, "required": ["a"]}) is None


def after_reset(then: Handler) -> Handler:
    def handle(connection: Any) -> None:
        connection.recv()
        connection.send(observed("begun"))
        connection.recv()
        then(connection)

    return handle


def error(code: str, message: str = "no") -> str:
    return json.dumps({"type": "error", "data": {"message": message, "code": code}})


def hangs(connection: Any) -> None:
    connection.recv()


def floods(connection: Any) -> None:
    while True:
        connection.send(observed("more"))


HOSTILE: dict[str, tuple[Handler, str]] = {
    "hangs": (hangs, r"did not answer within 0\.5 s"),
    "dies": (lambda connection: connection.close(), "ended the session"),
    "drops": (lambda connection: connection.socket.shutdown(socket.SHUT_RDWR), "ended the session"),
    "too long": (lambda connection: connection.send("x" * (MOST_BYTES + 1)), "ended the session"),
    "no JSON": (lambda connection: connection.send("{"), "sent something else than JSON"),
    "deep JSON": (lambda connection: connection.send("[" * 100_000), "sent something else than JSON"),
    "bytes": (lambda connection: connection.send(b"\xff\xfe"), "sent something else than JSON"),
    "another form": (lambda connection: connection.send('["observation"]'), "sent an answer of another form"),
    "no data": (lambda connection: connection.send('{"type": "observation", "data": 3}'), "another form"),
    "an error": (lambda connection: connection.send(error("EXECUTION_ERROR", "boom")), r"reports 'boom' \(EXECUTION"),
    "no number": (lambda connection: connection.send(observed("x", reward="much")), "no finite number"),
    "infinite": (lambda connection: connection.send(observed("x", reward=1e300 * 1e300)), "no finite number"),
    "long text": (lambda connection: connection.send(observed("x" * 30_000)), "more than 20000 characters"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_server_that_answers_wrongly_is_one_error_that_names_it(kind: str) -> None:
    handler, why = HOSTILE[kind]
    with served(after_reset(handler)) as name:
        environment = begun(f"{name}(timeout_s=0.5)")
        start = monotonic()
        with pytest.raises(EnvironmentFault, match=f"the OpenEnv server http://127.*{why}"):
            environment.step({"player": "hello"})
        assert monotonic() - start < 5


def test_a_server_that_floods_is_refused_as_soon_as_a_message_is_there_that_nobody_asked_for() -> None:
    with served(after_reset(floods)) as name:
        environment = begun(f"{name}(timeout_s=2, max_turns=1000)")

        def play_on() -> None:  # messages take a moment to come
            for _ in range(500):
                environment.step({"player": "hello"})

        with pytest.raises(EnvironmentFault, match="sent a message that nobody had asked for"):
            play_on()


def test_an_action_that_the_server_refuses_is_illegal_and_the_episode_goes_on() -> None:
    def handle(connection: Any) -> None:
        connection.send(error("VALIDATION_ERROR", "Invalid message"))
        connection.recv()
        connection.send(observed("fine", reward=1.0, done=True))

    with served(after_reset(handle)) as name:
        environment = begun(name)
        assert environment.step({"player": "hello"}).illegal == ("player",)
        assert environment.observe("player").fields["note"] == "This was no action: Invalid message"
        environment.step({"player": "hello"})
        assert environment.success()


def test_a_server_without_a_free_session_says_so() -> None:
    def full(connection: Any) -> None:
        connection.send(error("CAPACITY_REACHED", "Server at capacity: 1/1 sessions active"))
        connection.recv(timeout=5)

    why = r"reports 'Server at capacity: 1/1 sessions active' .*Start it with more sessions"
    with served(full) as name, pytest.raises(EnvironmentFault, match=why):
        begun(name)


def test_an_environment_that_begins_otherwise_each_time_cannot_be_copied() -> None:
    numbers = iter(range(9))

    def handle(connection: Any) -> None:
        for _ in connection:
            connection.send(observed(str(next(numbers))))

    with served(handle) as name:
        environment = begun(name)
        with pytest.raises(EnvironmentFault, match="the game depends on more than its seed"):
            environment.clone().observe("player")


def test_the_key_is_sent_and_in_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHO_KEY", "s3cret")
    sent: list[str | None] = []

    def handle(connection: Any) -> None:
        sent.append(connection.request.headers.get("Authorization"))
        connection.close()

    with served(handle) as name, pytest.raises(EnvironmentFault) as failed:
        begun(f"{name}(key_env=ECHO_KEY)")
    assert sent == ["Bearer s3cret"]
    assert "s3cret" not in str(failed.value)
    (access,) = option_accesses({"id": "openenv:https://e.example(key_env=ECHO_KEY)"}, "scenario.options")
    assert access.what == "send requests to https://e.example with the key in the environment variable ECHO_KEY"
    assert access.kind == "server"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("ftp://host", "write the server's address"),
        ("http://127.0.0.1:9(timeout=3)", "timeout: Extra inputs.*Possible: timeout_s, max_turns, key_env, seat"),
        ("http://127.0.0.1:9(timeout_s=0)", "timeout_s: Input should be greater than 0"),
        ("http://127.0.0.1:9(key_env=NOT_SET_ANYWHERE)", "NOT_SET_ANYWHERE is not set"),
    ],
)
def test_an_id_that_is_wrong_says_why(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        open_bridge(f"openenv:{name}")


def test_a_server_that_is_not_there_or_is_none_is_refused_before_anything_begins() -> None:
    with pytest.raises(ConfigError, match=r"cannot be used: GET /schema: .*refused.*Check the address"):
        open_bridge(f"openenv:http://127.0.0.1:{free_port()}")
    with served(polite, status=404) as name, pytest.raises(ConfigError, match="status 404, no schema of actions"):
        open_bridge(name)


def test_a_team_in_words_reads_it() -> None:
    with served(polite) as name:
        scenario = build_scenario(ScenarioOptions(name="bridge", options={"id": name, "style": "words"}))
        environment = scenario.environment()
        environment.reset(scenario.task("train", 0))
        for team in scenario.teams.values():
            roles = build_roles(team)
            compile_team(team, roles)
            for role in roles.values():
                assert "told: seed" in role.prompt(View(observation=environment.observe(role.spec.view or "player")))
        with pytest.raises(ConfigError, match="its actions are texts"):
            build_scenario(ScenarioOptions(name="bridge", options={"id": name}))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The id of a server of the package."""
    port = free_port()
    script = Path(__file__).with_name("openenv_server.py")
    process = subprocess.Popen([PYTHON, str(script), str(port), "64"], env={**os.environ, "PYTHONPATH": ""})
    try:
        limit = monotonic() + 280
        while monotonic() < limit and process.poll() is None:
            try:
                with urlopen(f"http://127.0.0.1:{port}/schema", timeout=2):
                    break
            except OSError:
                threading.Event().wait(0.2)
        yield f"openenv:http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@real
class TestRealServer(EnvironmentContract):
    @pytest.fixture(autouse=True)
    def _served(self, server: str) -> None:
        self.id = f"{server}(max_turns=6)"

    def make_environment(self) -> Environment:
        return open_bridge(self.id)

    def task(self, number: int) -> Task:
        return Task(id=f"train-{number}", seed=number)

    # Any text is an action there.
    def test_a_pass_is_legal_and_nonsense_is_not(self) -> None:
        environment = self.started(1)
        assert environment.step({"player": ""}).illegal == ()
        assert environment.step({"player": '{"no such field": 1}'}).illegal == ("player",)


@real
def test_a_server_of_the_package_is_played(server: str) -> None:
    environment = begun(server, seed=3)
    seen = environment.observe("player").fields["seen"]
    number = seen.split("Say ")[1].split(".")[0]
    assert "left: 3" in seen
    assert environment.step({"player": "nothing"}).rewards == {"player": {"payoff": 0.0}}
    assert environment.step({"player": '{"wrong": 1}'}).illegal == ("player",)
    assert environment.clone().step({"player": number}).rewards == {"player": {"payoff": 1.0}}
    assert environment.step({"player": number}).rewards == {"player": {"payoff": 1.0}}
    assert environment.success()


@real
def test_a_server_of_the_package_that_breaks_in_a_step_fails_the_episode_alone(server: str) -> None:
    environment = begun(server)
    with pytest.raises(EnvironmentFault, match=r"reports 'broken on purpose' \(EXECUTION_ERROR\)"):
        environment.step({"player": "break"})
    assert begun(server).to_move() == ("player",)
