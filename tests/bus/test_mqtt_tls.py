"""The bus over TLS: a broker with the right certificate is taken, any other is refused."""

import gc
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mosquitto import OPEN, Mosquitto, needs_mosquitto, running_mosquitto

from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.options import MqttOptions
from mas.bus.serve import EnvelopeFactory
from mas.core.errors import Unreachable
from mas.core.messages import Note
from mas.testing.bus_suite import next_text

pytestmark = [
    needs_mosquitto,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed, which makes a certificate"),
]


def certificate(folder: Path, name: str) -> Path:
    """A certificate for 127.0.0.1 that vouches for itself; its key lies beside it."""
    path = folder / f"{name}.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(path.with_suffix(".key")), "-out", str(path)]
    subprocess.run(words, check=True, capture_output=True)
    return path


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    path = certificate(tmp_path, "broker")
    more = f"{OPEN}\ncertfile {path}\nkeyfile {path.with_suffix('.key')}"
    with running_mosquitto(tmp_path, more) as broker:
        yield of(broker), path


def of(broker: Mosquitto) -> str:
    return broker.url("alice").replace("mqtt://", "mqtts://")


async def test_messages_travel_when_the_certificate_is_trusted(secure):
    url, path = secure
    async with MqttBus.connect(url, ca_file=path) as bus, bus.subscribe("b") as inbox:
        for text in ("x", "y" * 300_000):
            await bus.publish(EnvelopeFactory("a").new("b", Note(text=text)))
            assert await next_text(inbox) == text


@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")  # paho leaves it to the collector
async def test_a_certificate_that_nobody_vouches_for_is_refused(secure, tmp_path):
    url, _ = secure
    for other in (None, certificate(tmp_path, "other")):
        with pytest.raises(Unreachable, match=r"CERTIFICATE_VERIFY_FAILED.*Give the CA file"):
            async with MqttBus.connect(url, ca_file=other):
                pass
    gc.collect()


async def test_speaking_plainly_to_a_broker_with_tls_is_one_clear_error_and_nothing_else(secure, caplog):
    url, _ = secure
    quick = MqttOptions(patience_s=1.0)
    with pytest.raises(Unreachable, match="does it speak without TLS"):
        async with MqttBus.connect(url.replace("mqtts://", "mqtt://"), options=quick):
            pass
    assert [record.message for record in caplog.records] == []
