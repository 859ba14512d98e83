"""trackio, in `sinks/trackio` of the run directory unless `TRACKIO_DIR` names another one.

With `TRACKIO_SPACE_ID` or `TRACKIO_SERVER_URL` the metrics go there. trackio writes in a thread of its own, twice a
second, and turns its failures into warnings of Python.
"""

import io
import os
import secrets
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import trackio
import trackio.run

from mas.observe.sinks.base import FOLDER, PROJECT, SinkState


class TrackioSink:
    """Satisfies `mas.observe.sinks.base.Sink`."""

    def open(self, run: Path, config: Mapping[str, Any], earlier: SinkState | None) -> str:
        """Begin or go on with the run of a name, which is that of the directory with some letters."""
        if not os.environ.get("TRACKIO_DIR"):
            _store_in((run / FOLDER / "trackio").absolute())
        if not (os.environ.get("TRACKIO_SPACE_ID") or os.environ.get("TRACKIO_SERVER_URL")):
            trackio.run._get_default_namespace = lambda: None  # else it asks Hugging Face for the user's name
        name = f"{run.name}-{secrets.token_hex(3)}" if earlier is None else earlier.id
        with redirect_stdout(io.StringIO()):
            self._run = trackio.init(
                project=PROJECT,
                name=name,
                config=dict(config),
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        return name

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self, error: str | None) -> None:
        """Wait until all is written. A run of trackio has no state that says how it ended."""
        with redirect_stdout(io.StringIO()):
            self._run.finish()


def _store_in(folder: Path) -> None:
    """Let trackio store there: it reads `TRACKIO_DIR` when it is imported, and a process may train several runs."""
    folder.mkdir(exist_ok=True)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "trackio" and hasattr(module, "TRACKIO_DIR"):
            vars(module)["TRACKIO_DIR"] = folder
