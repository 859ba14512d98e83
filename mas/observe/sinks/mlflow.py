"""MLflow, in `sinks/mlflow.db` of the run directory unless `MLFLOW_TRACKING_URI` names another store.

The store is SQLite, since MLflow has given up stores of plain files.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from mas.config.access import scalars
from mas.observe.sinks.base import FOLDER, PROJECT, SinkState

_MOST_METRICS, _MOST_PARAMS, _LONGEST_PARAM = 1000, 100, 6000
"""What a server takes in one request, and the most characters of a parameter."""


class MlflowSink:
    """Satisfies `mas.observe.sinks.base.Sink`."""

    def open(self, run: Path, config: Mapping[str, Any], earlier: SinkState | None) -> str:
        """Begin a run with the configuration as its parameters, or go on with one, whose parameters stay."""
        store = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(run / FOLDER / 'mlflow.db').absolute()}"
        self._client = MlflowClient(tracking_uri=store)
        if earlier is not None:
            self._client.update_run(earlier.id, status="RUNNING")
            self._run_id = earlier.id
            return earlier.id
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        experiment = self._client.get_experiment_by_name(name)
        experiment_id = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        self._run_id = str(self._client.create_run(experiment_id, run_name=run.name).info.run_id)
        values = {key: value for part, content in config.items() for key, value in scalars(content, part)}
        params = [Param(key, str(value)[:_LONGEST_PARAM]) for key, value in values.items()]
        for start in range(0, len(params), _MOST_PARAMS):
            self._client.log_batch(self._run_id, params=params[start : start + _MOST_PARAMS])
        return self._run_id

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics, with the time of now."""
        now_ms = int(time.time() * 1000)
        found = [Metric(name, value, now_ms, step) for name, value in metrics.items()]
        for start in range(0, len(found), _MOST_METRICS):
            self._client.log_batch(self._run_id, metrics=found[start : start + _MOST_METRICS])

    def close(self, error: str | None) -> None:
        """Mark the run as finished, or as failed."""
        self._client.set_terminated(self._run_id, "FINISHED" if error is None else "FAILED")
