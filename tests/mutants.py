"""Whether the default run kills every change of core files that the run of everything kills: `make mutants`.

Five places of each core file are drawn by a seed and changed, one at a time, in a copy of the tree: a comparison, an
operator, a condition, a number. The tests of that file run on each change at their default cases, without a shard. The
default cases are some of all cases, so only what survives them runs again with `--all`. Exit code 1 where that kills a
change that the default cases let live. Mutants that survive both are listed: equal programs, or a missing test.
"""

import argparse
import ast
import copy
import importlib.util
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUS = ("bus/test_memory.py", "bus/test_memory_order.py", "bus/test_delivery.py", "bus/test_memory_properties.py")
BUS += ("bus/test_memory_requests.py", "bus/test_journal.py", "bus/test_parts.py", "bus/test_mqtt.py")
MQTT = ("bus/test_mqtt_receiver.py", "bus/test_mqtt_fates.py", "bus/test_mqtt_away.py", "bus/test_mqtt_model.py")
LOSSES = ("test_losses_golden.py", "test_losses_properties.py", "test_losses_options.py", "test_losses_smoothing.py")
FLOW = (
    "test_flow.py",
    "test_flow_properties.py",
    "test_history.py",
    "test_joins.py",
    "test_maps.py",
    "test_replicas.py",
    "test_nested.py",
)
CORE: dict[str, tuple[str, ...]] = {
    "algorithms/parts/advantages/group.py": (
        "training/advantages",
        "training/test_advantages.py",
        "training/test_golden.py",
    ),
    "algorithms/parts/advantages/gae.py": ("training/test_gae.py", "training/test_critic.py"),
    "algorithms/parts/advantages/tree.py": (
        "training/advantages/test_tree.py",
        "training/test_value_tree.py",
        "training/test_entropy_tree.py",
    ),
    "algorithms/parts/losses/off_policy.py": ("training/test_off_policy.py",),
    "algorithms/parts/losses/policy.py": tuple(f"training/{name}" for name in LOSSES),
    "algorithms/parts/losses/tokens.py": (
        *(f"training/{name}" for name in LOSSES),
        "training/test_smoothing.py",
        "training/test_off_policy.py",
    ),
    "training/batch.py": (
        "training/test_packing.py",
        "training/test_learner.py",
        "training/test_losses_golden.py",
        "training/test_equal_gradients.py",
    ),
    "runtime/flow.py": tuple(f"runtime/{name}" for name in FLOW),
    "runtime/mutable_flow.py": tuple(f"runtime/{name}" for name in (*FLOW, "test_timers.py")),
    "bus/settlement.py": BUS,
    "bus/redelivery.py": BUS,
    "bus/mqtt/sender.py": MQTT,
    "bus/mqtt/outgoing.py": MQTT,
    "bus/mqtt/receiver.py": MQTT,
    "bus/mqtt/received.py": MQTT,
    "serving/store.py": ("serving/test_store.py", "serving/test_canary.py", "serving/test_engine_contract.py"),
    "graph/check.py": ("graph", "runtime/test_joins.py"),
}
"""A file of mas -> the tests that are about it, those of its own first."""
QUIETLY = ("-q", "-x", "--timeout", "60", "--timeout-method", "thread", "-p", "no:cacheprovider")
QUIETLY += ("-W", "ignore:Module already imported")
"""A change may make an endless loop that catches what a signal raises: the timeout ends the process."""
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass
class Mutant:
    """One change and which run killed it: `default`, `all` or `none`."""

    file: str
    line: int
    change: str
    killed_by: str = ""
    seconds: float = 0.0


def is_place(node: ast.AST) -> bool:
    """Whether a node can be changed."""
    match node:
        case ast.BinOp() | ast.BoolOp():
            return type(node.op) in SWAPS
        case ast.Constant():
            return type(node.value) in (int, float)
        case _:
            return isinstance(node, (ast.Compare, ast.If, ast.IfExp))


