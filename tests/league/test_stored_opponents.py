"""What a stored run, a checkpoint or a league names of opponents and starts: refused, or not needed to play."""

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from parts import SKILLED

from mas.config.load import load_config
from mas.config.stored_run import load_run_config
from mas.config.trust import trusting
from mas.core.errors import TrustError
from mas.league.match import LeagueMember
from mas.league.opponents import LeaguePool, open_pool
from mas.league.store import LeagueStore
from mas.scenarios import build_scenario

pytest.importorskip("pyspiel")
TINY = [f"model.tiny.{name}={value}" for name, value in SKILLED.tiny.model_dump(exclude_defaults=True).items()]
OPPONENTS = "algorithm.opponents"
SERVER = "openai:m@https://evil.example/v1#MAS_TEST_SECRET"


def pool_of(*overrides: str) -> LeaguePool:
    config = load_config(["scenario=two_player", "algorithm=spiral", "model.lora.rank=4", *TINY, *overrides])
    pool = open_pool(config, build_scenario(config.scenario))
    assert pool is not None
    return pool


def test_members_of_a_league_that_use_a_server_are_refused(tmp_path: Path) -> None:
    league = tmp_path / "pool.db"
    LeagueStore.open(league).enter(LeagueMember(name="b", source=SERVER))
    with pytest.raises(TrustError, match=r"https://evil.example/v1 with the key .*\(player b\)"):
        pool_of(f"{OPPONENTS}.league='{league}'")
    with trusting():
        assert pool_of(f"{OPPONENTS}.league='{league}'").players == {"b": SERVER}


def test_opponents_of_a_checkpoint_that_use_a_server_are_refused_unless_the_command_names_them(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoints" / "step-000001"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").write_text("{}")
    (checkpoint / "opponents.json").write_text(json.dumps({"players": {"luck": SERVER}, "games": {}}))
    here = f"run_dir='{tmp_path}'"
    with pytest.raises(TrustError, match=r"https://evil.example/v1 with the key .*\(player luck\)"):
        pool_of(f"{OPPONENTS}.players.luck=random", here)
    assert pool_of(f"{OPPONENTS}.players.luck='{SERVER}'", here).players == {"luck": SERVER}


def test_a_run_whose_start_is_gone_is_compared_with_adapters_that_change_nothing(
    trained: Path, tmp_path: Path, mas: Callable[..., Any]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["train"]["start"] = str(tmp_path / "gone@2")
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    words = ("eval", str(run), "--tasks", "2")
    refused = mas(*words)
    assert (refused.code, "begin with the adapters of" in refused.err) == (2, True)
    found = mas(*words, "--trust")
    assert (found.code, "untrained: with adapters that change nothing" in found.out) == (0, True), found
    config["train"]["start"] = None
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    assert mas(*words).out.splitlines()[-5:] == found.out.splitlines()[-5:]


def test_a_run_with_opponents_and_a_start_plays_without_them(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["train"]["start"] = str(tmp_path / "gone@2")
    config["algorithm"]["opponents"] = {"players": {"a": SERVER}}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    assert pool_of(f"{OPPONENTS}.players.old='run:{run}@2'").players == {"old": f"run:{run}@2"}
    with pytest.raises(TrustError, match="begin with"):
        pool_of(f"{OPPONENTS}.players.old='run:{run}@0'")
    with pytest.raises(TrustError, match=r"evil.example"):
        load_run_config(run)


@pytest.mark.parametrize("command", ["match", "export", "run", "enter", "forgetting"])
@pytest.mark.parametrize(
    ("game", "said"),
    [
        ("questions,path=d.jsonl,reward=evil.py:score", "names code"),
        ("questions,path=d.jsonl,reward=!!binary ZXZpbC5weTpzY29yZQ==", "names code"),
        ("questions,path=/srv/d.jsonl", "read /srv/d.jsonl   (game.path)"),
        ("open_spiel:efg_game(filename=secret.efg)", "secret.efg   (game.id)"),
    ],
)
def test_a_stored_game_imports_no_code_and_reads_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mas: Callable[..., Any], command: str, game: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('was_here', 'w')\ndef score(said, row): return 1\n")
    rows = [json.dumps({"question": f"q{n}", "answer": "a"}) + "\n" for n in range(40)]
    (tmp_path / "d.jsonl").write_text("".join(rows))
    terms = {"game": game, "players": {"a": "random", "b": "random"}, "games": 2, "seed": 0}
    name = "cup" if command in ("match", "export") else "gate: a"
    with closing(LeagueStore.open("l.db")) as store:
        store.begin(name, terms)
        store.enter(LeagueMember(name="a", source="random"))
        store.enter(LeagueMember(name="b", source="random", parent="a"))
    words = {
        "match": ["0/0/a"],
        "export": ["--out", "out"],
        "run": ["--members", "--player", "c=random"],
        "enter": ["random", "--name", "c"],
        "forgetting": [],
    }
    found = mas("league", command, *words[command], "--league", "l.db")
    assert found.code == 2
    assert said in found.err, found
    assert not (tmp_path / "was_here").exists()


def test_the_game_of_a_candidate_imports_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mas: Callable[..., Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    run.mkdir()
    (run / "evil.py").write_text("open('was_here', 'w')\ndef score(said, row): return 1\n")
    (run / "d.jsonl").write_text("".join(json.dumps({"question": f"q{n}", "answer": "a"}) + "\n" for n in range(40)))
    options = {"path": str(run / "d.jsonl"), "reward": f"{run}/evil.py:score"}
    (run / "config.yaml").write_text(yaml.safe_dump({"scenario": {"name": "questions", "options": options}}))
    found = mas("league", "enter", f"run:{run}@0", "--league", "l.db")
    assert found.code == 2
    assert "evil.py:score   (scenario.options.reward)" in found.err, found
    assert not (tmp_path / "was_here").exists()
