"""Options that do not fit are refused before anything is written."""

import socket
from pathlib import Path
from typing import Any

import pytest

from mas.broker.options import BrokerOptions
from mas.core.errors import ConfigError

HERE = Path("broker")


def test_the_default_is_this_machine_alone() -> None:
    options = BrokerOptions(directory=HERE)
    assert options.url() == "mqtt://127.0.0.1:1883/default"
    assert all(address.is_loopback for address in options.addresses())


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({"port": 1999}, "mqtt://127.0.0.1:1999/default"),
        ({"is_tls": True}, "mqtts://127.0.0.1:8883/default"),
        ({"host": "::1"}, "mqtt://[::1]:1883/default"),
        ({"host": "localhost"}, "mqtt://localhost:1883/default"),
        ({"host": "0.0.0.0", "is_tls": True, "name": "bus.example.org"}, "mqtts://bus.example.org:8883/default"),
        ({"host": "0.0.0.0", "is_tls": True}, f"mqtts://{socket.gethostname()}:8883/default"),
        ({"cert": HERE, "key": HERE, "port": 9000}, "mqtts://127.0.0.1:9000/default"),
    ],
)
def test_the_address_of_clients_follows_from_the_options(given: dict[str, Any], url: str) -> None:
    assert BrokerOptions(directory=HERE, **given).url() == url


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"host": "0.0.0.0"}, "send their passwords in the clear. Add --tls"),
        ({"host": "::"}, "lets other machines connect"),
        ({"host": "192.0.2.1"}, "lets other machines connect"),
        ({"host": "nowhere.invalid"}, "no address for --host 'nowhere.invalid'"),
        ({"host": ""}, "clients cannot reach ''"),
        ({"name": "two words"}, "clients cannot reach 'two words', which is neither a host's name nor an address"),
        ({"name": "x\nDNS:evil"}, "clients cannot reach"),
        ({"name": "x,DNS:evil"}, "clients cannot reach"),
        ({"is_tls": True, "cert": HERE, "key": HERE}, "give one of them"),
        ({"cert": HERE}, "--cert and --key belong together"),
        ({"key": HERE}, "--cert and --key belong together"),
        ({"ca": HERE}, "--ca has no effect without --cert"),
        ({"space": ""}, "--space '' is no name"),
        ({"space": "a/b"}, "--space 'a/b' is no name"),
        ({"max_packet_bytes": 5000, "max_queued_bytes": 4999}, "could never be queued"),
        ({"max_memory_bytes": 2**20}, "--max-memory-bytes 1048576 is less than may wait for one client"),
        ({"directory": Path("a\nb")}, "line break"),
        ({"cert": Path("a\nuser root"), "key": HERE}, "line break"),
    ],
)
def test_options_that_do_not_fit_are_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerOptions(**{"directory": HERE} | given)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
