"""Tasksets of verifiers and of the Environments Hub in a Python of their own: `verifiers:NAME(python=PATH)`.

verifiers 0.4 needs openai below 3, and mas needs 3. So an environment runs in another process, in an interpreter with
verifiers that an option or the variable MAS_VERIFIERS_PYTHON names; see `mas.scenarios.bridges.verifiers_worker`. One
process serves all episodes of an id. A copy begins another episode and plays the answers again.

Leaves out: environments with several agents, harnesses that run a program, pictures.
"""

import json
import os
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Mapping
from functools import partial
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from typing import IO, Annotated, Any

from pydantic import ConfigDict, Field, ValidationError

from mas.core.environment import EnvironmentSpec, Step, is_bounded
from mas.core.errors import ConfigError, EnvironmentFault
from mas.core.options import Options
from mas.roles.chat import written_call
from mas.scenarios.bridges.packages import read_options
from mas.scenarios.replay import ReplayedWorld, ReplayEnvironment

SEAT, OTHER = "player", "other"
"""`OTHER`: the term of rewards that a task does not declare."""
VARIABLE = "MAS_VERIFIERS_PYTHON"
LONGEST = 100_000
"""Characters of an action."""
_WORKER = Path(__file__).with_name("verifiers_worker.py")
_WHY = 400
"""Characters of a process's error that are repeated."""


class VerifiersOptions(Options):
    """`python`: an interpreter with verifiers; None: that of MAS_VERIFIERS_PYTHON. `path`: a folder to import the
    taskset from. `tasks`: of an endless taskset, or of a long one, so many. `max_turns`: answers after which an
    episode is over. `timeout_s`: seconds that the process may take to begin, and between two answers. All other options
    are those of the taskset."""

    model_config = ConfigDict(extra="allow")

    python: Annotated[str, Field(min_length=1)] | None = None
    path: str | None = None
    tasks: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    max_turns: Annotated[int, Field(ge=1, le=1000)] = 20
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 120.0


def open_environment(name: str) -> ReplayEnvironment:
    """The environment of a taskset's id, with options in brackets.

    Raises:
        ConfigError: no such options, no Python with verifiers is named, or the taskset cannot be loaded in it.
    """
    worker = worker_of(name)
    spec = EnvironmentSpec(
        name=f"verifiers:{name}",
        seats=(SEAT,),
        views=(SEAT,),
        max_turns=worker.options.max_turns,
        terms=(*worker.terms, OTHER),
    )
    return ReplayEnvironment(spec, partial(VerifiersPlay, name), longest=LONGEST)


def task_key(name: str, random: Random) -> str:
    """What tells the task that a seed draws from others of the taskset."""
    keys = worker_of(name).keys
    return keys[random.randrange(len(keys))]


_workers: dict[str, "VerifiersWorker"] = {}
_opening = threading.Lock()


def worker_of(name: str) -> "VerifiersWorker":
    """The process of an id, begun where none runs.

    Raises:
        ConfigError: as `open_environment`.
    """
    with _opening:
        worker = _workers.get(name)
        if worker is None or not worker.is_alive:
            worker = _workers[name] = VerifiersWorker(name)
        return worker


def close_workers() -> None:
    """End all processes; the next use of an id begins another."""
    with _opening:
        for worker in _workers.values():
            worker.close()
        _workers.clear()


class VerifiersWorker:
    """One process. `keys`: of its tasks; `terms`: names of its rewards."""

    def __init__(self, name: str) -> None:
        taskset, _, rest = name.partition("(")
        self.name, self.options = f"verifiers:{name}", _options(name, rest.removesuffix(")"))
        python = self.options.python or os.environ.get(VARIABLE)
        if not python:
            raise ConfigError(
                f"{self.name}: name a Python with verifiers, verifiers:{taskset}(python=PATH), or set {VARIABLE}: "
                "python -m venv DIR && DIR/bin/pip install verifiers==0.4.0 makes one"
            )
        self._log = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - closed with the process
        self._numbers = count()
        self._queues: dict[int, SimpleQueue[dict[str, Any]]] = {}
        hello: SimpleQueue[dict[str, Any]] = SimpleQueue()
        path = "" if self.options.path is None else str(Path(self.options.path).resolve())
        more = json.dumps(self.options.model_extra or {})
        words = [python, "-P", str(_WORKER), taskset, str(self.options.tasks), str(self.options.max_turns), more]
        environment = {**os.environ, "PYTHONPATH": path}
        try:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=environment
            )
        except OSError as error:
            self._log.close()
            raise ConfigError(f"{self.name}: {python} cannot be run: {error.strerror}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        reader = threading.Thread(
            target=_read, args=(self._process.stdout, self._queues, hello), name="verifiers-reader", daemon=True
        )
        reader.start()
        self.close = weakref.finalize(self, _end, self._process, reader, self._log)
        try:
            begun = hello.get(timeout=self.options.timeout_s)
        except Empty:
            begun = {"error": f"it did not begin within {self.options.timeout_s:g} s"}
        if "tasks" not in begun:
            why = str(begun.get("error") or self._last_words())[:_WHY]
            self.close()
            raise ConfigError(f"{self.name} cannot be opened in {python}: {why}")
        self.keys: tuple[str, ...] = tuple(map(str, begun["tasks"]))
        self.terms: tuple[str, ...] = tuple(dict.fromkeys(map(str, begun["terms"])))

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.close.alive and self._process.poll() is None

    def begin(self, task: int) -> int:
        """The number of a new episode of a task."""
        number = next(self._numbers)
        self._queues[number] = SimpleQueue()
        self._send(begin=number, task=task)
        return number

    def act(self, episode: int, text: str, call: dict[str, Any] | None) -> None:
        """What the policy says."""
        self._send(act=episode, text=text, call=call)

    def next(self, episode: int) -> dict[str, Any]:
        """The next line of an episode.

        Raises:
            EnvironmentFault: none comes in time, or the process or the episode broke.
        """
        try:
            line = self._queues[episode].get(timeout=self.options.timeout_s)
        except Empty:
            raise EnvironmentFault(f"{self.name} did not go on within {self.options.timeout_s:g} s") from None
        if "error" in line:
            raise EnvironmentFault(f"{self.name}: the episode failed: {str(line['error'])[:_WHY]}")
        if "lost" in line:
            raise self._lost()
        return line

    def drop(self, episode: int) -> None:
        """Nobody plays an episode any more."""
        if self._queues.pop(episode, None) is not None and self.is_alive:
            try:
                self._send(drop=episode)
            except EnvironmentFault:
                return

    def _send(self, **order: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            raise self._lost() from None

    def _lost(self) -> EnvironmentFault:
        return EnvironmentFault(f"{self.name}: its process has ended: {self._last_words()}")

    def _last_words(self) -> str:
        if self._log.closed:
            return "it was closed"
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:_WHY] if lines else "it said nothing"


