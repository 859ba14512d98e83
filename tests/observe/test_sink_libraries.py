"""What W&B, trackio and MLflow hold after a run, read back with their own readers, is what `metrics.jsonl` has."""

import importlib
import json
import math
import os
import signal
import struct
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mas.observe.metrics import MetricsLog, flatten, read_metrics
from mas.observe.sinks.feed import Sinks
from mas.observe.sinks.find import SHIPPED, find_sinks

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries warn of what they use themselves

CONFIG = {"scenario": {"name": "relay", "options": {}}, "train": {"steps": 4, "sinks": ["x"]}, "peers": {}}
LINES: list[tuple[int, dict[str, Any]]] = [
    (0, {"eval": {"greedy": {"success": 0.25}}}),
    (1, {"reward": 0.5, "roles": {"planner": {"entropy": 1.5, "kl": None}}}),
    (2, {"reward": 0.75, "roles": {"planner": {"entropy": math.nan, "kl": 0.5}}}),
    (2, {"eval": {"greedy": {"success": 0.5}, "sampled": {"success": 0.25}}}),
    (3, {"reward": 1.0, "roles": {"planner": {"entropy": 1.25, "kl": 0.25}}}),
    (4, {"reward": 0.0, "roles": {"planner": {"entropy": 1.125, "kl": 0.125}}}),
    (4, {"eval": {"greedy": {"success": 0.75}, "sampled": {"success": 0.5}}}),
]
KEY = "f00d" * 10
FINAL = {"final/greedy/success": [(4, 0.75)], "final/sampled/success": [(4, 0.5)]}
Series = dict[str, list[tuple[int, float]]]


