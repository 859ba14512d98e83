"""What an actor of Ray is given and how it is ended, without a Ray: the parts of `RayLink` that a real one hides."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from cluster_cases import needs_ray

from mas.cluster import ClusterOptions
from mas.cluster.records import WorkerSpec
from mas.core.errors import CallExpired

pytestmark = [needs_ray, pytest.mark.nightly(shard=False)]
SPEC = WorkerSpec(
    kind="rollout", factory="a:make", arguments=b"", cpus=1.0, gpus=0.0, threads=1, environment=("PEER_KEY", "NOT_SET")
)


class Session:
    """Of a cluster whose Ray is slow as often as `slow` says."""

    def __init__(self, slow: int = 0) -> None:
        self.options = ClusterOptions(kind="ray", environment=("HF_TOKEN",))
        self.logs, self.host, self.slow = Path("logs"), "", slow

    def placing(self, name: str) -> str:
        return "DEFAULT"

    async def blocking(self, what: str, work: Callable[[], Any]) -> Any:
        self.slow -= 1
        if self.slow >= 0:
            raise CallExpired(f"Ray: {what} took longer than start_s=120")
        return work()


def link(session: Session) -> Any:
    from mas.cluster.ray_link import RayLink  # Ray may be missing

    return RayLink("rollout-0", SPEC, session)  # type: ignore[arg-type]


async def test_an_actor_that_was_not_killed_in_time_is_killed_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = list[object]()
    made = link(Session(slow=1))
    monkeypatch.setattr("mas.cluster.ray_link.ray.kill", killed.append)
    made._actor = actor = object()
    with pytest.raises(CallExpired, match="killing rollout-0 took longer"):
        await made.kill()
    assert killed == []
    for _ in range(2):  # the second does nothing
        await made.kill()
    assert killed == [actor]


def test_named_variables_reach_an_actor_but_not_the_arguments_that_ray_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    made, given = link(Session()), list[object]()
    monkeypatch.setenv("HF_TOKEN", "a token")
    monkeypatch.setenv("PEER_KEY", "a key")
    monkeypatch.setenv("OTHER_KEY", "not asked for")
    monkeypatch.delenv("NOT_SET", raising=False)

    def options(**chosen: object) -> object:
        given.extend(chosen.values())
        return SimpleNamespace(remote=lambda *arguments: given.extend(arguments))

    monkeypatch.setattr("mas.cluster.ray_link.ray.remote", lambda _: SimpleNamespace(options=options))
    made._make()
    assert ["HF_TOKEN", "PEER_KEY", "NOT_SET"] in given
    assert not any(secret in repr(given) for secret in ("a token", "a key"))
    assert msgspec.msgpack.decode(made._variables()) == {"HF_TOKEN": "a token", "PEER_KEY": "a key"}


async def test_an_actor_has_the_drivers_values_and_keeps_those_that_the_driver_does_not_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As on a node that has other values than the driver, or has one that the driver does not have."""
    from mas.cluster import ray_actor

    node = {"HF_TOKEN": "of the node", "NOT_SET": "of the node", "OTHER_KEY": "not asked for"}
    monkeypatch.setattr(ray_actor, "_redirect", lambda _: None)
    monkeypatch.setattr(os, "environ", node)
    names = ["HF_TOKEN", "PEER_KEY", "NOT_SET"]
    actor = ray_actor.RayWorker(msgspec.msgpack.encode(SPEC), names, 1 << 20, str(tmp_path / "rollout-0"))
    await actor.start(msgspec.msgpack.encode({"HF_TOKEN": "a token", "PEER_KEY": "a key"}))
    kept = {name: node.get(name) for name in (*names, "OTHER_KEY")}
    assert kept == {"HF_TOKEN": "a token", "PEER_KEY": "a key", "NOT_SET": "of the node", "OTHER_KEY": None}
