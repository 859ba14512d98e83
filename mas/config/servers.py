"""Options of servers elsewhere: the engine of a run, and peers that play single roles; and players as texts: runs
(`run:DIR@STEP`, `greedy:DIR`) and models of servers (`openai:MODEL@URL#VARIABLE`).

Leaves out on purpose: keys. A configuration is written down, so it holds the name of an environment variable instead.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from mas.core.errors import ConfigError
from mas.core.options import Count, Options, Positive
from mas.core.tool_server import checked_address, checked_variable

_FIXED = frozenset({"messages", "model", "n", "stream"})
CHAT = "openai:"
"""What sources begin with that are models of a server."""
RUNS = ("run", "greedy")
"""Sources that are runs; the second plays the likeliest instead of drawing as it was trained."""
_CHAT = re.compile(r"openai:(?P<model>.+)@(?P<url>https?://[^#\s]+)(?:#(?P<key>\w+))?")
STEP = re.compile(r"(?P<path>.+)@(?P<step>\d+)")


class ServerOptions(Options):
    """A server that speaks OpenAI's HTTP dialect.

    `url` ends where the paths of the interface begin, mostly with `/v1`. `key_env` names the environment variable that
    holds the key, which is never part of a configuration itself; None sends none. `model` is what the server is asked
    for, by the name that it lists; None: the first base that it lists. `api`: `completions` exchanges token ids, as
    `mas serve` and `vllm serve` do; `chat` exchanges text, as every such server does.

    `timeout_s`: how long one request may take, `retries` and the waits between them included (of a stream: how long
    each piece may). Failures that may pass (no connection, 408, 409, 429, 5xx) are tried again `retries` times.
    `requests_per_minute`: requests begin evenly spaced, retries apart; None: no limit. `concurrency` requests are under
    way at once. `extra`: further fields of a chat request; null leaves out one that mas sends.
    """

    url: Annotated[str, AfterValidator(checked_address)]
    key_env: Annotated[str, AfterValidator(checked_variable)] | None = None
    model: str | None = None
    api: Literal["completions", "chat"]
    timeout_s: Annotated[float, Field(gt=0)] = 600.0
    retries: Count = 3
    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    concurrency: Positive = 64
    extra: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _extra_is_heard(self) -> Self:
        if self.extra and self.api != "chat":
            raise ValueError(f"extra has no effect with api={self.api}; only api=chat sends it")
        if fixed := _FIXED & self.extra.keys():
            raise ValueError(f"extra cannot set {sorted(fixed)}, which mas sends itself")
        return self


class RemoteOptions(ServerOptions):
    """The server of `engine=openai`, `engine=vllm_server` or `engine=tinker`, where `url` is that of the Tinker API.

    `shared_dir`: directory that this process and the server see under one path, where `vllm_server` puts the adapters'
    files; None: this machine's memory, for a server on the same machine.
    `replicas`: addresses of further servers with the same model, for `vllm_server`; all that is said here is of each.
    """

    url: Annotated[str, AfterValidator(checked_address)] = "http://127.0.0.1:8000/v1"
    api: Literal["completions", "chat"] = "completions"
    shared_dir: str | None = None
    replicas: tuple[Annotated[str, AfterValidator(checked_address)], ...] = ()

    @model_validator(mode="after")
    def _are_different(self) -> Self:
        urls = (self.url, *self.replicas)
        if twice := [url for url in self.replicas if urls.count(url) > 1]:
            raise ValueError(f"replicas has {twice[0]} twice, or it is the url: name each server once")
        return self

    @property
    def servers(self) -> "tuple[RemoteOptions, ...]":
        """The options of each server, the one of `url` first."""
        return tuple(self.model_copy(update={"url": url, "replicas": ()}) for url in (self.url, *self.replicas))


class PeerOptions(ServerOptions):
    """A model from elsewhere that plays roles which name it as their `peer`.

    `tokenizer`: with `api=completions` the directory or hub id of its tokenizer; None: the one of `model.path`.
    """

    api: Literal["completions", "chat"] = "chat"
    tokenizer: str | None = None

    @model_validator(mode="after")
    def _tokenizer_is_used(self) -> Self:
        if self.tokenizer is not None and self.api == "chat":
            raise ValueError("tokenizer has no effect with api=chat, which exchanges text")
        return self


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
