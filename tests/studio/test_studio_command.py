"""The command `mas studio`: its greeting, its end, and what it says of mistakes."""

import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from conftest import Ran
from started import COMMAND, greeting_of


def test_the_command_prints_its_address_and_ctrl_c_ends_it_cleanly(tmp_path: Path) -> None:
    studio = subprocess.Popen(
        [*COMMAND, "studio", str(tmp_path), "--port", "0", "--allow-host", "box.example"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "MAS_API_KEY"},
    )
    try:
        greeting = greeting_of(studio)
        assert "studio of 0 runs: http://127.0.0.1:" in greeting
        with httpx.Client(base_url=greeting.split()[4]) as asking:
            named = [asking.get("/", headers={"Host": name}).status_code for name in ("box.example", "evil.example")]
        assert named == [200, 421]
        studio.send_signal(signal.SIGINT)
        _, errors = studio.communicate(timeout=60)
    finally:
        studio.kill()
        studio.communicate()
    assert errors == ""
    assert studio.returncode == 0


def test_the_command_says_what_is_wrong(
    mas: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MAS_API_KEY", raising=False)
    missing = mas("studio", str(tmp_path / "none"))
    assert missing.code == 2
    assert "is no directory: name a run, a folder with runs below it, or the file of a league (.db)" in missing.err
    public = mas("studio", str(tmp_path), "--host", "0.0.0.0")
    assert public.code == 2
    assert "--host 0.0.0.0 lets other machines ask, and there is no key" in public.err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        busy = mas("studio", str(tmp_path), "--port", str(port))
    assert busy.code == 2
    assert f"127.0.0.1:{port} cannot be listened at" in busy.err
    assert "Traceback" not in busy.err
