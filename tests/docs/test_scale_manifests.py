"""The manifests of examples/scale: held by schemas of their systems, by the configuration, and by what they start."""

import copy
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jsonschema
import pytest
import yaml
from pages import ROOT
from test_documented_commands import check_usage

from mas.config.load import load_config
from mas.runs.resolve import resolve_training
from mas.training.check_setup import check_processes

FOLDER = ROOT / "examples" / "scale"
SLURM, RAYJOB, SKYPILOT = (FOLDER / name for name in ("train.sbatch", "rayjob.yaml", "skypilot.yaml"))
SCHEMAS = ROOT / "tests" / "data" / "manifests"
VALUES = {
    '"$address"': "10.0.0.1:6379",
    '"$workers"': "7",
    '"$worker_gpus"': "1",
    '"runs/$SLURM_JOB_NAME"': "runs/mas",
    ' "$@"': "",
}
"""What stands for the shell's words in a command of `mas`."""


def loaded(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / name).read_text(encoding="utf-8"))
    return found


def changed(content: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    """The same with another value at a dotted place; the last part may be new."""
    *path, last = [int(part) if part.isdecimal() else part for part in place.split(".")]
    content = copy.deepcopy(content)
    inner: Any = content
    for part in path:
        inner = inner[part]
    inner[last] = value
    return content


def script_of(path: Path) -> str:
    """What a manifest has a shell do."""
    if path == SLURM:
        return path.read_text(encoding="utf-8")
    found = loaded(path)
    return str(found["spec"]["entrypoint"] if path == RAYJOB else f"{found['setup']}\n{found['run']}")


# --- schemas


@pytest.mark.parametrize(
    ("path", "name"),
    [(RAYJOB, "rayjob.schema.json"), (SKYPILOT, "skypilot_task.schema.json")],
    ids=lambda one: str(one),
)
def test_the_manifest_is_one_of_its_system(path: Path, name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(name))
    jsonschema.validate(loaded(path), schema(name), jsonschema.Draft202012Validator)


CLUSTER = "spec.rayClusterSpec"
WRONG = [
    (RAYJOB, "kind", "RayCluster"),
    (RAYJOB, "spec.entryPoint", "mas train"),
    (RAYJOB, f"{CLUSTER}.authOptions.mode", "password"),
    (RAYJOB, f"{CLUSTER}.networkPolicy.mode", "Deny"),
    (RAYJOB, f"{CLUSTER}.headGroupSpec.rayStartParams.num-gpus", 0),
    (RAYJOB, f"{CLUSTER}.workerGroupSpecs.0.replicas", "4"),
    (RAYJOB, f"{CLUSTER}.workerGroupSpecs.0.template.spec.containers.0.env.0", {"value": "no name"}),
    (RAYJOB, f"{CLUSTER}.headGroupSpec.template.spec.containers.0.resources.limits.cpu", [8]),
    (RAYJOB, f"{CLUSTER}.headGroupSpec.template.spec.volumes.0.persistentVolumeClaim", {}),
    (SKYPILOT, "nodes", 2),
    (SKYPILOT, "num_nodes", "2"),
    (SKYPILOT, "resources.accelerators", 4),
    (SKYPILOT, "resources.job_recovery.max_restarts_on_errors", -1),
    (SKYPILOT, "secrets.RAY_AUTH_TOKEN", 1),
]


@pytest.mark.parametrize(("path", "place", "value"), WRONG, ids=lambda one: one if isinstance(one, str) else "")
def test_the_schema_refuses_what_its_system_does(path: Path, place: str, value: Any) -> None:
    name = "rayjob.schema.json" if path == RAYJOB else "skypilot_task.schema.json"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed(loaded(path), place, value), schema(name), jsonschema.Draft202012Validator)


