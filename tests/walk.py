"""Which functions of `mas` one training step executes, and how many of them are on one stack.

Comprehensions, and what an import executes, are no functions here. A task of the event loop has a stack of its own, and
so has a thread: who started it is not on it.
"""

import asyncio
import inspect
import os
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

PACKAGE = Path(__file__).parents[1] / "mas"
STEP = (
    *("scenario=relay", "algorithm=at_grpo", "train.steps=3", "train.tasks_per_step=4", "train.eval_first=false"),
    *("train.eval_every=0", "train.checkpoint_every=0", "model.lora.rank=4", "model.tiny.hidden=32"),
    *("model.tiny.intermediate=64", "model.tiny.layers=1", "model.tiny.heads=2", "model.tiny.kv_heads=1"),
    *("model.tiny.steps=150", "model.tiny.habit_steps=60", "model.tiny.batch=32"),
)
"""A base that mostly answers in the right form, made in seconds. Of its three steps the second is looked at."""


class Walk:
    """Listens to calls of functions in a folder, in this thread and in those that begin while it is entered.

    Attributes:
        is_on: whether calls count now.
        functions: file, line and name of each that was called, or went on after an `await`.
        deepest: those on one stack, from the outermost on, when there were the most.
    """

    def __init__(self, folder: Path) -> None:
        self.is_on = False
        self.functions: set[tuple[str, int, str]] = set()
        self.deepest: list[str] = []
        self._folder = f"{folder}{os.sep}"

    def __enter__(self) -> "Walk":
        threading.setprofile(self._listen)
        sys.setprofile(self._listen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    @property
    def files(self) -> set[str]:
        return {file for file, _, _ in self.functions}

    def _listen(self, frame: FrameType, event: str, _: object) -> None:
        if not self.is_on or event != "call" or not self._is_counted(frame.f_code):
            return
        self.functions.add(self._key(frame.f_code))
        stack: list[CodeType] = []
        above: FrameType | None = frame
        while above is not None:
            if self._is_counted(above.f_code):
                stack.append(above.f_code)
            above = above.f_back
        if len(stack) > len(self.deepest):
            self.deepest = [f"{self._key(code)[0]}:{code.co_qualname}" for code in reversed(stack)]

    def _is_counted(self, code: CodeType) -> bool:
        """Whether it is a function of the folder. Comprehensions are functions to Python; their names are in angles."""
        is_function = bool(code.co_flags & inspect.CO_OPTIMIZED) and (
            code.co_name == "<lambda>" or code.co_name[0] != "<"
        )
        return is_function and code.co_filename.startswith(self._folder)

    def _key(self, code: CodeType) -> tuple[str, int, str]:
        return code.co_filename.removeprefix(self._folder), code.co_firstlineno, code.co_qualname


def training_step() -> Walk:
    """From the end of the first step to that of the second, so that nothing that begins or ends a training is in it."""
    from mas.config.load import load_config
    from mas.runs.resolve import resolve_training
    from mas.scenarios import build_scenario
    from mas.training.base import open_base
    from mas.training.trainer import Trainer
    from mas.training.watch import Silent

    walk = Walk(PACKAGE)

    class Second(Silent):
        def on_step(self, step: int, metrics: Any, episodes: Any) -> None:
            walk.is_on = step == 1

    with tempfile.TemporaryDirectory() as cache, patch.dict(os.environ, MAS_CACHE=cache):
        config = load_config(STEP)
        scenario = build_scenario(config.scenario)
        setup = resolve_training(config, scenario)
        trainer = Trainer(setup, open_base(setup, lambda _: None))
        with walk:
            asyncio.run(trainer.run(Second()))
    return walk
