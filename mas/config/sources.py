"""Players as texts: runs (`run:DIR@STEP`, `greedy:DIR`) and models of servers (`openai:MODEL@URL#VARIABLE`)."""

import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from mas.config.servers import ServerOptions
from mas.core.errors import ConfigError

CHAT = "openai:"
"""What sources begin with that are models of a server."""
RUNS = ("run", "greedy")
"""Sources that are runs; the second plays the likeliest instead of drawing as it was trained."""
_CHAT = re.compile(r"openai:(?P<model>.+)@(?P<url>https?://[^#\s]+)(?:#(?P<key>\w+))?")
STEP = re.compile(r"(?P<path>.+)@(?P<step>\d+)")


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
        found = STEP.fullmatch(rest)
        path, step = (found["path"], int(found["step"])) if found else (rest, None)
        return cls(Path(path), step, kind == "greedy")

    def __str__(self) -> str:
        return f"{RUNS[self.is_greedy]}:{self.path}" + ("" if self.step is None else f"@{self.step}")


def chat_options(source: str) -> ServerOptions:
    """The server of a source, read from its text; no request is sent.

    Raises:
        ConfigError: it reads otherwise.
    """
    found = _CHAT.fullmatch(source)
    if found is None:
        raise ConfigError(f"{source!r}: write openai:MODEL@URL, as openai:qwen@http://127.0.0.1:8000/v1")
    try:
        return ServerOptions(url=found["url"], model=found["model"], key_env=found["key"], api="chat")
    except ValidationError as error:
        raise ConfigError(f"{source!r}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error
