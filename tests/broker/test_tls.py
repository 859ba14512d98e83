"""TLS on a real mosquitto: who knows the authority is let in, nobody else."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import aiomqtt
import pytest
from brokers import Broker, broker, needs_mosquitto, needs_openssl, presence_topic

pytestmark = [needs_mosquitto, needs_openssl]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with TLS."""
    with broker("relay", tmp_path_factory.mktemp("served") / "broker", "--tls") as running:
        yield running


async def check_serves(running: Broker) -> None:
    """A client with the authority and its password reads what it is sent."""
    topic = presence_topic("default", "coordinator", "p1")
    trusting = ssl.create_default_context(cafile=running.directory / "tls" / "ca.crt")
    async with running.client("coordinator", tls_context=trusting) as client:
        await client.subscribe(topic, qos=1)
        await client.publish(topic, b"here", qos=1)
        assert (await anext(aiter(client.messages))).payload == b"here"


async def test_a_client_with_the_authority_is_served(served: Broker) -> None:
    assert f"mqtts://127.0.0.1:{served.port}" in served.greeting
    assert f"Clients verify the broker with {served.directory}/tls/ca.crt" in served.greeting
    await check_serves(served)


async def test_a_client_without_the_authority_does_not_trust_the_broker(served: Broker) -> None:
    raw = socket.create_connection(("127.0.0.1", served.port), timeout=10)
    with raw, pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(raw, server_hostname="127.0.0.1")
    await check_serves(served)


async def test_a_client_without_tls_gets_no_answer_of_mqtt(served: Broker) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as raw:
        raw.sendall(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01a")  # CONNECT as client 'a', MQTT 3.1.1
        try:
            first = raw.recv(1)
        except ConnectionResetError:
            first = b""
    assert first in (b"", b"\x15"), "the end, or an alert of TLS; MQTT's answer begins with 0x20"
    await check_serves(served)


async def test_tls_alone_lets_nobody_in(served: Broker) -> None:
    trusting = ssl.create_default_context(cafile=served.directory / "tls" / "ca.crt")
    with pytest.raises(aiomqtt.MqttError, match=r"[Nn]ot authori[sz]ed"):
        await served.client("coordinator", password=None, tls_context=trusting).__aenter__()
    await check_serves(served)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_todays_versions_of_tls_are_spoken(served: Broker, version: ssl.TLSVersion) -> None:
    trusting = ssl.create_default_context(cafile=served.directory / "tls" / "ca.crt")
    trusting.minimum_version = trusting.maximum_version = version
    async with served.client("operator", tls_context=trusting) as client:
        await client.subscribe("$SYS/broker/version")


def test_the_log_of_a_start_shows_no_error(tmp_path: Path) -> None:
    with broker("relay", tmp_path / "broker", "--tls") as running:
        log = (tmp_path / "broker.log").read_text()
    assert "rror" not in log
    assert running.process.returncode == 0
