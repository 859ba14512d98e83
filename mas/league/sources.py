"""How players are asked for, and opened: `random`, `cfr:500`, `run:DIR@STEP`, `greedy:DIR`, `openai:MODEL@URL`."""

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from mas.core.errors import ConfigError
from mas.league.games import World
from mas.league.match import Player
from mas.league.scripted import KINDS, scripted

CHAT = "openai:"
"""What sources begin with that are models of a server."""
RUNS = ("run", "greedy")
"""Sources that are runs; the second plays the likeliest instead of drawing as it was trained."""
_STEP = re.compile(r"(?P<path>.+)@(?P<step>\d+)")


@dataclass(frozen=True, slots=True)
class RunSource:
    """`run:DIR@STEP`; `step` None: the latest, 0: the team as its training began; `is_greedy`: `greedy:` instead."""

    path: Path
    step: int | None = None
    is_greedy: bool = False

    @classmethod
    def parse(cls, source: str) -> "RunSource | None":
        """None: a source of another kind.

        Raises:
            ConfigError: no directory is named.
        """
        kind, _, rest = source.partition(":")
        if kind not in RUNS:
            return None
        if not rest:
            raise ConfigError(f"{source!r}: write {kind}:DIR or {kind}:DIR@STEP, as {kind}:runs/kuhn@20")
        found = _STEP.fullmatch(rest)
        path, step = (found["path"], int(found["step"])) if found else (rest, None)
        return cls(Path(path), step, kind == "greedy")

    def __str__(self) -> str:
        return f"{RUNS[self.is_greedy]}:{self.path}" + ("" if self.step is None else f"@{self.step}")


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
    sources: Mapping[str, str], world: World, note: Callable[[str], None]
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
