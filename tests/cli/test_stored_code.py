"""A stored run of somebody else names code: no command and no method of `mas.Run` imports it without consent."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Ran

import mas as package
from mas.core.errors import MasError

SPY = "from pathlib import Path\nPath(__file__).with_suffix('.ran').write_text('')\n"
RELAY: dict[str, Any] = {"scenario": {"name": "relay"}}
TEAM = "name: theirs\nroles: {solo: {type: 'spy_module:Spy'}}\nedges: [start -> solo, solo -> done]\noutput: solo\n"
METRICS = '{"step": 0, "eval": {"greedy": {"success": 0.5}}}\n'


def stored(kind: str, spy: str) -> dict[str, Any]:
    """The configuration of a run that names the code of a file, or of a module in its team."""
    return {
        "class": {"scenario": {"name": f"{spy}:Spy"}},
        "arm": RELAY | {"train": {"tasks": {"source": "mixture", "arms": {"a": {"scenario": f"{spy}:Spy"}, "b": {}}}}},
        "reward": {"scenario": {"name": "questions", "options": {"path": "rows.jsonl", "reward": f"{spy}:spy"}}},
        "algorithm": RELAY | {"algorithm": {"code": spy}},
        "algorithm's name": RELAY | {"algorithm": {"code": f"{spy}:algorithm"}},
        "role": RELAY | {"algorithm": {"team": "team.yaml"}},
    }[kind]


KINDS = ["class", "arm", "reward", "algorithm", "algorithm's name", "role"]


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a run that has metrics and no checkpoint, beside the code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "spy_module.py").write_text(SPY)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"question": f"{n}?"}) + "\n" for n in range(12)))
    run = tmp_path / "run"
    run.mkdir()
    (run / "team.yaml").write_text(TEAM)
    (run / "metrics.jsonl").write_text(METRICS)
    return run


@pytest.mark.parametrize("kind", KINDS)
def test_no_method_and_no_command_imports_what_a_stored_run_names(
    kind: str, theirs: Path, mas: Callable[..., Ran]
) -> None:
    spy, at = theirs.parent / "spy_module.py", str(theirs)
    (theirs / "config.yaml").write_text(json.dumps(stored(kind, str(spy))))
    run = package.Run(theirs)
    methods: dict[str, Callable[[], object]] = {
        "evaluate": run.evaluate,
        "play": run.play,
        "ask": lambda: run.ask("?"),
        "report": run.report,
        "config": run.config,
        "export": lambda: run.export(theirs.parent / "out"),
        "curves": run.curves,
        "repr": run._repr_html_,
        "resume": lambda: package.train(package.load_run_config(run.path), quiet=True),
        "league": lambda: package.League("two_player:kuhn_poker", theirs.parent / "c.db").play(
            {"a": run, "b": "random"}
        ),
    }
    refused = set()
    for name, act in methods.items():
        try:
            act()
        except MasError:
            refused.add(name)
    wanted = {"evaluate", "play", "ask", "report", "config", "export", "resume", "league"}
    assert refused >= wanted
    commands = [
        *(["eval", at], ["run", at], ["report", at], ["export", at], ["serve", at], ["play", at], ["curves", at]),
        *(["timeline", at], ["agent", "planner", at], ["eval", at, "--on", "two_hop"]),
        ["league", "run", "--game", "two_player:kuhn_poker", "--player", f"a=run:{at}", "--player", "b=random"],
        ["league", "respond", "--to", f"run:{at}"],
    ]
    for words in commands:
        mas(*words)
    assert not spy.with_suffix(".ran").exists(), "nothing of theirs was executed"