def _read(lines: IO[bytes], queues: dict[int, SimpleQueue[dict[str, Any]]], hello: SimpleQueue[dict[str, Any]]) -> None:
    """Hand each line to its episode; at the end all that wait are told."""
    try:
        for text in lines:
            line = json.loads(text)
            queue = queues.get(line["episode"]) if "episode" in line else hello
            if queue is not None:
                queue.put(line)
    except ValueError:  # no line of the protocol, or closed
        pass
    finally:
        for queue in (hello, *queues.copy().values()):
            queue.put({"lost": True})


def _end(process: "subprocess.Popen[bytes]", reader: threading.Thread, log: IO[bytes]) -> None:
    process.kill()
    process.wait()
    reader.join()
    for pipe in (process.stdin, process.stdout, log):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # what it was to read is lost with it
                continue


class VerifiersPlay(ReplayedWorld):
    """One episode."""

    def __init__(self, name: str, seed: int) -> None:
        self._worker = worker_of(name)
        self._episode = self._worker.begin(Random(seed).randrange(len(self._worker.keys)))
        self._end = weakref.finalize(self, self._worker.drop, self._episode)
        self._seen, self._tools, self._total = "", tuple[str, ...](), 0.0
        self._names: frozenset[str] = frozenset()
        self._is_over = False
        self._take()

    def to_move(self) -> str | None:
        return None if self._is_over else SEAT

    def act(self, action: str) -> Step:
        call = self._call(action)
        self._worker.act(self._episode, "" if call else action, call)
        return Step(rewards={SEAT: self._take()})

    def fields(self, view: str) -> Mapping[str, str]:
        return {"seen": self._seen, "tools": "\n".join(self._tools)}

    def success(self) -> bool:
        return self._is_over and self._total >= 1

    def render(self) -> str:
        return self._seen

    def _call(self, action: str) -> dict[str, Any] | None:
        """The call of a tool that an action is; None: it is an answer."""
        written = written_call(action) if self._names else None
        try:
            call = None if written is None else json.loads(written)
        except (ValueError, RecursionError):
            return None
        if not isinstance(call, dict):
            return None
        name, arguments = call.get("name"), call.get("arguments")
        is_call = isinstance(name, str) and name in self._names and isinstance(arguments, dict)
        return {"name": name, "arguments": arguments} if is_call else None

    def _take(self) -> dict[str, float]:
        """Note the next line; returns what it pays."""
        line = self._worker.next(self._episode)
        if "messages" in line:
            self._seen = conversation(line["messages"])
            functions = [tool["function"] for tool in line["tools"]]
            self._tools = tuple(json.dumps(function, ensure_ascii=False) for function in functions)
            self._names = frozenset(function["name"] for function in functions)
            return {}
        self._is_over = True
        self._end()
        paid: dict[str, float] = {}
        for name, value in line["rewards"].items():
            if not is_bounded(float(value)):
                raise EnvironmentFault(f"{self._worker.name}: its reward {name} is {value}, which is no finite number")
            term = name if name in self._worker.terms else OTHER
            paid[term] = paid.get(term, 0.0) + float(value)
        self._total = sum(paid.values())
        return paid


def conversation(messages: list[dict[str, Any]]) -> str:
    """Messages as text: one of the user alone as it is, more with who says them."""
    texts = [(str(message.get("role")), _text(message)) for message in messages]
    if len(texts) == 1:
        return texts[0][1]
    return "\n\n".join(f"{role}: {text}" for role, text in texts if text)


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "\n".join(str(part.get("text", f"[{part.get('type')}]")) for part in content)
    calls = (call["function"] for call in message.get("tool_calls") or ())
    lines = (f'{{"name": "{call["name"]}", "arguments": {call["arguments"]}}}' for call in calls)
    return "\n".join(filter(None, (str(content), *lines))).encode(errors="replace").decode()


def _options(name: str, text: str) -> VerifiersOptions:
    try:
        return VerifiersOptions(**read_options(f"verifiers:{name}", text))
    except ValidationError as error:
        problem = error.errors()[0]
        raise ConfigError(f"verifiers:{name}: {problem['loc'][0]}: {problem['msg']}") from error
