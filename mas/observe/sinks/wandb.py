"""Weights & Biases. Offline unless `WANDB_MODE` says otherwise; its files are in `sinks/wandb` of the run directory.

Metrics and the configuration are sent; no console output, code, git state or name of the machine. wandb adds the
versions of Python and of itself, the platform and which well-known libraries are imported; that has no switch. A line
of metrics is a row with the training step as `step`, which charts use; W&B's `_step` counts rows, and so never falls.
"""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from mas.core.errors import ConfigError
from mas.observe.sinks.base import FOLDER, PROJECT, SinkState


class WandbSink:
    """Satisfies `mas.observe.sinks.base.Sink`."""

    def open(self, run: Path, config: Mapping[str, Any], earlier: SinkState | None) -> str:
        """Begin or go on with the W&B run of an id, which is made here."""
        mode: Any = os.environ.get("WANDB_MODE") or "offline"  # wandb refuses other texts
        if mode == "online" and not wandb.login(prompt=False, verify=False):
            raise ConfigError("WANDB_MODE=online needs a key: set WANDB_API_KEY, or give `wandb login` once")
        self._row = 0 if earlier is None else earlier.lines
        self._run = wandb.init(
            id=secrets.token_hex(4) if earlier is None else earlier.id,
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            name=run.name,
            dir=str((run / FOLDER).absolute()),
            mode=mode,
            config=dict(config),
            allow_val_change=True,
            resume="allow",
            reinit="create_new",
            settings=_settings(),
        )
        self._run.define_metric("*", step_metric="step")
        return str(self._run.id)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log({"step": step, **metrics}, step=self._row, commit=True)
        self._row += 1

    def close(self, error: str | None) -> None:
        """Mark the run as finished, or as failed."""
        self._run.finish(exit_code=0 if error is None else 1)


def _settings() -> wandb.Settings:
    return wandb.Settings(
        silent=True,
        host="",  # else the name of this machine
        console="off",
        save_code=False,
        disable_code=True,
        disable_git=True,
        disable_job_creation=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_disable_stats=True,
        x_save_requirements=False,
        x_transaction_log_flush_interval=1.0,  # seconds: what a killed process may lose
    )
