"""What processes beside the one that trains are made of: they have its team and its files, or are refused."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
import yaml

from mas.cluster import ClusterOptions, ResourceRequest
from mas.cluster.resources import cores
from mas.config.load import load_config
from mas.config.options import Config, WorkerOptions
from mas.core.errors import ConfigError
from mas.runs import train, worker_setup
from mas.runs.resolve import resolve, resolve_training
from mas.runs.worker_setup import check_files, file_digests, load_setup, setup_of
from mas.training import processes
from mas.training.processes import Factories
from mas.training.setup import TrainSetup

REWARD = "def score(row, answer):\n    return float(answer == row['answer'])\n"
ROLE = "from mas.roles.solver import Solver\n\n\nclass Mine(Solver):\n    pass\n"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A team, rows, a reward and a module of the user, in the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)
    rows = [{"question": f"{number}+1=", "answer": str(number + 1)} for number in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "score.py").write_text(REWARD)
    (tmp_path / "my_rewards.py").write_text(REWARD)
    team = resolve(load_config(["scenario=questions"])).team.model_dump(mode="json", exclude_defaults=True)
    (tmp_path / "team.yaml").write_text(yaml.safe_dump(team, sort_keys=False))
    return configured("score.py:score")


def configured(reward: str) -> Config:
    return load_config(
        [
            *("scenario=questions", "scenario.options.path=rows.jsonl", f"scenario.options.reward={reward!r}"),
            *("algorithm.team=team.yaml", "train.eval_tasks=1", "train.tasks_per_step=2"),
        ]
    )


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], TrainSetup]:
    """`load_setup` without a base."""
    monkeypatch.setattr(worker_setup, "open_base", lambda *_, **__: None)
    return lambda arguments: load_setup(arguments)[0]


def test_a_process_has_the_team_and_the_files_of_the_one_that_trains(
    config: Config, load: Callable[[bytes], TrainSetup]
) -> None:
    setup = resolve_training(config)
    arguments = setup_of(config, setup.team, file_digests(config, setup.team))
    assert load(arguments).team == setup.team
    assert load(setup_of(config)).team == setup.team
    team = Path("team.yaml")
    team.write_text(f"# other words, the same team\n{team.read_text()}")
    assert load(arguments).team == setup.team
    assert set(file_digests(config, setup.team)) == {"rows.jsonl", "score.py"}


def test_another_team_is_refused(config: Config, load: Callable[[bytes], TrainSetup]) -> None:
    arguments = setup_of(config)
    team = yaml.safe_load(Path("team.yaml").read_text())
    next(iter(team["roles"].values()))["temperature"] = 0.123
    Path("team.yaml").write_text(yaml.safe_dump(team))
    message = r"^algorithm\.team=team\.yaml on node .+ is another team than .+ has read at its start: put it back"
    with pytest.raises(ConfigError, match=message):
        load(arguments)


@pytest.mark.parametrize("name", ["rows.jsonl", "score.py"])
def test_another_file_is_refused_before_its_code_runs(
    config: Config, load: Callable[[bytes], TrainSetup], name: str
) -> None:
    arguments, text = setup_of(config), Path(name).read_text()
    Path(name).write_text("raise SystemExit")
    message = rf"^{name} on node .+ is another file than .+ read at its start: put it back as it was, or give"
    with pytest.raises(ConfigError, match=message):
        load(arguments)
    Path(name).write_text(text)
    load(arguments)


def test_another_module_is_refused_once_it_is_imported(
    config: Config, load: Callable[[bytes], TrainSetup], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = setup_of(configured("my_rewards:score"))
    assert "my_rewards" in json.loads(arguments)["files"]
    load(arguments)
    Path("my_rewards.py").write_text(REWARD + "# changed\n")
    monkeypatch.delitem(sys.modules, "my_rewards")  # as in a process that has not imported it yet
    with pytest.raises(ConfigError, match=r"^my_rewards on node .+ is another file"):
        load(arguments)


def test_a_start_reads_each_file_once_and_again_only_if_it_has_changed_meanwhile(
    config: Config, load: Callable[[bytes], TrainSetup], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, read, digest = setup_of(config), list[str](), worker_setup._digest

    def noted(files: list[Path]) -> str:
        read.extend(map(str, files))
        return digest(files)

    monkeypatch.setattr(worker_setup, "_digest", noted)
    load(arguments)
    assert sorted(read) == ["rows.jsonl", "score.py"]

    def change_and_resolve(config: Config) -> TrainSetup:
        setup = resolve_training(config)
        Path("score.py").write_text(f"{REWARD}# changed after it was checked\n")
        return setup

    monkeypatch.setattr(worker_setup, "resolve_training", change_and_resolve)
    with pytest.raises(ConfigError, match=r"^score\.py on node .+ is another file"):
        load(arguments)
    assert sorted(read) == ["rows.jsonl"] * 2 + ["score.py"] * 3


def test_a_saved_data_set_is_all_of_its_files_and_what_is_not_here_is_passed_over(config: Config) -> None:
    saved = Path("saved")
    (saved / "train").mkdir(parents=True)
    (saved / "dataset_dict.json").write_text("{}")
    (saved / "train" / "part.arrow").write_bytes(b"rows")
    named = config.model_copy(update={"scenario": config.scenario.model_copy(update={"options": {"path": "./saved"}})})
    digests = file_digests(named, resolve(config).team)
    assert set(digests) == {"./saved"}
    check_files(digests | {"elsewhere/rows.jsonl": "0", "no_such_module": "0"})
    (saved / "train" / "part.arrow").write_bytes(b"other")
    with pytest.raises(ConfigError, match=r"^\./saved on node"):
        check_files(digests)


def test_only_rollout_workers_get_keys_and_only_those_of_peers_that_play_roles(
    config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    team = resolve(config).team.model_dump(mode="json", exclude_defaults=True)
    team["roles"]["verifier"] |= {"trainable": False, "peer": "helper"}
    Path("team.yaml").write_text(yaml.safe_dump(team))
    words = [f"peers.{name}.{key}" for name, url in (("helper", "h"), ("judge", "j")) for key in
             (f"url=http://{url}/v1", f"key_env={name.upper()}_KEY")]  # fmt: skip
    peers: Any = load_config([*words]).peers
    named = config.model_copy(update={"peers": peers})
    monkeypatch.setattr("mas.runs.resolve.check_peers", lambda *_: None)  # of a judge: it is in the reward's options
    setup = resolve_training(named)
    assert setup.role_keys == ("HELPER_KEY",)
    opened = list[Any]()
    monkeypatch.setattr(train, "open_processes", lambda *arguments, **_: opened.extend(arguments))
    train.processes_of(named, setup, {}, None, tmp_path)()  # type: ignore[arg-type]
    options, factories = opened
    assert (options.environment, factories.environment) == ((), ("HELPER_KEY",))


class Recorded:
    """A cluster that starts nothing."""

    def __init__(self, options: ClusterOptions) -> None:
        self.options, self.spawned, self.reserved = options, dict[str, Any](), list[ResourceRequest]()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Nothing."""

    async def reserve(self, requests: Sequence[ResourceRequest]) -> None:
        assert not self.spawned
        self.reserved.extend(requests)

    async def spawn(self, kind: str, *arguments: object, **options: Any) -> object:
        self.spawned[kind] = options.get("environment", ())
        return SimpleNamespace(name=kind, restarts=0)


