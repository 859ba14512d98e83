"""Publishing a team to a model hub and playing one from it, by the client of hubs against a hub on this machine."""

import hashlib
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import yaml
from fake_hub import TOKEN, FakeHub, FakeRepository, serving
from huggingface_hub import ModelCard, constants

import mas as package
from mas.core.errors import CheckpointError, HubError
from mas.core.host import cache_directory
from mas.runs.hub_source import HubSource, local_run
from mas.training.published import weights_digest

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")  # of the client's own call
Mas = Callable[..., Any]
SHORT = (
    "train.steps=2", "train.tasks_per_step=2", "train.eval_tasks=3", "train.eval_every=1", "train.seed=7",
    "train.token_budget=100000",
)  # fmt: skip
_names = count()


def _of_this_machine(host: str | bytes | None, *rest: Any, **named: Any) -> Any:
    """What `getaddrinfo` says of this machine. Nothing here may look for another one."""
    assert host in ("127.0.0.1", b"127.0.0.1"), host
    return GETADDRINFO(host, *rest, **named)


GETADDRINFO = socket.getaddrinfo


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    found = FakeHub()
    with serving(found) as address:
        for name, value in {"HF_ENDPOINT": address, "HF_TOKEN": TOKEN, "NO_PROXY": "127.0.0.1"}.items():
            monkeypatch.setenv(name, value)
        template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        offline = {"HF_HUB_OFFLINE": False, "HF_HUB_DISABLE_XET": True}
        for name, value in {"ENDPOINT": address, "HUGGINGFACE_CO_URL_TEMPLATE": template, **offline}.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setattr(socket, "getaddrinfo", _of_this_machine)
        monkeypatch.setattr(constants, "AGENT_HARNESSES_PATH", str(tmp_path / "agents.json"), raising=False)
        yield found
        huggingface_hub.close_session()


@pytest.fixture
def name() -> str:
    return f"org/team-{next(_names)}"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, small_overrides: tuple[str, ...], mas_cache: Path) -> Path:
    """A tiny team with an option that names a file of this machine."""
    run = tmp_path_factory.mktemp("of-the-user") / "run"
    config = package.load_config(["scenario=relay", *SHORT, *small_overrides, f"run_dir={run}"])
    package.train(config, quiet=True)
    return run


@pytest.fixture
def published(hub: FakeHub, name: str, trained: Path, mas: Mas) -> FakeRepository:
    """Published by the command."""
    ran = mas("export", str(trained), "--hub", name)
    assert ran.code == 0, ran.err
    assert TOKEN not in ran.out + ran.err
    assert ran.out.strip() == f"hub:{name}@{hub.repositories[name].head}"
    return hub.repositories[name]


