"""`mas tinker` as a process, and the example that trains on it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import tinker
from conftest import BaseFor, Ran
from started import COMMAND, greeting_of
from tinker_server_thread import RunningTinker

from mas.serving.model import BaseModel

EXAMPLE = Path(__file__).parents[2] / "examples" / "tinker" / "digits.py"


@pytest.mark.nightly(of=16)
def test_the_command_serves_until_it_is_interrupted_and_needs_its_key(base: BaseModel, tmp_path: Path) -> None:
    key = "tml-s3cret-of-the-command"
    words = [*COMMAND, "tinker", f"model.path={base.name}", f"run_dir={tmp_path / 'run'}", "--port", "0"]
    words += ["--allow-host", "box.example"]
    environment = {**os.environ, "MAS_API_KEY": key}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, **pipes, text=True, env=environment) as process:  # type: ignore[call-overload]
        try:
            found = re.search(r"http://127\.0\.0\.1:\d+", greeting := greeting_of(process))
            assert found, greeting
            for name, status in (("box.example", 200), ("evil.example", 421)):
                assert httpx.get(f"{found[0]}/api/v1/healthz", headers={"Host": name}).status_code == status
            with tinker.ServiceClient(base_url=found[0], api_key=key) as client:
                training = client.create_lora_training_client(base.name, rank=2).result()
                path = training.save_state("kept").result().path
                with pytest.raises(tinker.AuthenticationError):
                    tinker.RestClient(base_url=found[0], api_key="tml-other").get_server_capabilities().result()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=150)
        finally:
            process.kill()
    assert (process.returncode, err) == (0, "")
    assert "closing: saved weights stay" in out
    assert key not in greeting + out
    assert (tmp_path / "run" / path.split("/")[2].replace(":", "_") / "weights" / "kept").is_dir()


@pytest.mark.nightly(shard=False)  # minutes: SmolLM2 is loaded and trained
@pytest.mark.timeout(1800)
def test_a_loop_as_users_of_the_sdk_write_it_learns_on_a_real_model(smollm: Path, tmp_path: Path) -> None:
    """A server of its own with SmolLM2, and a script that knows nothing of mas."""
    words = [*COMMAND, "tinker", f"model.path={smollm}", f"run_dir={tmp_path / 'run'}", "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, **pipes, text=True) as process:  # type: ignore[call-overload]
        try:
            found = re.search(r"http://127\.0\.0\.1:\d+", greeting := greeting_of(process))
            assert found, greeting
            script = [sys.executable, str(EXAMPLE.with_name("animals.py")), "--url", found[0], "--steps", "6"]
            done = subprocess.run(script, capture_output=True, text=True, timeout=1500, check=False)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        finally:
            process.kill()
    assert done.returncode == 0, done.stderr
    losses = [float(one) for one in re.findall(r"loss ([\d.]+)", done.stdout)]
    assert len(losses) == 6
    assert losses[-1] < losses[0] / 3
    before, after = (re.findall(rf"{when}: (.*)", done.stdout)[0] for when in ("before", "after"))
    assert before != after
    assert re.fullmatch(r"'[A-Z][a-z]+!'", after)
    assert "saved: tinker://" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["engine=vllm"], "samples with engine=transformers, not with vllm"),
        (["cluster.workers=2"], "is one process: leave cluster out"),
        (["--host", "0.0.0.0"], "lets other machines ask, and there is no key"),
    ],
)
def test_what_the_command_cannot_do_is_said_at_once(words: list[str], said: str, mas: Callable[..., Ran]) -> None:
    ended = mas("tinker", *words)
    assert ended.code == 2
    assert said in ended.err


def test_a_key_that_the_sdk_would_not_send_is_refused(mas: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAS_API_KEY", "other-key")
    ended = mas("tinker")
    assert "begin with 'tml-'" in ended.err
    assert "other-key" not in ended.err


def test_without_the_package_the_error_names_the_extra(
    mas: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mas.tinker.command.find_spec", lambda name: None)
    assert "pip install 'mas[tinker]'" in mas("tinker").err


@pytest.mark.nightly
def test_the_example_learns(server: RunningTinker, base_for: BaseFor) -> None:
    words = [sys.executable, str(EXAMPLE), "--url", server.address, "--steps", "12", "--group", "16", "--lr", "0.02"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    rewards = [float(found) for found in re.findall(r"mean reward ([\d.]+)", done.stdout)]
    assert len(rewards) == 12
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.2
    assert "saved: tinker://" in done.stdout
