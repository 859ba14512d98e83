"""Where the broker is and who one is there, from a URL and the environment."""

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from mas.core.errors import ConfigError

PASSWORD = "MAS_BUS_PASSWORD"
_PORTS = {"mqtt": 1883, "mqtts": 8883}
_FORM = "write mqtt://USER@HOST:PORT/SPACE, or mqtts:// for TLS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker, and the principal as which one is there. `password` None: it asks for none; `tls` None: plain."""

    host: str
    port: int
    principal: str
    space: str
    password: str | None = None
    tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"{self.principal}@{self.host}:{self.port}/{self.space}"


def parse_broker(url: str, *, ca_file: Path | None = None) -> Broker:
    """The broker that a URL names, with the password from `MAS_BUS_PASSWORD` if that is set.

    A slash in the user's name is `%2F` in a URL, where a plain one ends the host; both are understood here.

    Args:
        ca_file: certificates that vouch for the broker; None: those that the system trusts.

    Raises:
        ConfigError: the URL is not of the form, holds a password, or `ca_file` cannot be read or used.
    """
    try:
        parts = urlsplit(_with_user(url))
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"the bus's URL {url!r} is none: {error}; {_FORM}") from None
    if parts.password is not None:
        raise ConfigError(f"the bus's URL holds a password: leave it out and set {PASSWORD} in the environment")
    space = parts.path.strip("/")
    problem = _problem(parts.scheme, parts.hostname, parts.username, space)
    if problem or parts.query or parts.fragment:
        raise ConfigError(f"the bus's URL {url!r} {problem or 'has a query or a fragment'}; {_FORM}")
    if ca_file is not None and parts.scheme != "mqtts":
        raise ConfigError(
            f"the CA file {str(ca_file)!r} does nothing with {parts.scheme}://; use mqtts://, or leave it out"
        )
    assert parts.hostname
    assert parts.username
    return Broker(
        host=parts.hostname,
        port=port or _PORTS[parts.scheme],
        principal=unquote(parts.username),
        space=unquote(space),
        password=os.environ.get(PASSWORD),
        tls=_trust(ca_file) if parts.scheme == "mqtts" else None,
    )


def _with_user(url: str) -> str:
    """The URL with the slashes of its user's name escaped."""
    scheme, separator, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    return f"{scheme}{separator}{quote(user, safe=':%')}{at}{place}"


def _problem(scheme: str, host: str | None, user: str | None, space: str) -> str:
    if scheme not in _PORTS:
        return f"begins with {scheme!r}, not with 'mqtt' or 'mqtts'"
    if not host:
        return "names no host"
    if not user:
        return "names no user, who is the principal of all that this process sends"
    if not space or "/" in space:
        return "needs one space after the host, which keeps this bus apart from others on the broker"
    return ""


def _trust(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the CA file {str(ca_file)!r} cannot be used: {error}. It must hold the certificates of whoever vouches "
            "for the broker; `mas broker --tls` writes them to tls/ca.crt"
        ) from None