async def test_the_cluster_of_a_run_has_the_cpus_of_its_processes_and_keys_reach_rollout_workers_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened = list[Recorded]()

    def open_cluster(options: ClusterOptions, logs: Path) -> Recorded:
        opened.append(Recorded(options))
        return opened[-1]

    monkeypatch.setattr(processes, "open_cluster", open_cluster)
    base: Any = SimpleNamespace(options=SimpleNamespace(threads=1), origin=None, blocks=None)
    factories = Factories(worker="a:a", engine="a:a", rank="a:a", arguments=b"", environment=("HELPER_KEY",))
    options = WorkerOptions(workers=cores() + 5, learners=2)
    async with processes.open_processes(options, factories, base=base, logs=tmp_path):
        pass
    assert opened[0].options.cpus == cores() + 6
    assert opened[0].spawned == {"rollout": ("HELPER_KEY",), "learner": ()}
    counts = {request.kind: request.count for request in opened[0].reserved}
    assert counts == {"rollout": cores() + 5, "engine": 0, "learner": 1}, "all before the first one starts"


def test_texts_that_are_no_paths_have_no_digest() -> None:
    config = load_config(["scenario=relay"])
    scenario = config.scenario.model_copy(update={"options": {"instructions": "x" * 300 + "/and", "more": "y" * 300}})
    team = resolve(config).team
    assert file_digests(config.model_copy(update={"scenario": scenario}), team) == file_digests(config, team)