@pytest.fixture(scope="module")
def folder(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What is published, by name."""
    out = package.Run(trained).export_team(tmp_path_factory.mktemp("card") / "out")
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.fixture
def there(hub: FakeHub, name: str, folder: dict[str, bytes]) -> FakeRepository:
    """A repository that holds it."""
    hub.repositories[name] = FakeRepository()
    hub.repositories[name].commit(folder)
    return hub.repositories[name]


def cached(name: str) -> list[str]:
    """What the cache holds of a repository, hidden names included."""
    folder = cache_directory() / "hub" / name.replace("/", "--")
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_a_published_team_plays_as_the_run_does(published: FakeRepository, name: str, trained: Path, mas: Mas) -> None:
    ran = mas("run", f"hub:{name}", "--task", "1")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[1:] == mas("run", str(trained), "--task", "1").out.splitlines()[1:]
    assert f"hub:{name}@{published.head}: downloading " in ran.err
    assert cached(name) == [published.head]
    mine, theirs = package.Run(trained), package.Run(f"hub:{name}@{published.head}")
    for task in range(4):
        assert str(theirs.play(task)) == str(mine.play(task))
    evaluated = mas("eval", f"hub:{name}", "--tasks", "5")
    assert evaluated.code == 0, evaluated.err
    assert evaluated.out.splitlines()[1:] == mas("eval", str(trained), "--tasks", "5").out.splitlines()[1:]


def test_it_is_one_commit_of_the_files_that_play_and_the_card(published: FakeRepository) -> None:
    assert len(published.commits) == 2, "that of the new repository, and that of the team"
    adapters = [f"adapters/{role}/adapter_{end}" for role in ("planner", "executor") for end in ENDS]
    looks = ["README.md", "learning_curve.svg"]
    assert sorted(published.files) == sorted(
        [".gitattributes", "config.yaml", "team.yaml", "published.json", *looks, *adapters]
    )
    assert published.private


ENDS = ("config.json", "model.safetensors")


def test_the_card_says_how_the_team_did_and_how_it_was_trained(
    published: FakeRepository, name: str, trained: Path
) -> None:
    card = ModelCard(published.files["README.md"].decode())
    lines = [line for line in package.Run(trained).metrics() if "greedy" in line.get("eval", {})]
    before, after = (line["eval"]["greedy"]["success"] for line in (lines[0], lines[-1]))
    assert card.data.library_name == "peft"
    assert {"mas", "relay"} <= set(card.data.tags)
    results = {result.metric_name: result.metric_value for result in card.data.eval_results}
    assert results["success, greedy"] == pytest.approx(after, abs=1e-6)
    assert f"| success, greedy | {before:.3f} | {after:.3f} |" in card.text
    assert "On 3 held-out tasks" in card.text
    assert "```mermaid\nflowchart LR\n" in card.text
    assert "| seed | 7 |" in card.text
    assert "| token budget | 100,000 tokens |" in card.text
    assert "![Success on held-out tasks by training step](learning_curve.svg)" in card.text
    assert b"<svg" in published.files["learning_curve.svg"]
    assert f"mas run hub:{name}\n" in card.text
    command = next(line for line in card.text.splitlines() if line.startswith("mas train "))
    again, stored = package.load_config(command.split()[2:]), package.load_run_config(trained)
    assert again.model_dump(exclude={"run_dir"}) == stored.model_dump(exclude={"run_dir"})


def test_nothing_of_this_machine_is_in_it(published: FakeRepository, trained: Path) -> None:
    config = json.loads(published.files["adapters/planner/adapter_config.json"])
    assert config["base_model_name_or_path"].startswith("relay-")
    private = (TOKEN, str(trained), str(trained.parent), str(cache_directory()), str(Path.home()), str(Path.cwd()))
    for file, content in published.files.items():
        assert [text for text in private if text.encode() in content] == [], file


def test_a_new_commit_leaves_no_adapter_of_the_one_before(
    published: FakeRepository, hub: FakeHub, name: str, trained: Path, mas: Mas
) -> None:
    before = published.head
    published.commit(published.files | {"adapters/old/adapter_config.json": b"{}", "LICENSE": b"mine"})
    ran = mas("export", str(trained), "--hub", name)
    assert ran.code == 0, ran.err
    assert "adapters/old/adapter_config.json" not in published.files
    assert published.files["LICENSE"] == b"mine"
    assert mas("run", f"hub:{name}@{before}").code == 0, "an older commit still plays"
    assert mas("run", f"hub:{name}").code == 0
    assert cached(name) == sorted([before, published.head])


def test_a_commit_in_the_cache_plays_without_a_hub(there: FakeRepository, hub: FakeHub, name: str, mas: Mas) -> None:
    assert mas("run", f"hub:{name}").code == 0
    hub.refuses = (503, "busy")
    asked = len(hub.requests)
    assert mas("run", f"hub:{name}@{there.head}").code == 0
    assert len(hub.requests) == asked
    ran = mas("run", f"hub:{name}@main")
    assert ran.code == 2
    assert f"(in the cache: hub:{name}@{there.head})" in ran.err


@pytest.mark.parametrize(("was_private", "words", "said"), [
    (False, (), "it is there already and public. Change that on the hub, or publish with --public"),
    (True, ("--public",), "it is there already and private. Change that on the hub, or publish without --public"),
])  # fmt: skip
def test_a_repository_keeps_its_visibility_or_the_publication_is_refused(
    hub: FakeHub, name: str, trained: Path, mas: Mas, was_private: bool, words: tuple[str, ...], said: str
) -> None:
    hub.repositories[name] = FakeRepository(private=was_private)
    ran = mas("export", str(trained), "--hub", name, *words)
    assert (ran.code, said in ran.err) == (2, True), ran.err
    assert hub.repositories[name].commits == {}


def test_public_is_public(hub: FakeHub, name: str, trained: Path) -> None:
    assert package.Run(trained).publish(name, is_public=True) == f"hub:{name}@{hub.repositories[name].head}"
    assert not hub.repositories[name].private


@pytest.mark.parametrize(("words", "said"), [
    (("--hub", "no-slash"), "'no-slash' is no repository of a hub: write ORG/NAME"),
    (("--hub", "org/team", "--card"), "choose one"),
    (("--card", "--tasks", "3"), "--tasks has no effect on `mas export --card`"),
    (("--hub", "org/team", "--out", "x"), "--out has no effect on `mas export --hub`"),
    (("--public",), "add --hub ORG/NAME"),
    (("--card", "train.steps=3"), "'train.steps=3' has no effect on `mas export`"),
])  # fmt: skip
def test_options_without_effect_are_refused(trained: Path, mas: Mas, words: tuple[str, ...], said: str) -> None:
    ran = mas("export", str(trained), *words)
    assert (ran.code, said in ran.err) == (2, True), ran.err


def test_publishing_needs_a_token(
    hub: FakeHub, name: str, trained: Path, mas: Mas, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    ran = mas("export", str(trained), "--hub", name)
    assert ran.code == 2
    assert "publishing needs a login to the hub: set HF_TOKEN" in ran.err
    assert hub.repositories == {}


def test_what_a_hub_says_is_told_without_the_token(hub: FakeHub, name: str, mas: Mas, there: FakeRepository) -> None:
    hub.refuses = (500, f"you sent {TOKEN}")
    ran = mas("run", f"hub:{name}")
    assert ran.code == 2
    assert ran.err.startswith(f"error: hub:{name} cannot be looked up: ")
    assert TOKEN not in ran.err
    hub.refuses = (403, "no")
    assert "the hub refuses (status 403): set HF_TOKEN" in mas("run", f"hub:{name}").err
    hub.refuses = None
    assert "there is no such repository, or it is private: set HF_TOKEN" in mas("run", "hub:org/nobody").err
    assert f"hub:{name}@v9 cannot be looked up: there is no such revision" in mas("run", f"hub:{name}@v9").err


def test_a_hub_that_is_not_there_is_one_sentence(
    hub: FakeHub, name: str, mas: Mas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    ran = mas("run", f"hub:{name}")
    assert ran.code == 2
    assert "the hub cannot be reached" in ran.err
    assert "HF_ENDPOINT says where it is" in ran.err
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set, so no hub is asked" in mas("run", f"hub:{name}").err


@pytest.mark.slow
@pytest.mark.nightly
def test_a_process_of_its_own_asks_the_hub_that_the_environment_names(
    there: FakeRepository, hub: FakeHub, name: str, trained: Path, mas: Mas
) -> None:
    off = {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", "COLUMNS": "250"}
    words = [sys.executable, "-m", "mas", "run", f"hub:{name}", "--task", "2"]
    ran = subprocess.run(words, env=os.environ | off, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[1:] == mas("run", str(trained), "--task", "2").out.splitlines()[1:]
    assert TOKEN not in ran.stdout + ran.stderr
    assert ("GET", f"/{name}/resolve/{there.head}/config.yaml") in hub.requests


def edited(files: dict[str, bytes], name: str, change: Callable[[Any], None]) -> dict[str, bytes]:
    """The files with another YAML file, which `published.json` lists as it is now."""
    content = yaml.safe_load(files[name])
    change(content)
    return listed(files | {name: yaml.safe_dump(content).encode()})


def listed(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files, all of them listed in `published.json` with their hashes."""
    published = json.loads(files["published.json"])
    kept = {name: content for name, content in files.items() if name in published["files"] or "adapters/" in name}
    published["files"] = {name: hashlib.sha256(content).hexdigest() for name, content in kept.items()}
    return files | {"published.json": json.dumps(published).encode()}


def _set(key: str, value: object) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        *parents, last = key.split(".")
        for part in parents:
            content = content.setdefault(part, {})
        content[last] = value

    return change


TENSORS = "adapters/planner/adapter_model.safetensors"


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("pickled",)


PICKLE = pickle.dumps(_Evil())
HOSTILE: dict[str, tuple[Callable[[dict[str, bytes]], dict[str, bytes]], str]] = {
    "path upwards": (lambda files: files | {"../outside.json": b"{}"}, "names a file outside of its folder, '../out"),
    "absolute path": (lambda files: files | {"/tmp/x.json": b"{}"}, "names a file outside of its folder, '/tmp/x"),
    "pickle": (lambda files: files | {"adapters/planner/adapter_model.bin": PICKLE}, "a pickle or a program"),
    "program": (lambda files: files | {"roles.py": b"raise SystemExit"}, "holds 'roles.py', a pickle or a program"),
    "pickle called safetensors": (lambda files: listed(files | {TENSORS: PICKLE}), f"'{TENSORS}' is no safetensors"),
    "other content": (lambda files: files | {TENSORS: files[TENSORS][:-1] + b"x"}, "is not what was published"),
    "unlisted": (lambda files: files | {"adapters/x/adapter_config.json": b"{}"}, "is not listed in published.json"),
    "missing adapter": (
        lambda files: listed({name: content for name, content in files.items() if "planner" not in name}),
        "has no adapter 'planner' of the trained role 'planner'",
    ),
    "missing file": (
        lambda files: {name: content for name, content in files.items() if name != TENSORS},
        f"is not whole: '{TENSORS}' is missing",
    ),
    "no team": (lambda files: {"README.md": b"hello"}, "holds no team that mas published"),
    "later format": (
        lambda files: files | {"published.json": files["published.json"].replace(b'"format": 1', b'"format": 99')},
        "in a format that mas",
    ),
    "role of a class": (
        lambda files: edited(files, "team.yaml", _set("roles.planner.type", "os:system")),
        "wants to import os:system (team.yaml, roles.planner.type), which no team from a hub may",
    ),
    "class in a file called like mas": (
        lambda files: edited(files, "team.yaml", _set("roles.planner.type", "mas.roles.evil.py:Evil")),
        "which no team from a hub may",
    ),
    "program of tools": (
        lambda files: edited(files, "team.yaml", _set("tools.x", {"command": "touch", "args": ["pwned"]})),
        'wants to run ["touch", "pwned"]',
    ),
    "scenario of a class": (
        lambda files: edited(files, "config.yaml", _set("scenario.name", "evil.py:World")), "evil.py:World",
    ),
    "reward": (
        lambda files: edited(files, "config.yaml", _set("scenario.options.reward", "evil:score")), "import evil:score",
    ),
    "algorithm": (
        lambda files: edited(files, "config.yaml", _set("algorithm.code", "evil.py:A")), "evil.py:A",
    ),
    "sink": (lambda files: edited(files, "config.yaml", _set("train.sinks", ["evil:Sink"])), "import evil:Sink"),
    "file": (
        lambda files: edited(files, "config.yaml", _set("scenario.options.path", "/etc/passwd")), "read /etc/passwd",
    ),
    "model upwards": (
        lambda files: edited(files, "config.yaml", _set("model.path", "../../x")), "load the model ../../x",
    ),
    "another run": (
        lambda files: edited(files, "config.yaml", _set("train.start", "/srv/run")), "begin with the adapters of",
    ),
    "another team": (
        lambda files: edited(files, "config.yaml", _set("algorithm.team", "team")), "algorithm.team is not the team",
    ),
    "no configuration": (
        lambda files: edited(files, "config.yaml", _set("scenario.nonsense", 1)), "cannot be played by mas",
    ),
    "link as git keeps it": (
        lambda files: listed(files | {"config.yaml": b"../../../../.ssh/config.yaml"}), "holds no configuration",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_repository_is_refused_and_leaves_nothing(
    there: FakeRepository, name: str, mas: Mas, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make, said = HOSTILE[kind]
    there.commit(make(there.files))
    ran = mas("run", f"hub:{name}", "--trust")
    assert ran.code == 2, ran.out
    assert said in ran.err
    assert ran.err.count("error: ") == 1
    assert "Traceback" not in ran.err
    assert cached(name) == []
    assert list(tmp_path.rglob("*pwned*")) + list(tmp_path.rglob("*pickled*")) == []


def test_more_than_is_allowed_or_listed_is_not_downloaded(there: FakeRepository, name: str, mas: Mas) -> None:
    there.listed = {TENSORS: 2**40}
    assert "has 1099511627776 bytes, and at most 8589934592 are downloaded" in mas("run", f"hub:{name}").err
    there.listed = {"config.yaml": 2**25}
    assert "'config.yaml' has 33554432 bytes" in mas("run", f"hub:{name}").err
    there.listed = {f"adapters/x/{number}.json": 1 for number in range(2001)}
    assert "has more than 2000 files" in mas("run", f"hub:{name}").err
    there.listed = {}
    there.sent = {"config.yaml": b"#" * 2**21}
    ran = mas("run", f"hub:{name}")
    assert "sends more than the " in ran.err
    assert cached(name) == []


def test_a_hub_cannot_choose_the_place_in_the_cache(there: FakeRepository, name: str, mas: Mas) -> None:
    there.sha = "../../../../tmp/x"
    ran = mas("run", f"hub:{name}")
    assert "the hub names no commit, but '../../../../tmp/x'" in ran.err
    assert cached(name) == []


def test_what_was_changed_in_the_cache_is_not_played(there: FakeRepository, name: str, mas: Mas) -> None:
    folder = local_run(f"hub:{name}", lambda _: None)
    team = folder / "team.yaml"
    kept = team.read_text()
    team.unlink()
    team.symlink_to("/etc/hostname")
    assert "'team.yaml' is a symbolic link: refused" in mas("run", f"hub:{name}", "--trust").err
    team.unlink()
    team.write_text(kept + "\n")
    assert "'team.yaml' is not what was published" in mas("run", f"hub:{name}").err
    shutil.rmtree(folder)
    assert mas("run", f"hub:{name}").code == 0, "it is downloaded anew"


def test_adapters_play_on_their_own_base_alone(there: FakeRepository, name: str, mas: Mas) -> None:
    ran = mas("run", f"hub:{name}", "model.tiny.seed=3")
    assert ran.code == 2
    assert "were trained on relay-" in ran.err
    assert ", this base is relay-" in ran.err


def test_the_weights_of_a_directory_are_recorded_and_compared(
    base_for: Any, trained: Path, tmp_path: Path, mas: Mas, small_overrides: tuple[str, ...]
) -> None:
    model = tmp_path / "of-the-user" / "my-model"
    shutil.copytree(base_for("relay").name, model)
    words = ("scenario=relay", "train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=2", "model.lora.rank=4")
    assert mas("train", *words, f"model.path={model}", f"run_dir={tmp_path / 'run'}").code == 0
    assert mas("export", str(tmp_path / "run"), "--card", "--out", str(tmp_path / "out")).code == 0
    texts = [path.read_text() for path in (tmp_path / "out").rglob("*") if path.suffix in (".md", ".yaml", ".json")]
    assert [text for text in texts if str(tmp_path) in text] == []
    assert "mas run . model.path=DIRECTORY" in "".join(texts)
    base = json.loads((tmp_path / "out" / "published.json").read_text())["base"]
    assert base == {"name": "my-model", "revision": None, "weights": weights_digest(model)}
    plays = ("run", str(tmp_path / "out"))
    assert "load the model my-model" in mas(*plays).err
    assert mas(*plays, f"model.path={model.rename(tmp_path / 'moved')}").code == 0, "the weights are the same"
    config = json.loads((tmp_path / "moved" / "config.json").read_text())
    (tmp_path / "moved" / "config.json").write_text(json.dumps(config))
    weights = tmp_path / "moved" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")
    ran = mas(*plays, f"model.path={tmp_path / 'moved'}")
    assert (ran.code, "has other weights" in ran.err) == (2, True), ran.err


def test_a_source_is_read_or_refused() -> None:
    assert HubSource.parse("runs/relay") is None
    assert HubSource.parse("hub:org/team@v1.0") == HubSource("org/team", "v1.0")
    for text in ("hub:team", "hub:org/team@", "hub:../team", "hub:org/te--am", "hub:org/team@a/../b", "hub:a/b/c"):
        with pytest.raises(HubError):
            HubSource.parse(text)


def test_the_python_side_refuses_as_the_command_does(there: FakeRepository, name: str) -> None:
    there.commit({"README.md": b"hello"})
    with pytest.raises(HubError, match="holds no team that mas published"):
        package.Run(f"hub:{name}")
    with pytest.raises(CheckpointError, match="were trained on relay-"):
        package.Run(f"hub:{name}@{next(iter(there.commits))}").play(overrides=["model.tiny.seed=3"])
