"""Who may ask a server, and the middleware that refuses all others. Several clients of one server have a key each, and
a limit of how much they may ask. Free of torch.

    keys:
      - name: alice
        sha256: 2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90
        requests_per_minute: 60
        tokens_per_day: 100000

The file has the keys' SHA-256 sums, so that who reads it has no key. What was used is counted in memory: a server that
is started again counts from 0.
"""

import hashlib
import hmac
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from mas.config.plain_values import read_value
from mas.core.errors import ConfigError
from mas.endpoint.address import LOCAL, check_host
from mas.endpoint.errors import Refused
from mas.endpoint.wire_base import Wire

OWNER = ""
"""The client whose key is that of the server itself; nothing limits it."""
SCOPE = "mas.client"
"""Where a request's scope has who sent it."""
_MINUTE_S, _DAY_S = 60.0, 86_400.0


class ClientLimits(Wire):
    """One client.

    Attributes:
        sha256: of its key, in hexadecimal.
        requests_per_minute: in any 60 s; None: as many as it likes.
        tokens_per_day: of prompts and completions, in a day of UTC; None: as many as it likes. A request that is begun
            is answered to its end.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    requests_per_minute: Annotated[int, Field(ge=1)] | None = None
    tokens_per_day: Annotated[int, Field(ge=1)] | None = None


class KeyFile(Wire):
    """A file of clients."""

    keys: Annotated[tuple[ClientLimits, ...], Field(strict=False, min_length=1, max_length=4096)]


def read_keys(path: Path) -> tuple[ClientLimits, ...]:
    """The clients in a file.

    Raises:
        ConfigError: it cannot be read, is no such file, or has a name or a key twice.
    """
    try:
        found = KeyFile.model_validate(read_value(path.read_text(encoding="utf-8"))).keys
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--keys {path} cannot be read: {getattr(error, 'strerror', 'it is no UTF-8')}") from error
    except ValidationError as error:
        detail = error.errors()[0]
        place = ".".join(str(part) for part in detail["loc"])
        raise ConfigError(f"--keys {path}: {place}: {detail['msg']}. A key is name, sha256 and limits") from None
    for what in ("name", "sha256"):
        values = [getattr(one, what) for one in found]
        double = next((value for value in values if values.count(value) > 1), None)
        if double is not None:
            raise ConfigError(f"--keys {path} has the {what} {double!r} twice: give every client its own")
    return found


@dataclass(slots=True)
class ApiClient:
    """Who asks, and what it has used.

    Attributes:
        limits: None: nothing limits it.
    """

    limits: ClientLimits | None = None
    now: Callable[[], float] = time.time
    _begun: deque[float] = field(default_factory=deque)
    _day: int = 0
    _tokens: int = 0

    @property
    def name(self) -> str:
        """Empty for the server's owner."""
        return OWNER if self.limits is None else self.limits.name

    def enter(self) -> None:
        """A request begins.

        Raises:
            Refused: it is one too many; says when the next one may come.
        """
        if self.limits is None:
            return
        now, most, tokens = self.now(), self.limits.requests_per_minute, self.limits.tokens_per_day
        if tokens is not None and self._used(now) >= tokens:
            raise _too_much(f"{tokens} tokens a day are used up", _DAY_S - now % _DAY_S)
        if most is None:
            return
        while self._begun and self._begun[0] <= now - _MINUTE_S:
            self._begun.popleft()
        if len(self._begun) >= most:
            raise _too_much(f"{most} requests a minute are used up", self._begun[0] + _MINUTE_S - now)
        self._begun.append(now)

    def spend(self, tokens: int) -> None:
        """A request has cost tokens."""
        self._used(self.now())
        self._tokens += tokens

    def _used(self, now: float) -> int:
        """Tokens of this day."""
        if (day := int(now // _DAY_S)) != self._day:
            self._day, self._tokens = day, 0
        return self._tokens


def _too_much(what: str, wait_s: float) -> Refused:
    return Refused(429, f"the key's {what}", code="quota_exceeded", retry_after_s=math.ceil(wait_s))


class ClientKeys:
    """All who may ask a server.

    Args:
        key: the owner's; None: it has none. Without any key everybody is the owner.
        clients: the others.
    """

    def __init__(self, key: str | None = None, clients: Iterable[ClientLimits] = ()) -> None:
        self._owner = ApiClient()
        own = [] if key is None else [(_sum(key.encode()), self._owner)]
        self._clients: Sequence[tuple[bytes, ApiClient]] = [
            *own,
            *((bytes.fromhex(one.sha256), ApiClient(one)) for one in clients),
        ]

    def of(self, request: Request) -> ApiClient:
        """Who sends a request, see `client`."""
        return self.client(request.headers.get("authorization", ""))

    def client(self, authorization: str) -> ApiClient:
        """Who sends this header, found in a time that does not depend on how far a key agrees.

        Raises:
            Refused: the key is missing or nobody's.
        """
        if not self._clients:
            return self._owner
        scheme, _, given = authorization.partition(" ")
        digest = _sum(given.encode("latin-1"))
        found = [client for known, client in self._clients if hmac.compare_digest(known, digest)]
        if scheme.lower() != "bearer" or not found:
            raise Refused(
                401, "this server needs its key: send the header Authorization: Bearer KEY", code="invalid_api_key"
            )
        return found[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """Who may ask a server.

    Attributes:
        key: the owner's, sent as bearer token; None: without `clients` all processes on this machine may ask.
        clients: others with keys and limits of their own; see `read_keys`.
        hosts: names that the server is known by, beside the address that a connection came to; see `known_hosts`.
        origins: of web pages that may ask, such as `https://app.example`; see `known_origins`.
    """

    key: str | None = None
    clients: Sequence[ClientLimits] = ()
    hosts: frozenset[str] = LOCAL
    origins: frozenset[str] = frozenset()

    @property
    def has_key(self) -> bool:
        """Whether clients must send a key."""
        return self.key is not None or bool(self.clients)


ANYBODY = Entrance()
"""All processes on this machine."""


class Door:
    """Middleware: refuses requests to other hosts, of web pages, and without a key.

    Args:
        hosts: see `check_host`.
        is_open: paths that need no key.
        client: who sends a request; raises Refused.
        refuse: the answer to an error.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: frozenset[str],
        is_open: Collection[str],
        client: Callable[[Request], ApiClient],
        refuse: Callable[[Refused], Response],
    ) -> None:
        self._app, self._hosts, self._is_open, self._client, self._refuse = app, hosts, is_open, client, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                check_host(Request(scope), self._hosts)
                if scope["path"] not in self._is_open:
                    scope[SCOPE] = self._client(Request(scope))
            except Refused as error:
                await self._refuse(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def client_of(scope: Mapping[str, Any]) -> ApiClient:
    """Who sent a request, as the application's entrance noted it."""
    client: ApiClient = scope.get(SCOPE) or ApiClient()
    return client


def _sum(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