def places(node: ast.AST) -> Iterator[ast.AST]:
    """What can be changed below a node: not messages, annotations and defaults."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.JoinedStr, ast.Raise, ast.arguments)):
            if is_place(child):
                yield child
            yield from places(child)


def change(node: ast.AST) -> str:
    """Change a node in place; returns what was changed."""
    before = ast.unparse(node).splitlines()[0]
    match node:
        case ast.Compare():
            node.ops[0] = SWAPS[type(node.ops[0])]()
        case ast.BinOp() | ast.BoolOp():
            node.op = SWAPS[type(node.op)]()
        case ast.If() | ast.IfExp():
            node.test = ast.UnaryOp(op=ast.Not(), operand=node.test)
        case ast.Constant():
            node.value = node.value + 1
    return f"{before}  ->  {ast.unparse(node).splitlines()[0]}"


def mutants(file: str, amount: int, seed: int) -> list[tuple[Mutant, str]]:
    """Changes of one file, each with the whole changed text; the same for the same text and seed."""
    tree = ast.parse((ROOT / "mas" / file).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    number = sum(1 for function in functions for _ in places(ast.Module(function.body, [])))
    found = []
    for index in sorted(random.Random(f"{file} {seed}").sample(range(number), min(amount, number))):
        changed = copy.deepcopy(tree)
        nodes = [node for node in ast.walk(changed) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        node = [place for function in nodes for place in places(ast.Module(function.body, []))][index]
        line = node.lineno
        found.append((Mutant(file, line, change(node)), ast.unparse(changed)))
    return found


def forget_mas() -> None:
    """Load what takes seconds to import, once: every run is a fork that imports mas itself, with its change."""
    importlib.import_module("mas.training.learner")
    for name in [name for name in sys.modules if name.partition(".")[0] == "mas"]:
        del sys.modules[name]


def passes(tree: Path, tests: tuple[str, ...], *words: str) -> bool:
    """Whether the tests pass on the tree as it is, in a process of their own."""
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        os.chdir(tree)
        sys.path.insert(0, str(tree))
        os.environ["PYTHONPATH"] = str(tree)
        output = os.open(tree / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = pytest.main([*QUIETLY, *words, *(f"tests/{test}" for test in tests)])
        sys.stdout.flush()
        os._exit(int(code))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == pytest.ExitCode.OK


def judge(tree: Path, mutant: Mutant, text: str) -> None:
    """Write the change, run the tests, take it back."""
    path = tree / "mas" / mutant.file
    before, began = path.read_text(encoding="utf-8"), time.monotonic()
    compiled = Path(importlib.util.cache_from_source(str(path)))
    compiled.unlink(missing_ok=True)  # it holds for a text of the same length and second, too
    path.write_text(text, encoding="utf-8")
    try:
        tests = CORE[mutant.file]
        if not passes(tree, tests, "--shard", "-1"):
            mutant.killed_by = "default"
        else:
            mutant.killed_by = "none" if passes(tree, tests, "--all") else "all"
    finally:
        path.write_text(before, encoding="utf-8")
        compiled.unlink(missing_ok=True)
    mutant.seconds = round(time.monotonic() - began, 1)


def main() -> int:
    """Judge every mutant; 1 where a run of everything kills one that the default run does not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", help=f"of mas; default: {', '.join(CORE)}")
    parser.add_argument("--per-file", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "mutants.json")
    options = parser.parse_args()
    judged = []
    forget_mas()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        ignored = shutil.ignore_patterns(".git", ".venv*", "runs", "build", "__pycache__", ".*_cache")
        shutil.copytree(ROOT, tree, symlinks=True, ignore=ignored)
        for file in options.files or CORE:
            if not passes(tree, CORE[file], "--shard", "-1"):
                raise SystemExit(f"the tests of {file} fail without a change:\n{(tree / 'output').read_text()}")
            for mutant, text in mutants(file, options.per_file, options.seed):
                judge(tree, mutant, text)
                print(f"{mutant.killed_by:8} {file}:{mutant.line}: {mutant.change}  ({mutant.seconds} s)", flush=True)
                judged.append(mutant)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps([asdict(mutant) for mutant in judged], indent=1) + "\n", encoding="utf-8")
    by = [mutant.killed_by for mutant in judged]
    print(f"{len(by)} mutants: default kills {by.count('default')}, all {by.count('default') + by.count('all')}")
    return int("all" in by)


if __name__ == "__main__":
    sys.exit(main())