def test_every_option_of_slurm_is_documented() -> None:
    text, known = script_of(SLURM), schema("slurm_options.json")
    given = re.findall(r"^#SBATCH (.*)$", text, re.MULTILINE)
    options = [re.fullmatch(r"--([a-z-]+)(?:=\S+)?", line) for line in given]
    assert len(given) >= 8
    assert [line for line, found in zip(given, options, strict=True) if found is None] == []
    assert {found[1] for found in options if found} <= set(known["sbatch"].split())
    assert "gpus-per-nodes" not in known["sbatch"].split()
    (command,) = re.findall(r"^ *srun (.*?) ray start", text.replace("\\\n", " "), re.MULTILINE)
    of_srun = re.findall(r"--([a-z-]+)", command)
    assert of_srun
    assert set(of_srun) <= set(known["srun"].split())
    first = next(number for number, line in enumerate(text.splitlines()) if line and not line.startswith("#"))
    assert text.count("#SBATCH", len("\n".join(text.splitlines()[:first]))) == 0, "Slurm reads none behind a command"


@pytest.mark.parametrize("path", [SLURM, RAYJOB, SKYPILOT], ids=lambda path: path.name)
def test_the_shell_can_read_it(path: Path) -> None:
    done = subprocess.run(["bash", "-n"], input=script_of(path), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    if (shellcheck := shutil.which("shellcheck")) is not None:
        words = [shellcheck, "--shell=bash", "-"]
        done = subprocess.run(words, input=script_of(path), capture_output=True, text=True, check=False)
        assert done.stdout == ""


def test_no_image_names_a_host() -> None:
    files = [path for path in FOLDER.iterdir() if path.is_file()]  # Python may keep compiled code beside them
    images = [text for path in files for text in re.findall(r"\bimage: *(\S+)", path.read_text())]
    assert set(images) == {"mas:latest"}


# --- the configuration


def commands(path: Path) -> list[list[str]]:
    """The words behind `mas` of every command."""
    text = script_of(path).replace("\\\n", " ")
    found = re.findall(r"^ *mas (.*?)(?: &)?$", text, re.MULTILINE)
    for word, value in VALUES.items():
        found = [line.replace(word, value) for line in found]
    return [shlex.split(line) for line in found]


@pytest.mark.parametrize("path", [SLURM, RAYJOB, SKYPILOT], ids=lambda path: path.name)
def test_its_command_trains_with_workers_of_a_ray_that_it_joins(path: Path) -> None:
    (words,) = commands(path)
    assert words[0] == "train"
    assert not [word for word in words if "$" in word]
    assert [word for word in words[1:] if not re.match(r"[a-z_.]+=.", word)] == []
    check_usage(words)
    config = load_config(words[1:])
    check_processes(resolve_training(config), is_distributed=False, is_started=True)
    assert (config.cluster.kind, config.cluster.worker_gpus) == ("ray", 1)
    assert config.cluster.address in ("auto", "10.0.0.1:6379")
    assert config.cluster.workers > 1


def test_the_job_has_a_gpu_for_every_worker() -> None:
    (words,), job = commands(RAYJOB), loaded(RAYJOB)["spec"]["rayClusterSpec"]
    (group,) = job["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    gpus = group["replicas"] * int(container["resources"]["limits"]["nvidia.com/gpu"])
    config = load_config(words[1:])
    assert config.cluster.workers * config.cluster.worker_gpus == gpus


# --- what the scripts start, with commands that only write down how they were called

RECORD = 'echo "$(basename "$0") $*" >> "$RECORD"\n'
JOINED = """
for _ in {1..99}; do
    (($(grep -c "ray start" "$RECORD") >= ($3 ? $3 : 1))) && break
    sleep 0.02
done
"""
"""Waits for so many nodes, if they come: what starts them runs in the background."""
STARTED = """wanted=${3:-0}; [[ -z ${SKYPILOT_NODE_RANK:-} ]] || wanted=1
for _ in {1..60}; do
  (($(grep -cE "^(srun|ray start)" "$RECORD") >= wanted)) && exit; sleep 0.05
done
"""
"""Waits for as many nodes as it is told, of SkyPilot for this one: until their commands are in the record."""
COMMANDS = {
    "srun": RECORD + 'echo $$ >> "$RECORD.pids"\nexec sleep 60\n',
    "scontrol": 'if [[ $1 == show ]]; then printf "$NODES"; else ' + RECORD.strip() + "; fi\n",
    "hostname": 'echo "$IP fd00::1"\n',
    "python": "if [[ $1 == -c ]]; then echo secret; exit; fi\n" + RECORD + STARTED,
    "pip": RECORD,
    "ray": RECORD + 'if [[ " $* " == *" --head "* ]]; then echo $$ >> "$RECORD.pids"; exec sleep 60; fi; exit 1\n',
    "mas": 'echo "token $RAY_AUTH_TOKEN $RAY_AUTH_MODE gpu ${CUDA_VISIBLE_DEVICES:-none}" >> "$RECORD"\n'
    + RECORD
    + 'if [[ -n ${HANGS:-} ]]; then touch "$RECORD.trains"; exec sleep 60; fi\nexit "${CODE:-0}"\n',
}


class Called(NamedTuple):
    """What a script did."""

    code: int
    lines: list[str]
    err: str
    left: list[int]

    def of(self, *names: str) -> list[str]:
        """The lines of these commands, in order; commands beside each other have none."""
        return [line for line in self.lines if line.startswith(names)]


Call = Callable[..., Called]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """Runs a script with those commands; `then`: what is done with its process once it trains."""
    record, folder = tmp_path / "record", tmp_path / "bin"
    folder.mkdir()
    for name, text in COMMANDS.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}")
        (folder / name).chmod(0o755)

    def run(
        text: str,
        variables: Mapping[str, str],
        words: Sequence[str] = (),
        then: Callable[[subprocess.Popen[str]], None] | None = None,
    ) -> Called:
        kept = {"PATH": f"{folder}:{os.environ['PATH']}", "RECORD": str(record), "HOME": str(tmp_path)}
        script = tmp_path / "script"
        script.write_text(text)
        with subprocess.Popen(
            ["bash", str(script), *words],
            cwd=ROOT,
            env=kept | dict(variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            if then is not None:
                assert wait_for(lambda: record.with_name("record.trains").exists())
                then(process)
            _, err = process.communicate(timeout=60)
        pids = record.with_name("record.pids")
        started = [int(pid) for pid in pids.read_text().split()] if pids.exists() else []
        wait_for(lambda: not [pid for pid in started if is_alive(pid)])
        lines = record.read_text().splitlines() if record.exists() else []
        return Called(process.returncode, lines, err, [pid for pid in started if is_alive(pid)])

    return run


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


ALLOCATION = {
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NAME": "mas",
    "SLURM_CPUS_PER_TASK": "16",
    "SLURM_GPUS_ON_NODE": "4",
    "CUDA_VISIBLE_DEVICES": "0,1,2,3",
    "NODES": "n1\nn2\n",
    "IP": "10.0.0.1",
}
START = "srun --overlap --nodes=1 --ntasks=1 --cpus-per-task=16"
RAY = "ray start --block --disable-usage-stats --num-cpus=16"
WAIT = "python examples/scale/wait_for_nodes.py 10.0.0.1:24711"
TRAIN = "mas train scenario=plan_path model=qwen3_1.7b train.staleness=1 train.checkpoint_every=5 cluster=ray"


def test_on_slurm_the_head_comes_first_and_workers_have_every_gpu_but_one(call: Call) -> None:
    done = call(script_of(SLURM), ALLOCATION, ["train.steps=7"])
    options = "--head --node-ip-address=10.0.0.1 --port=24711 --include-dashboard=false --num-gpus=3"
    heads = [line for line in done.lines if "--head" in line]
    assert heads == [f"{START} --nodelist=n1 {RAY} {options}"]
    assert f"{START} --nodelist=n2 {RAY} --address=10.0.0.1:24711 --num-gpus=4" in done.lines
    assert done.of("python") == [f"{WAIT} 0", f"{WAIT} 2"]
    assert done.of("token", "mas") == [
        "token secret token gpu 3",
        f"{TRAIN} cluster.address=10.0.0.1:24711 cluster.workers=7 cluster.worker_gpus=1 run_dir=runs/mas "
        "train.steps=7",
    ]
    assert (done.code, done.left, done.err) == (0, [], "")


def test_on_slurm_without_gpus_workers_have_the_processors(call: Call) -> None:
    without = {name: value for name, value in ALLOCATION.items() if "GPU" not in name and "CUDA" not in name}
    done = call(script_of(SLURM), without)
    said, trained = done.of("token", "mas")
    assert "cluster.workers=31 cluster.worker_gpus=0" in trained
    assert said == "token secret token gpu none"


def test_on_slurm_a_failed_training_ends_the_job_with_its_code(call: Call) -> None:
    done = call(script_of(SLURM), ALLOCATION | {"CODE": "2"})
    assert (done.code, done.left) == (2, [])
    assert done.of("scontrol") == []


@pytest.mark.parametrize(("number", "is_queued"), [(signal.SIGUSR1, True), (signal.SIGTERM, False)])
def test_on_slurm_a_signal_ends_training_and_the_end_of_time_puts_the_job_back(
    call: Call, number: signal.Signals, is_queued: bool
) -> None:
    done = call(script_of(SLURM), ALLOCATION | {"HANGS": "yes"}, then=lambda process: process.send_signal(number))
    assert (done.code, done.left) == (128 + signal.SIGTERM, [])
    assert done.of("scontrol") == ["scontrol requeue 4711"] * is_queued


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"IP": "127.0.1.1"}, "set HEAD_IP to its address"),
        ({"NODES": "n1\n", "SLURM_GPUS_ON_NODE": "1"}, "without Ray"),
    ],
)
def test_on_slurm_what_cannot_work_is_refused_before_anything_starts(
    call: Call, variables: dict[str, str], said: str
) -> None:
    done = call(script_of(SLURM), ALLOCATION | variables)
    assert (done.code, done.lines) == (2, [])
    assert said in done.err


