"""Sends the metrics of a run to its sinks, each in a thread of its own: none delays training or another one.

What a sink is sent is written to `sinks/NAME.json` before it is sent, so that nothing is sent twice, also by a run that
resumes from an older checkpoint. A process that is killed between the two leaves this line out.
"""

import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from types import TracebackType
from typing import Any

import msgspec

from mas.core.errors import ConfigError
from mas.observe.files import write_bytes_atomic
from mas.observe.sinks.base import FOLDER, Sink, SinkState

_OPEN_S, _CLOSE_S = 180.0, 60.0
_MOST_WAITING = 10_000
"""Lines that a sink may be behind."""
_EVALUATED = re.compile(r"eval/(\w+)/success")


class Sinks:
    """The sinks of one run. Use as a context manager; it closes them.

    Args:
        run: its directory.
        sinks: name -> class, see `find_sinks`.
        warn: shows a sentence to the user; may be called in any thread.
    """

    def __init__(self, run: Path, sinks: Mapping[str, Callable[[], Sink]], warn: Callable[[str], None]) -> None:
        self._run = run
        self._feeds = [_Feed(name, make, run, warn) for name, make in sinks.items()]
        self._step, self._final = 0, dict[str, float]()

    def open(self, config: Mapping[str, Any], *, is_resumed: bool) -> None:
        """Open all of them.

        Args:
            is_resumed: one that cannot be opened is left out, with a warning.

        Raises:
            ConfigError: one cannot be opened, and the run is new.
        """
        if self._feeds:
            (self._run / FOLDER).mkdir(exist_ok=True)
        for feed in self._feeds:
            feed.open(config, is_resumed=is_resumed)

    def log(self, step: int, metrics: Mapping[str, float | None], *, wait_s: float = 0.0) -> None:
        """Send metrics with flat names, without those that are None; each sink gets what it was not sent before.

        Args:
            wait_s: how long to wait for a sink that is far behind; then it is left out.
        """
        values = {name: float(value) for name, value in metrics.items() if value is not None}
        self._step = step
        for name, value in values.items():
            if found := _EVALUATED.fullmatch(name):
                self._final[f"final/{found[1]}/success"] = value
        for feed in self._feeds:
            feed.log(step, values, wait_s)

    def __enter__(self) -> "Sinks":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._final:
            self.log(self._step, self._final)
        for feed in self._feeds:
            feed.close(None if kind is None else kind.__name__)


class _Feed:
    """One sink with its thread, which alone calls it."""

    def __init__(self, name: str, make: Callable[[], Sink], run: Path, warn: Callable[[str], None]) -> None:
        self._name, self._make, self._run, self._warn = name, make, run, warn
        self._kept = run / FOLDER / (re.sub(r"[^\w.-]+", "_", name) + ".json")
        self._lines: Queue[tuple[int, dict[str, float]] | str | None] = Queue(_MOST_WAITING)  # in the end: of `close`
        self._state = SinkState(id="")
        self._thread: Thread | None = None
        self._failure: str | None = None

    def open(self, config: Mapping[str, Any], *, is_resumed: bool) -> None:
        opened = Future[None]()
        self._thread = Thread(target=self._work, args=(config, opened), name=f"sink {self._name}", daemon=True)
        self._thread.start()
        error = _error_of(opened)
        if error is None:
            return
        if not is_resumed:
            raise ConfigError(
                f"the sink {self._name} cannot be opened ({_reason(error)}): correct it, or take it out of train.sinks"
            ) from None
        self._fail(f"cannot be opened ({_reason(error)})")

    def log(self, step: int, values: dict[str, float], wait_s: float) -> None:
        if self._failure is None:
            try:
                self._lines.put((step, values), block=wait_s > 0, timeout=wait_s)
            except Full:
                self._fail(f"is {_MOST_WAITING} lines behind at step {step}")

    def close(self, error: str | None) -> None:
        if self._thread is None:
            return
        if self._failure is None:
            with suppress(Full):
                self._lines.put(error, timeout=_CLOSE_S)
            self._thread.join(_CLOSE_S)
            if self._thread.is_alive():
                self._fail(f"has not ended within {_CLOSE_S:.0f} seconds")
        if self._failure is not None:
            self._warn(f"the sink {self._name} lacks metrics: it {self._failure}; metrics.jsonl has all of them")

    def _work(self, config: Mapping[str, Any], opened: Future[None]) -> None:
        try:
            sink = self._opened(config)
        except BaseException as error:  # noqa: BLE001 - any error of a library or a user's class is passed on to `open`
            opened.set_exception(error)
            return
        opened.set_result(None)
        try:
            while isinstance(line := self._lines.get(), tuple):
                self._send(sink, *line)
            sink.close(line)
        except Exception as error:  # noqa: BLE001 - no error of a library or a user's class may end training
            self._fail(f"failed at step {self._state.step} ({_reason(error)})")

    def _opened(self, config: Mapping[str, Any]) -> Sink:
        earlier = msgspec.json.decode(self._kept.read_bytes(), type=SinkState) if self._kept.is_file() else None
        sink = self._make()
        found = sink.open(self._run, config, earlier)
        self._keep(SinkState(id=found) if earlier is None else msgspec.structs.replace(earlier, id=found))
        return sink

    def _send(self, sink: Sink, step: int, values: dict[str, float]) -> None:
        """Send what of a line the sink was not sent yet."""
        state = self._state
        known = set(state.names) if step == state.step else set()
        new = {name: value for name, value in values.items() if name not in known}
        if step < state.step or not new:
            return
        names = tuple(sorted(known | new.keys()))
        self._keep(SinkState(id=state.id, lines=state.lines + 1, step=step, names=names))
        sink.log(step, new)

    def _keep(self, state: SinkState) -> None:
        self._state = state
        write_bytes_atomic(self._kept, msgspec.json.encode(state))

    def _fail(self, failure: str) -> None:
        self._failure = failure
        self._warn(f"the sink {self._name} {failure}: it is left out from here on, training continues")


def _error_of(opened: Future[None]) -> BaseException | None:
    try:
        return opened.exception(_OPEN_S)
    except TimeoutError:
        return TimeoutError(f"no answer within {_OPEN_S:.0f} seconds")


def _reason(error: BaseException) -> str:
    """The kind and first line of an error, without the values of environment variables that hold keys, and without
    users and passwords in addresses."""
    text = next(iter(str(error).strip().splitlines()), "")
    for name, value in os.environ.items():
        if value and re.search("KEY|TOKEN|SECRET|PASSWORD", name.upper()):
            text = text.replace(value, "***")
    text = re.sub(r"//[^/\s@]+@", "//***@", text)
    return f"{type(error).__name__}: {text}"
