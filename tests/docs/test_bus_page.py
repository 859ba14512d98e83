"""The page on the bus: its programs run, and its names and defaults are those of the code."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mosquitto import Mosquitto, needs_mosquitto
from pages import ROOT, blocks, read

from mas.bus.mqtt import MqttStatistics
from mas.bus.mqtt.options import MqttOptions
from mas.core import errors


@pytest.mark.nightly(of=16)
@needs_mosquitto
def test_the_two_programs_and_the_broker_of_the_page_work(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path, "")
    programs = {block.file: block.text for block in (*blocks("docs/bus.md", "python"), *blocks("docs/bus.md", ""))}
    for name, text in programs.items():
        assert name is not None
        (tmp_path / name).write_text(text.replace("1883", str(broker.port)))
    broker.config = tmp_path / "mosquitto.conf"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        broker.start()
        with subprocess.Popen(
            [sys.executable, "worker.py"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE
        ) as worker:
            try:
                assert worker.stdout is not None
                assert worker.stdout.readline() == b"ready\n"
                asked = [sys.executable, "asker.py"]
                done = subprocess.run(asked, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
                assert done.stdout == "HELLO says worker\n", done.stderr
                again = [sys.executable, "again.py"]
                for life in (1, 2):
                    done = subprocess.run(
                        again, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
                    )
                    assert done.stdout == f"HELLO in life {life}\n", done.stderr
            finally:
                worker.kill()
    finally:
        broker.kill()


def test_options_counters_and_errors_of_the_page_exist() -> None:
    text = read("docs/bus.md")
    options = {field.name: field.default for field in dataclasses.fields(MqttOptions)}
    for name, number in re.findall(r"`(\w+_s)` ?(?:=|\()? ?(\d+) s", text):
        assert options[name] == float(number)
    assert options["remembered"] == 16_384
    assert options["outbox"] == 1_024
    assert options["max_frame_bytes"] == 4 << 20
    assert (options["inline_bytes"], options["max_stored_bytes"]) == (64 << 10, 1 << 30)
    for name in ("resent", "repeated", "lost", "malformed", "forged", "reconnects", "outbox", "stored", "fetched"):
        assert f"`{name}`" in text
        assert name in MqttStatistics.__struct_fields__
    named = set(re.findall(r"`([A-Z][a-z]+[A-Za-z]*)`", text)) - {"Envelope", "EnvelopeFactory", "MqttOptions"}
    assert {name for name in named if not hasattr(errors, name)} == {"MemoryBus", "MqttBus"}
