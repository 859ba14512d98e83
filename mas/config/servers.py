"""Options of servers elsewhere: the engine of a run, and peers that play single roles.

Leaves out on purpose: keys. A configuration is written down, so it holds the name of an environment variable instead.
"""

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from mas.config.base import Count, Options, Positive

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_FIXED = frozenset({"messages", "model", "n", "stream"})


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

    url: str
    key_env: str | None = None
    model: str | None = None
    api: Literal["completions", "chat"]
    timeout_s: Annotated[float, Field(gt=0)] = 600.0
    retries: Count = 3
    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    concurrency: Positive = 64
    extra: dict[str, Any] = Field(default_factory=dict)

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("a url with a user, a query or a fragment; give the address alone and the key by key_env")
        if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable():
            raise ValueError(f"{url!r} is no address; it is like http://127.0.0.1:8000/v1")
        return url.rstrip("/")

    @field_validator("key_env")
    @classmethod
    def _is_variable(cls, name: str | None) -> str | None:
        if name is not None and not _VARIABLE.fullmatch(name):  # it may be a key: never show it
            raise ValueError("this is no name of an environment variable (like OPENAI_API_KEY); a key goes into one")
        return name

    @model_validator(mode="after")
    def _extra_is_heard(self) -> Self:
        if self.extra and self.api != "chat":
            raise ValueError(f"extra has no effect with api={self.api}; only api=chat sends it")
        if fixed := _FIXED & self.extra.keys():
            raise ValueError(f"extra cannot set {sorted(fixed)}, which mas sends itself")
        return self


class RemoteOptions(ServerOptions):
    """The server of `engine=openai` or `engine=vllm_server`.

    `shared_dir`: directory that this process and the server see under one path, where `vllm_server` puts the adapters'
    files; None: this machine's memory, for a server on the same machine.
    """

    url: str = "http://127.0.0.1:8000/v1"
    api: Literal["completions", "chat"] = "completions"
    shared_dir: str | None = None


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
