"""A small trained run, and `mas serve` on it in a process of its own."""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from started import COMMAND, greeting_of

from mas.config.load import load_config
from mas.runs.train import train_in_directory
from mas.scenarios import build_scenario

SHORT = ("train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=2", "algorithm.sampler.candidates=2")


def trained(path: Path, overrides: Sequence[str]) -> Path:
    """A run of relay, trained for one step."""
    config = load_config(["scenario=relay", *SHORT, *overrides, f"run_dir={path}"])
    train_in_directory(config, build_scenario(config.scenario), console=Console(quiet=True))
    return path


class Serving(NamedTuple):
    """A command that serves."""

    process: subprocess.Popen[str]
    address: str
    greeting: str


@contextmanager
def serving(*words: str, **environment: str) -> Iterator[Serving]:
    """`mas serve` in a process of its own, as soon as it answers."""
    command = [*COMMAND, "serve", *words]
    names = os.environ | {"COLUMNS": "80"} | environment
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=names) as process:
        greeting = greeting_of(process)
        found = re.search(r"http://[\d.]+:\d+", greeting)
        try:
            if found is None:
                assert process.stderr is not None
                raise AssertionError(greeting + process.stderr.read())
            yield Serving(process, found[0], greeting)
        finally:
            if process.poll() is None:
                process.kill()
