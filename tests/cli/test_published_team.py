"""What a run publishes: no path, address, name of a variable or code of the machine that trained it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_hub import TOKEN
from huggingface_hub import ModelCard

import mas as package
from mas.config.access import accesses_of
from mas.core.errors import ConfigError, RunDirectoryError
from mas.runs.public_config import public, public_command, public_config
from mas.runs.publish import publish_team, team_files

Mas = Callable[..., Any]
SHORT = ("train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=2", "train.eval_every=0")
PRIVATE = (
    *("engine=vllm_server", "engine.remote.url=http://gpu7.internal:8000/v1", "engine.remote.key_env=COMPANY_KEY"),
    *("engine.remote.shared_dir=/mnt/secret/adapters", "peers.judge.url=http://judge.internal/v1"),
    *("peers.judge.key_env=JUDGE_KEY", "peers.judge.model=/models/judge", "train.start=/home/me/runs/first@20"),
    *("train.sinks=[/home/me/sink.py:Sink]", "model.path=/home/me/models/my-base", "run_dir=/home/me/runs/x"),
    *("cluster.kind=ray", "cluster.address=ray.internal:6379", "cluster.workers=2", "model.device=cpu"),
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, small_overrides: tuple[str, ...], mas_cache: Path) -> Path:
    run = tmp_path_factory.mktemp("published") / "run"
    package.train(package.load_config(["scenario=relay", *SHORT, *small_overrides, f"run_dir={run}"]), quiet=True)
    return run


def test_the_configuration_names_nothing_outside() -> None:
    config = package.load_config(["scenario=relay", *PRIVATE])
    told = yaml.safe_dump(public_config(config).model_dump(mode="json"))
    for text in ("internal", "KEY", "/home", "/mnt", "/models", "secret"):
        assert text not in told, text
    left = {access.what for access in accesses_of(public_config(config)) if "team.yaml" not in access.what}
    assert left == {"load the model my-base", "send requests to http://127.0.0.1:8000/v1"}
    assert public_config(config).peers["judge"].model == "judge"


def test_the_command_leaves_out_what_is_private_and_says_so() -> None:
    command, left_out = public_command(package.load_config(["scenario=relay", *PRIVATE, "train.seed=3"]))
    for text in ("internal", "KEY", "/home", "/mnt"):
        assert text not in command, text
    assert {"engine.remote.url", "peers.judge.url", "train.start", "train.sinks", "cluster.address"} <= set(left_out)
    words = command.split()
    assert words[:3] == ["mas", "train", "scenario=relay"]
    assert {"model.path=my-base", "train.seed=3", "cluster.workers=2"} <= set(words)


@pytest.mark.parametrize(("value", "said"), [
    ("/home/me/rows.jsonl", "rows.jsonl"),
    ("~/rows.jsonl", "rows.jsonl"),
    ("s3://bucket/of/me/rows.jsonl?key=abc", "rows.jsonl"),
    ("C:\\\\me\\\\rows.jsonl", "rows.jsonl"),
    ("../rows.jsonl", "rows.jsonl"),
    ("org/set", "org/set"),
    ("Answer yes/no", "Answer yes/no"),
    ("/think about it", "/think about it"),
    ({"a": ["/home/me/x", 1, None]}, {"a": ["x", 1, None]}),
    ("/home/me/reward.py:score", "reward.py:score"),
    ("game(filename=/home/me/a.txt)", "game(filename=a.txt)"),
])  # fmt: skip
def test_of_paths_and_addresses_the_last_part_stays(value: object, said: object) -> None:
    assert public(value) == said


def test_a_team_that_needs_code_is_not_published(trained: Path, tmp_path: Path, mas: Mas) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    team = yaml.safe_load((run / "team.yaml").read_text())
    (tmp_path / "mine.py").write_text("from mas.roles.kinds import Planner as Mine\n")
    team["roles"]["planner"]["type"] = f"{tmp_path / 'mine.py'}:Mine"
    (run / "team.yaml").write_text(yaml.safe_dump(team))
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["algorithm"]["team"] = "team.yaml"
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    ran = mas("export", str(run), "--card", "--out", str(tmp_path / "out"), "--trust")
    assert ran.code == 2
    assert f"this team cannot be published: it would import {tmp_path / 'mine.py'}:Mine" in ran.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["instructions", "home"])
def test_a_secret_or_a_path_in_a_text_of_the_team_is_found_before_it_is_written(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    monkeypatch.setenv("SOME_API_KEY", "sk-of-the-user-123")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    said, secret = {
        "instructions": ("the value of the environment variable SOME_API_KEY", "sk-of-the-user-123"),
        "home": (f"the path {Path.home()}", f"{Path.home()}/notes"),
    }[place]
    team = yaml.safe_load((run / "team.yaml").read_text())
    team["roles"]["planner"]["instructions"] = f"Say {secret}."
    (run / "team.yaml").write_text(yaml.safe_dump(team))
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["algorithm"]["team"] = "team.yaml"
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(ConfigError, match=said) as caught:
        package.Run(run).export_team(tmp_path / "out")
    assert "sk-of-the-user-123" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_the_folder_of_a_card_is_a_run_that_plays(trained: Path, tmp_path: Path, mas: Mas) -> None:
    out = tmp_path / "deep" / "out"
    ran = mas("export", str(trained), "--card", "--out", str(out))
    assert (ran.code, ran.out.strip()) == (0, str(out)), ran.err
    assert mas("run", str(out)).out.splitlines()[1:] == mas("run", str(trained)).out.splitlines()[1:]
    assert "mas run .\n" in (out / "README.md").read_text()
    again = mas("export", str(trained), "--card", "--out", str(out))
    assert (again.code, "is there already and not empty" in again.err) == (2, True)


def test_a_base_on_a_hub_is_named_with_its_license(trained: Path, tmp_path: Path) -> None:
    """The adapters say that they were trained on another base."""
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    shutil.rmtree(run / "checkpoints")
    for path in run.glob("adapters/*/adapter_config.json"):
        named = {"base_model_name_or_path": "some-org/some-model", "revision": "a" * 40}
        path.write_text(json.dumps(json.loads(path.read_text()) | named))
    asked = []

    class Api:
        def model_info(self, name: str) -> Any:
            asked.append(name)
            return type("Info", (), {"card_data": type("Card", (), {"license": "mit"})})

    files = team_files(run, ["model.path=some-org/some-model"], "org/team", Api())
    card = ModelCard(files["README.md"].decode())
    assert asked == ["some-org/some-model"]
    assert (card.data.base_model, card.data.license) == ("some-org/some-model", "mit")
    assert f"on the base `some-org/some-model` at commit `{'a' * 40}`" in card.text
    assert "mas run hub:org/team model.path=some-org/some-model\n" in card.text
    assert 'PeftModel.from_pretrained(base, "this/folder/adapters/' in card.text


def test_experiences_are_published_where_no_weight_was_trained(
    tmp_path: Path, mas: Mas, small_overrides: tuple[str, ...]
) -> None:
    words = (
        "scenario=relay",
        "algorithm=training_free",
        "algorithm.options.editor=quote",
        *SHORT,
        *small_overrides[:-1],
    )
    assert mas("train", *words, f"run_dir={tmp_path / 'run'}").code == 0
    out = tmp_path / "out"
    ran = mas("export", str(tmp_path / "run"), "--card", "--out", str(out))
    assert ran.code == 0, ran.err
    assert sorted(path.name for path in (out / "experiences").iterdir()) == ["executor.json", "planner.json"]
    assert json.loads((out / "published.json").read_text())["base"] is None
    card = ModelCard((out / "README.md").read_text())
    assert card.data.library_name == "mas"
    assert "text that its roles have learned" in card.text
    assert mas("run", str(out)).out.splitlines()[1:] == mas("run", str(tmp_path / "run")).out.splitlines()[1:]


def test_a_disk_without_room_for_what_is_uploaded_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr("mas.runs.publish.team_files", lambda *_: {"team.yaml": b"x"})
    monkeypatch.setattr("mas.runs.publish.write_directory_atomic", full)
    with pytest.raises(RunDirectoryError, match=r"cannot be written: No space left on device: let TMPDIR name"):
        publish_team(tmp_path, "org/team")
