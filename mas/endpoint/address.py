"""The address that a server listens at, and the names that it answers to. Free of torch: what is wrong with them is
said at once.

A web page must not reach a server by a name that its owner points at this machine: a page of `evil.example` may let
that name lead to 127.0.0.1 (DNS rebinding); the browser then sends it the page's requests, with the page's name as
`Host`. A page of any other origin is known by `Origin`. Both must be names that this server is known by: those of this
machine for itself, the address that the connection came to, what it was told to listen at, and what its operator
allows.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable

from starlette.requests import Request

from mas.core.errors import ConfigError
from mas.endpoint.errors import Refused

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?")
_FROM = re.compile(r"https?://(?P<host>\[[0-9a-f:.]+\]|[^\s/@?#:\\\[\]]+)(:[0-9]{1,5})?", re.IGNORECASE)
"""An `Origin` header: a scheme, a host, a port, and nothing more."""
_SHOWN = 100
"""Characters of a foreign name that an error repeats."""


def bind(host: str, port: int, *, has_key: bool) -> socket.socket:
    """A socket that listens at the address, where clients wait until somebody serves. Port 0: any free one.

    Raises:
        ConfigError: there is no such address here, the port is taken or may not be had, or other machines could ask
            and there is no key.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigError(f"no address for --host {host!r} and --port {port}: {error}") from error
    if not has_key and not all(ipaddress.ip_address(address[0]).is_loopback for *_, address in found):
        raise ConfigError(
            f"--host {host} lets other machines ask, and there is no key. Set one in the environment, such as "
            "MAS_API_KEY=$(openssl rand -hex 24), or keep --host 127.0.0.1"
        )
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()  # now: two sockets may be bound to one port, only one of them may listen
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"{host}:{port} cannot be listened at: {error.strerror}. Choose another --port, or 0 for any free one"
        ) from error
    return listener


def known_hosts(listening: str, allowed: Iterable[str] = ()) -> frozenset[str]:
    """The names that a server is known by.

    Args:
        listening: what it was told to listen at; empty or a wildcard address adds nothing.
        allowed: further host names or addresses, without a port.

    Raises:
        ConfigError: one of `allowed` is neither a host name nor an address.
    """
    known = set(LOCAL)
    for name in allowed:
        host = _plain(name)
        if not (_is_address(host) or _NAME.fullmatch(host)):
            raise ConfigError(f"--allow-host {name!r} is no host name or address: write mas.example or 10.0.0.7")
        known.add(host)
    own = _plain(listening)
    return frozenset(known | ({own} if own not in ("", "0.0.0.0", "::") else set()))


def known_origins(allowed: Iterable[str]) -> frozenset[str]:
    """The origins of web pages that may ask a server.

    Raises:
        ConfigError: one is no origin.
    """
    for origin in allowed:
        if not _ORIGIN.fullmatch(origin):
            raise ConfigError(
                f"--allow-origin {origin!r} is no origin: write https://app.example or http://localhost:3000"
            )
    return frozenset(allowed)


def check_host(request: Request, known: frozenset[str]) -> None:
    """Refuse a request that was meant for another host, or comes from a web page of another one.

    Args:
        known: names of this server, and whole origins of web pages that may ask.

    Raises:
        Refused: status 421 for the host, 403 for the page.
    """
    came_to, _ = request.scope.get("server") or ("", None)
    names = known | {_plain(came_to)}
    host = _without_port(request.headers.get("host", ""))
    if host not in names:
        raise Refused(421, f"this server is not the host {_shown(host)}: {_remedy(host)}", code="wrong_host")
    origin = request.headers.get("origin")
    if origin is not None and origin not in names and _origin_host(origin) not in names:
        page = _origin_host(origin)
        raise Refused(403, f"no answers for web pages of {_shown(origin)}: {_remedy(page)}", code="wrong_origin")


def _remedy(host: str) -> str:
    example = host if _NAME.fullmatch(host) or _is_address(host) else "NAME"
    return f"ask it as localhost or by its address, or start it with --allow-host {_shown(example, quoted=False)}"


def _shown(name: str, *, quoted: bool = True) -> str:
    cut = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}..."
    return repr(cut) if quoted else cut


def _origin_host(origin: str) -> str:
    """Empty for a page without one, such as a file's (`null`)."""
    found = _FROM.fullmatch(origin)
    return "" if found is None else _plain(found["host"])


def _without_port(host: str) -> str:
    """The name in a `Host` header."""
    if host.startswith("["):
        return _plain(host.partition("]")[0][1:])
    name, _, port = host.partition(":")
    return _plain(name) if not port or port.isdecimal() else host


def _plain(host: str) -> str:
    """In one spelling: lower case, no final dot, an address as short as it gets, without its zone."""
    name = host.strip().lower().strip("[]").removesuffix(".")
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return name
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
