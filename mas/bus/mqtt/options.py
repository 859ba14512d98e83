"""How a process takes part in a bus over MQTT: which broker, as whom, and with which times and sizes."""

import os
import ssl
from dataclasses import dataclass, fields
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from mas.core.errors import ConfigError

PASSWORD = "MAS_BUS_PASSWORD"
_PORTS = {"mqtt": 1883, "mqtts": 8883}
_FORM = "write mqtt://USER@HOST:PORT/SPACE, or mqtts:// for TLS"


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttOptions:
    """Times in seconds. The same for all processes of a bus is best, and needed for `max_frame_bytes`.

    Attributes:
        keepalive_s: silence after which either side asks whether the other is there; a process that hangs is noticed
            after one and a half of it.
        patience_s: how long connecting and subscribing may take.
        backoff_s: longest wait between two attempts to connect; the first wait is a twentieth. Each is drawn at random
            up to its bound, so that processes do not come back all at once.
        ack_s: how long nothing may be heard of a message before its receivers are queried.
        poll_s: how often at least the process that has a message is queried.
        absent_s: how long a process that vanished may stay away before its messages go elsewhere.
        away_s: how long a process with a journal that is gone may stay away before its requests are stopped, and
            the states of what it sent are forgotten; the others grant a day at most.
        grace_s: how long after a deadline the receiver's own state is waited for.
        outbox: messages in flight at most; further senders wait. Half of them may wait for listeners.
        remembered: messages that are over and still recognised when they come again, the oldest forgotten first.
        max_attempts: attempts to handle a message in all processes, the first one included, before it is given up on.
        dead_letters: dead letters that each side of this process keeps; the oldest is forgotten first.
        max_processes: processes of one principal that are known at once, and that are away at once; more are ignored.
        max_presence_bytes: how long the presences of one principal may be, all together; more are ignored.
        max_frame_bytes: longest message that is sent or taken.
        inline_bytes: longest payload that travels in its message where there is a store; longer ones travel by
            reference. Less, where the broker says that it takes less.
        max_stored_bytes: longest payload that is stored or fetched.
        keep_s: how long a payload stays in the store; longer than any message may wait for its receiver.
        store_s: how long storing or fetching one may take.

    Raises:
        ConfigError: a value is not above 0.
    """

    keepalive_s: int = 10
    patience_s: float = 5.0
    backoff_s: float = 1.0
    ack_s: float = 1.0
    poll_s: float = 5.0
    absent_s: float = 5.0
    away_s: float = 300.0
    grace_s: float = 0.25
    outbox: int = 1024
    remembered: int = 16_384
    max_attempts: int = 5
    dead_letters: int = 1024
    max_processes: int = 256
    max_presence_bytes: int = 1 << 20
    max_frame_bytes: int = 4 << 20
    inline_bytes: int = 64 << 10
    max_stored_bytes: int = 1 << 30
    keep_s: float = 86_400.0
    store_s: float = 60.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise ConfigError(f"{field.name} is {value}; it must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker, and the principal of this process there. `password` None: it asks for none; `tls` None: plain."""

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
            f"the CA file {str(ca_file)!r} cannot be used: {error}. It must hold the certificates of the authority "
            "that vouches for the broker; `mas broker --tls` writes them to tls/ca.crt"
        ) from None
