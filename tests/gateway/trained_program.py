"""A training whose programs are threads of the test."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from mas.config.load import load_config
from mas.endpoint.address import bind
from mas.endpoint.client_keys import Entrance
from mas.gateway.serving import GatewayLimits, check_program, program_opening
from mas.runs.resolve import resolve, with_tasks
from mas.runs.train import train_in_directory
from mas.training.trainer import TrainingOutcome

QUICK = GatewayLimits(idle_s=30, wait_s=20, lease_s=0.5, linger_s=1.0)
Programs = Callable[[str], object]
"""Plays, given the gateway's address."""


def train_program(
    overrides: Sequence[str], run: Path, programs: Programs, limits: GatewayLimits = QUICK, key: str | None = None
) -> tuple[TrainingOutcome, object]:
    """Train while programs play in a thread; how training ended, and what the programs returned."""
    config = load_config(["scenario=program", "algorithm=parallel_grpo", *overrides, f"run_dir={run}"])
    setup = resolve(config)
    check_program(setup)
    with bind("127.0.0.1", 0, has_key=False) as listener:
        host, port = listener.getsockname()[:2]
        opening = program_opening(
            with_tasks(config, setup), listener, note=lambda text: None, entrance=Entrance(key=key), limits=limits
        )

        async def both() -> tuple[TrainingOutcome, object]:
            playing = asyncio.create_task(asyncio.to_thread(programs, f"http://{host}:{port}"))
            training = asyncio.create_task(
                asyncio.to_thread(
                    train_in_directory,
                    config,
                    setup.scenario,
                    console=Console(quiet=True),
                    opening=opening,
                    played=setup,
                )
            )
            await asyncio.wait({playing, training}, return_when=asyncio.FIRST_EXCEPTION)
            if playing.done():
                playing.result()  # a training whose programs fail would wait for ever
            return await training, await playing

        return asyncio.run(both())