SKY = {
    "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2",
    "SKYPILOT_NUM_NODES": "2",
    "SKYPILOT_NUM_GPUS_PER_NODE": "4",
    "RAY_AUTH_TOKEN": "given",
}


def test_on_skypilot_the_first_node_trains(call: Call) -> None:
    done = call(script_of(SKYPILOT), SKY | {"SKYPILOT_NODE_RANK": "0"})
    assert "pip install --editable .[ray]" in done.lines
    (head,) = done.of("ray start")
    assert head.endswith("--head --node-ip-address=10.0.0.1 --port=26379 --include-dashboard=false --num-gpus=3")
    assert "python examples/scale/wait_for_nodes.py 10.0.0.1:26379 2" in done.lines
    assert done.of("token", "mas") == [
        "token given token gpu 3",
        f"{TRAIN} cluster.address=10.0.0.1:26379 cluster.workers=7 cluster.worker_gpus=1 run_dir=/shared/runs/plan",
    ]
    assert (done.code, done.left) == (0, [])


def test_on_skypilot_the_other_nodes_join_and_end_with_the_head(call: Call) -> None:
    done = call(script_of(SKYPILOT), SKY | {"SKYPILOT_NODE_RANK": "1"})
    assert done.lines[-2:] == [
        "python examples/scale/wait_for_nodes.py 10.0.0.1:26379 0",
        "ray start --block --disable-usage-stats --address=10.0.0.1:26379 --num-gpus=4",
    ]
    assert done.code == 0, "the Ray there ended with an error, as the head was gone"


# --- waiting for nodes


@pytest.fixture
def waiting() -> ModuleType:
    pytest.importorskip("ray")
    spec = importlib.util.spec_from_file_location("wait_for_nodes", FOLDER / "wait_for_nodes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_waiting_ends_when_so_many_nodes_live_or_time_is_up(waiting: ModuleType, monkeypatch: Any) -> None:
    nodes = iter([[{"Alive": True}], [{"Alive": True}, {"Alive": False}], [{"Alive": True}] * 2])
    joined = list[str]()
    monkeypatch.setattr(waiting.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(waiting.ray, "init", lambda address, log_to_driver: joined.append(address))
    monkeypatch.setattr(waiting.ray, "nodes", lambda: next(nodes))
    with socket.socket() as head:
        head.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{head.getsockname()[1]}"
        assert waiting.main(address, 2, 0.0) == f"no Ray listens at {address} after 0 s"
        head.listen()
        assert waiting.main(address, 0) == ""
        assert joined == []
        assert waiting.main(address, 2) == ""
        assert joined == [address]
        monkeypatch.setattr(waiting.ray, "nodes", lambda: [{"Alive": True}])
        assert waiting.main(address, 3, 0.0) == f"1 of 3 nodes have joined the Ray at {address} after 0 s"
