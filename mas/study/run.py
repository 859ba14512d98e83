"""Running a study in a directory: its main run with everything shown, the rest beside it, then table and page.

Every finished chain is kept in `chains/`; the same command again works through what is missing.
"""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from mas.config.options import Config
from mas.core.errors import RunDirectoryError
from mas.core.scenario import Scenario
from mas.core.seeds import digest
from mas.observe.charts import curves_svg
from mas.observe.files import write_bytes_atomic, write_text_atomic
from mas.observe.metrics import read_metrics
from mas.observe.report_records import SUCCESS, Report, success_table
from mas.runs.report import build_report
from mas.runs.resolve import resolve
from mas.runs.train import train_in_directory
from mas.runs.worker_setup import contents_digest
from mas.study.chain import ArmRun, Curve, Note, StudyChain, run_chain
from mas.study.options import ARMS, PLAYED, StudyOptions
from mas.study.summary import (
    BASELINES,
    arm_charts,
    learning_charts,
    markdown_table,
    preset_of,
    write_study_page,
    write_summary,
)
from mas.study.workers import read_kept, run_chains
from mas.training.trainer import TrainingOutcome
from mas.training.watch import points_of

_PLAYED = ",".join(PLAYED)
"""Part of what a chain was asked: chains without the arms of today are worked through again."""


def run_study(
    directory: Path, study: StudyOptions, *, command: str, console: Console, again: str = ""
) -> dict[str, Any]:
    """Work through a study; its main run is the reference arm of the first case's seed 0, in `directory/train`.

    Returns:
        What was written to `directory/summary.json`. Beside it are the page `report.html`, the table `summary.md` and
        the plot `curves.svg`, and in `curves/` a drawing of each arm beside the baselines.

    Raises:
        RunDirectoryError: the directory cannot be written.
    """
    began = time.perf_counter()
    chains = [
        StudyChain(case=case, options=options, seed=seed, eval_tasks=study.eval_tasks)
        for case, options in study.cases.items()
        for seed in range(options.seeds)
    ]
    kept = _KeptRuns(directory)
    known = {chain: runs for chain in chains if (runs := kept.load(chain)) is not None}
    missing = [chain for chain in chains if chain not in known]
    main = _MainRun(directory / "train", console)

    def note(text: str) -> None:
        console.print(text, style="dim", highlight=False, markup=False)

    def work(chain: StudyChain, tell: Note) -> list[ArmRun]:
        return run_chain(chain, tell, partial(main.train, chain) if chain is chains[0] else None)

    beside = max(min((os.cpu_count() or 1) - 1, len(missing) - 1), 0)  # one process per further core and chain
    with closing(run_chains(missing, note, work, workers=beside)) as worked:
        for chain, runs in worked:
            kept.save(chain, runs)
            known[chain] = runs
    runs = [run for chain in chains for run in known[chain]]
    summary = write_summary(directory / "summary.json", runs, command=command, seconds=time.perf_counter() - began)
    tables = {SUCCESS: summary["success"], **summary["measures"]}
    told = [markdown_table(found, measure) for measure, found in tables.items() if found]
    write_text_atomic(directory / "summary.md", "\n".join(told))
    write_text_atomic(directory / "curves.svg", curves_svg(learning_charts(runs), names=tuple(ARMS)))
    (directory / "curves").mkdir(exist_ok=True)
    for name, chart in arm_charts(runs).items():
        drawn = curves_svg([chart], names=tuple(preset_of(arm) for arm in BASELINES), columns=1)
        write_text_atomic(directory / "curves" / f"{name}.svg", drawn)
    write_study_page(directory / "report.html", summary, runs, main.report(chains[0]), again or command)
    for measure, found in tables.items():
        if found:
            console.print(success_table(found, title=f"{measure} on held-out tasks, greedy", told=measure))
    console.print(
        f"{directory / 'report.html'}   {directory / 'summary.json'}", style="bold", highlight=False, markup=False
    )
    return summary


class _MainRun:
    """The run that people watch."""

    def __init__(self, path: Path, console: Console) -> None:
        self.path, self.console = path, console

    def train(self, chain: StudyChain, config: Config, scenario: Scenario) -> tuple[TrainingOutcome, Curve]:
        """Train in the run directory, with its progress shown; the curve is read from its metrics."""
        outcome = train_in_directory(self._placed(config), scenario, console=self.console)

        def value(line: Mapping[str, Any]) -> float | None:
            evaluation = line.get("eval", {}).get(chain.watched)
            if not evaluation:
                return None
            return float({**evaluation.get("measures", {}), SUCCESS: evaluation["success"]}[chain.measure])

        return outcome, tuple(points_of(read_metrics(self.path / "metrics.jsonl"), value))

    def report(self, chain: StudyChain) -> Report:
        config = self._placed(chain.configure(chain.options.reference))
        return build_report(self.path, config, resolve(config).plan)

    def _placed(self, config: Config) -> Config:
        return config.model_copy(update={"run_dir": str(self.path)})


class _KeptRuns:
    """Finished chains on disk, by the content of what they were asked."""

    def __init__(self, directory: Path) -> None:
        self.folder = directory / "chains"
        self._contents: dict[tuple[str, str], str] = {}
        """Of the files that the arms of a case name, by case and arm, as they were when they were first looked for."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunDirectoryError(f"study directory {directory} cannot be made: {error}; choose another") from error

    def load(self, chain: StudyChain) -> list[ArmRun] | None:
        path = self._path(chain)
        return read_kept(path, list[ArmRun]) if path.is_file() else None

    def save(self, chain: StudyChain, runs: Sequence[ArmRun]) -> None:
        write_bytes_atomic(self._path(chain), msgspec.json.encode(list(runs)))

    def _path(self, chain: StudyChain) -> Path:
        configs = {arm: chain.configure(arm) for arm in chain.options.arms}
        for arm, config in configs.items():
            if (chain.case, arm) not in self._contents:
                self._contents[chain.case, arm] = contents_digest(config)
        asked = [text for arm in configs for text in (configs[arm].model_dump_json(), self._contents[chain.case, arm])]
        measure = [] if chain.measure == SUCCESS else [chain.measure]
        key = digest(_PLAYED, chain.eval_tasks, str(chain.options.swap), chain.options.matched, *asked, *measure)
        return self.folder / f"{chain.case}-{chain.seed}-{key}.json"
