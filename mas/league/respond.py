"""Training one seat, or all, against a fixed mixture of players: best responses as far as training finds them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from mas.config.opponents import OpponentsOptions
from mas.config.options import Config
from mas.league.opponents import open_pool
from mas.scenarios.attempts import configured_scenario
from mas.training.run import train_in_directory
from mas.training.trainer import Outcome


def train_against(
    config: Config,
    players: Mapping[str, str],
    shares: Mapping[str, float],
    run_dir: Path,
    *,
    seats: Sequence[str] = (),
    start: str | None = None,
    console: Console | None = None,
) -> Outcome:
    """Train in a directory against a fixed mixture of players, or go on with the run that is there.

    Args:
        config: all the rest: scenario, algorithm, model, steps; its own `algorithm.opponents` is replaced.
        players: name -> source, such as `run:runs/kuhn@20`; names of letters, digits, `_`, `-` and `.`.
        shares: how often each of them is met, divided by their sum; `self` is the policy in training.
        seats: those that are trained; empty: all that the team trains, one after the other.
        start: DIR or DIR@STEP of a run whose adapters training begins with; None: fresh ones.

    Raises:
        ConfigError: what `mas train` refuses. Otherwise as `train_in_directory`.
    """
    options = OpponentsOptions(players=dict(players), shares=dict(shares), seats=tuple(seats))
    algorithm = config.algorithm.model_copy(update={"opponents": options})
    train = config.train.model_copy(update={"start": start})
    config = config.model_copy(update={"algorithm": algorithm, "train": train, "run_dir": str(run_dir)})
    scenario = configured_scenario(config)
    return train_in_directory(config, scenario, console=console, opponents=open_pool(config, scenario))
