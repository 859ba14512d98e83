"""How players are asked for, and opened: `random`, `cfr:500`, `run:DIR@STEP`, `greedy:DIR`, `openai:MODEL@URL`."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from mas.config.servers import CHAT, RUNS, RunSource
from mas.league.games import LeagueWorld
from mas.league.match import Player
from mas.league.scripted import KINDS, scripted


def pinned(sources: Mapping[str, str]) -> dict[str, str]:
    """Runs with the step of their latest checkpoint, so that a tournament that goes on has the players it began with.

    Raises:
        ConfigError: see `RunSource.parse`.
    """
    return {name: _pinned(source) for name, source in sources.items()}


def _pinned(source: str) -> str:
    run = RunSource.parse(source)
    if run is None or run.step is not None:
        return source
    from mas.training.checkpoint import checkpoint_steps

    steps = checkpoint_steps(run.path / "checkpoints")
    return f"{source}@{steps[-1]}" if steps else source


def candidate_of(text: str) -> tuple[str, str]:
    """Source and usual name of who is asked to enter: `runs/kuhn@20` is `run:runs/kuhn@20`, called `kuhn-20`.

    A text that is a directory, or begins with no known kind, is a run.

    Raises:
        ConfigError: see `RunSource.parse`.
    """
    kind = text.partition(":")[0]
    source = text if kind in (*RUNS, *KINDS, "openai") and not Path(text).is_dir() else f"run:{text}"
    run = RunSource.parse(_pinned(source))
    if run is None:
        return source, source.replace("/", "_").replace(",", "_")
    return source, run.path.name + ("" if run.step is None else f"-{run.step}")


@asynccontextmanager
async def open_players(
    sources: Mapping[str, str], world: LeagueWorld, note: Callable[[str], None]
) -> AsyncIterator[dict[str, Player]]:
    """Players by name, from their sources.

    Args:
        note: told what takes long.

    Raises:
        ConfigError: no such player, or one that cannot play this game. Otherwise as `open_runs` and `open_chat`.
    """
    players: dict[str, Player] = {}
    runs: dict[str, RunSource] = {}
    async with AsyncExitStack() as stack:
        for name, source in sources.items():
            run = RunSource.parse(source)
            if run is not None:
                runs[name] = run
            elif source.startswith(CHAT):
                from mas.league.chat import open_chat

                players[name] = await stack.enter_async_context(open_chat(source))
            else:
                players[name] = scripted(source, world)
        if runs:
            from mas.league.runs import open_runs

            players |= await stack.enter_async_context(open_runs(runs, world, note))
        yield players