@pytest.fixture
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a sink whose library is installed, with a key in the environment that nothing may write down."""
    name: str = request.param
    needed = ("mlflow", "alembic") if name == "mlflow" else (name,)
    for module in needed:
        pytest.importorskip(module, reason=f"pip install 'mas[{name}]'", exc_type=ImportError)
    for variable in list(os.environ):
        if variable.startswith(("WANDB_", "TRACKIO_", "MLFLOW_")):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("HF_TOKEN", KEY)
    return name


def send(run: Path, name: str, lines: list[Any], *, kept: int = -1, is_resumed: bool = False) -> None:
    """What a training does that has `lines` and ends; `kept` is the step of the checkpoint that it begins with."""
    warnings = list[str]()
    run.mkdir(exist_ok=True)
    sinks = Sinks(run, find_sinks([name]), warnings.append)
    with MetricsLog(run / "metrics.jsonl", listener=sinks.log) as metrics, sinks:
        sinks.open(CONFIG, is_resumed=is_resumed)
        metrics.truncate_after(kept)
        for step, values in lines:
            metrics.append(step, values)
    assert warnings == []


def written(run: Path) -> Series:
    """By metric, what `metrics.jsonl` has."""
    found: Series = defaultdict(list)
    for line in read_metrics(run / "metrics.jsonl"):
        step = line.pop("step")
        for name, value in flatten(line).items():
            if value is not None:
                found[name].append((step, value))
    return found


def wandb_records(run: Path) -> Iterator[Any]:
    """Of all offline runs, oldest first: logs as LevelDB has them, of protobuf messages."""
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # its process writes the end of a file after `finish`
    for path in sorted((run / "sinks" / "wandb").glob("offline-run-*/*.wandb")):
        content, place, body = path.read_bytes(), 7, b""
        assert content[:4] == b":W&B"
        while place + 7 <= len(content):
            if (room := 32768 - place % 32768) < 7:
                place += room
                continue
            _, size, kind = struct.unpack_from("<IHB", content, place)
            body += content[place + 7 : place + 7 + size]
            place += 7 + size
            if kind in (1, 4):  # a whole record, or its last part
                record = Record()
                record.ParseFromString(body)
                yield record
                body = b""


def in_wandb(run: Path) -> tuple[Series, list[dict[str, Any]], set[str]]:
    found: Series = defaultdict(list)
    configs, ids, rows = list[dict[str, Any]](), set[str](), list[int]()
    for record in wandb_records(run):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            ids.add(record.run.run_id)
            assert record.run.host == ""
            assert not record.run.HasField("git")
            configs.append({item.key: json.loads(item.value_json) for item in record.run.config.update})
        elif kind == "history":
            row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            rows.append(row["_step"])
            for name, value in row.items():
                if name != "step" and not name.startswith("_"):
                    found[name].append((row["step"], float(value)))
    assert rows == list(range(len(rows)))  # W&B drops a row whose `_step` is not above the last
    return found, configs, ids


def in_trackio(run: Path) -> tuple[Series, list[dict[str, Any]], set[str]]:
    from trackio.sqlite_storage import SQLiteStorage

    from mas.observe.sinks.trackio import _store_in

    _store_in(run / "sinks" / "trackio")  # else it reads where the last run of this process was
    assert (run / "sinks" / "trackio" / "mas.db").is_file()
    found: Series = defaultdict(list)
    names = {record["name"] if isinstance(record, dict) else record for record in SQLiteStorage.get_runs("mas")}
    for line in SQLiteStorage.get_logs("mas", next(iter(names))):
        for name, value in line.items():
            if name not in ("step", "timestamp"):
                found[name].append((line["step"], value))
    return found, [SQLiteStorage.get_run_config("mas", next(iter(names)))], names


def in_mlflow(run: Path) -> tuple[Series, list[dict[str, Any]], set[str]]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{run}/sinks/mlflow.db")
    experiment = client.get_experiment_by_name("mas")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert [found.info.status for found in runs] == ["FINISHED"]
    data, id = runs[0].data, runs[0].info.run_id
    found = {name: [(one.step, one.value) for one in client.get_metric_history(id, name)] for name in data.metrics}
    return found, [data.params], {id}


READERS: dict[str, Callable[[Path], tuple[Series, list[dict[str, Any]], set[str]]]] = {
    "wandb": in_wandb, "trackio": in_trackio, "mlflow": in_mlflow,
}  # fmt: skip


@pytest.mark.matrix("library", SHIPPED, default=["trackio"], indirect=True)
def test_a_library_holds_what_metrics_jsonl_has_also_after_a_resume(library: str, tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    send(run, library, LINES[:5])  # ends after step 3; its checkpoint is of step 1
    send(run, library, LINES[2:], kept=1, is_resumed=True)
    send(other, library, LINES[:1])  # another run of the same process
    found, configs, ids = READERS[library](other)
    assert found["eval/greedy/success"] == [(0, 0.25)]
    found, configs, names = READERS[library](run)
    if library == "mlflow":  # it keeps no order in a step, and has parameters as texts
        assert configs == [{"scenario.name": "relay", "train.steps": "4", "train.sinks.0": "x"}]
    else:
        assert all(one["scenario"] == CONFIG["scenario"] and one["train"]["steps"] == 4 for one in configs)
    assert len(names) == 1
    assert names != ids
    # the run that ended at step 3 had a last line, too
    wanted = written(run)
    for name, last in FINAL.items():
        kind = name.split("/")[1]
        wanted[name] = [(3, {"greedy": 0.5, "sampled": 0.25}[kind]), *last]
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        assert repr(sorted(found[name])) == repr([(step, float(value)) for step, value in values]), name
    leaked = [path for path in run.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert leaked == []


OPEN = """
import os, sys, time
from pathlib import Path
from mas.observe.sinks.feed import Sinks
from mas.observe.sinks.find import find_sinks
sinks = Sinks(Path(sys.argv[1]), find_sinks([sys.argv[2]]), print)
sinks.open({'a': 1}, is_resumed=False)
"""


def in_process(
    code: str, run: Path, library: str, environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    run.mkdir(exist_ok=True)
    words = [sys.executable, "-c", code, str(run), library]
    root = str(Path(__file__).parents[2])
    return subprocess.run(words, cwd=root, env=environment, timeout=280, check=False, capture_output=True, text=True)


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize("library", SHIPPED, indirect=True)
def test_a_process_that_is_killed_leaves_what_it_sent(library: str, tmp_path: Path) -> None:
    """The two that write in the background get their second for it, as the next step of a training would give."""
    run = tmp_path / "run"
    killed = in_process(f"{OPEN}sinks.log(1, {{'reward': 0.5}}); time.sleep(3); os.kill(os.getpid(), 9)", run, library)
    assert killed.returncode == -signal.SIGKILL
    send(run, library, LINES[1:2], is_resumed=True)
    found, _, names = READERS[library](run)
    # reward of step 1 was sent by the killed process, the rest of the line by the next
    assert (found["reward"], found["roles/planner/entropy"]) == ([(1, 0.5)], [(1, 1.5)])
    assert len(names) == 1


@pytest.mark.parametrize("library", ["wandb"], indirect=True)
def test_wandb_online_without_a_key_is_refused_before_anything_is_sent(library: str, tmp_path: Path) -> None:
    """In a process of its own, as wandb remembers the key of an earlier run."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "WANDB_MODE": "online"}
    environment["WANDB_BASE_URL"] = "http://127.0.0.1:9"  # nobody listens there
    done = in_process(OPEN, tmp_path, library, environment)
    assert "ConfigError: the sink wandb cannot be opened" in done.stderr
    assert "WANDB_MODE=online needs a key: set WANDB_API_KEY" in done.stderr


@pytest.mark.parametrize("library", SHIPPED, indirect=True)
def test_a_library_does_not_report_on_its_use(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_sinks([library])
    if library == "mlflow":
        assert importlib.import_module("mlflow.telemetry.utils").is_telemetry_disabled()
    elif library == "wandb":
        assert not importlib.import_module("wandb.env").error_reporting_enabled()
    else:
        asked = list[str]()
        monkeypatch.setattr("huggingface_hub.whoami", lambda **_: asked.append("name") or {"name": "me"})
        send(tmp_path / "run", library, LINES[:1])
        assert asked == []
