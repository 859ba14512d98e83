"""A server of tools that roles may call, as data: how it is started or reached, and its limits (MCP); or the sandbox in
place of one.

Leaves out on purpose: keys. A team is written down, so it holds the names of environment variables instead.
"""

import re
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from mas.core.options import Options

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]*")


def checked_address(url: str) -> str:
    """The address without a slash at its end.

    Raises:
        ValueError: it is none, or has a user, a query or a fragment.
    """
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("a url with a user, a query or a fragment; give the address alone and the key by key_env")
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable():
        raise ValueError(f"{url!r} is no address; it is like http://127.0.0.1:8000/v1")
    return url.rstrip("/")


def checked_variable(name: str) -> str:
    """The name of an environment variable.

    Raises:
        ValueError: it is none. It may be a key, and is not shown.
    """
    if not _VARIABLE.fullmatch(name):
        raise ValueError("this is no name of an environment variable (like OPENAI_API_KEY); a key goes into one")
    return name


class ProgramLimits(Options):
    """What a program that a role writes may use, and how many may run at once. See `mas.sandbox.outcome`.

    Attributes:
        time_s: seconds on the clock, and of processor time. memory_mib: address space.
        output_kib: of standard output, and of standard error.
        places: programs at a time; more wait for one to end.
    """

    time_s: Annotated[float, Field(gt=0, le=3600)] = 5.0
    memory_mib: Annotated[int, Field(ge=64)] = 256
    output_kib: Annotated[int, Field(ge=1)] = 64
    places: Annotated[int, Field(ge=1, le=64)] = 2


class ToolServer(Options):
    """A server of tools: a command that is started and spoken to over its standard input and output, or an address; or
    the sandbox, whose one tool `python` runs a program.

    Attributes:
        command, args: the program and its arguments; no shell reads them.
        env: names of environment variables that it is given, beside a few such as PATH and HOME.
        url: the address of a server that speaks streamable HTTP, in place of `command`.
        key_env: name of the environment variable whose value is sent with every request; None: nothing is.
        header: the HTTP header that it is sent in; in `Authorization` behind `Bearer `.
        sandbox: limits of the programs of the sandbox, in place of `command` and `url`.
        timeout_s: how long the start of the server, and each call, may take.
        max_chars: of one result; what is behind them is cut off, which the result says.
    """

    command: Annotated[str, Field(min_length=1)] | None = None
    args: tuple[str, ...] = ()
    env: tuple[Annotated[str, AfterValidator(checked_variable)], ...] = ()
    url: Annotated[str, AfterValidator(checked_address)] | None = None
    key_env: Annotated[str, AfterValidator(checked_variable)] | None = None
    header: str = "Authorization"
    sandbox: ProgramLimits | None = Field(default=None, exclude_if=lambda limits: limits is None)
    timeout_s: Annotated[float, Field(gt=0)] = 30.0
    max_chars: Annotated[int, Field(ge=100)] = 10_000

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if [self.command, self.url, self.sandbox].count(None) != 2:
            raise ValueError("a server of tools has a command, a url or a sandbox: write one of the three")
        if self.sandbox is not None and self.timeout_s != type(self).model_fields["timeout_s"].default:
            raise ValueError("timeout_s has no effect on a sandbox: write sandbox: {time_s: SECONDS}")
        if self.command is None and (self.args or self.env):
            raise ValueError("args and env belong to a command: leave them out beside a url or a sandbox")
        if self.key_env is None and self.header != type(self).model_fields["header"].default:
            raise ValueError(f"header {self.header!r} has no effect without key_env")
        if self.url is None and self.key_env is not None:
            raise ValueError("key_env belongs to a url: name the variables that a command is given under env")
        if not _HEADER.fullmatch(self.header):
            raise ValueError(f"header {self.header!r} is no name of an HTTP header, such as X-Api-Key")
        return self
