"""What `mas broker` is asked. Mistakes are found here, before anything is written."""

import ipaddress
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from mas.core.errors import ConfigError

_PORT, _TLS_PORT = 1883, 8883
_SPACE = re.compile(r"[\w.-]+")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """One broker.

    Attributes:
        directory: where its files are, or will be.
        host: address to listen at; `port`: None is 1883, with TLS 8883.
        name: by which clients reach it; None: the host, or this machine's name where the host is every address.
        is_tls: make a CA and a certificate; `cert`, `key`: the user's own instead; `ca`: what clients of those trust,
            None: the authorities that every client trusts.
        space: second level of all topics, the same in all processes of the team.
        max_packet_bytes: size of one message, head and topic included; a client that sends more is disconnected.
        max_inflight_messages: sent to one client and not acknowledged yet.
        max_queued_messages, max_queued_bytes: waiting for one client; what is more is dropped.
        max_connections: clients at the same time.
        max_memory_bytes: of the broker in all; what would need more is dropped and its client disconnected.
        is_persistent: whether retained messages and sessions are written to disk.

    Raises:
        ConfigError: options that do not fit together, or an address of other machines without TLS.
    """

    directory: Path
    host: str = "127.0.0.1"
    port: int | None = None
    name: str | None = None
    is_tls: bool = False
    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    space: str = "default"
    max_packet_bytes: int = 8 * 2**20
    max_inflight_messages: int = 1024
    max_queued_messages: int = 10_000
    max_queued_bytes: int = 64 * 2**20
    max_connections: int = 1024
    max_memory_bytes: int = 512 * 2**20
    is_persistent: bool = False

    def __post_init__(self) -> None:
        if self.is_tls and self.cert is not None:
            raise ConfigError("--tls makes a certificate and --cert brings one: give one of them")
        if (self.cert is None) != (self.key is None):
            raise ConfigError("--cert and --key belong together: give both, or --tls, which makes both")
        if self.ca is not None and self.cert is None:
            raise ConfigError("--ca has no effect without --cert and --key, whose authority it is")
        if not _SPACE.fullmatch(self.space):
            raise ConfigError(f"--space {self.space!r} is no name: letters, digits, '_', '-' and '.'")
        if not _is_address(self.reached) and not _NAME.fullmatch(self.reached):
            raise ConfigError(
                f"clients cannot reach {self.reached!r}, which is neither a host's name nor an address; give another "
                "--name or --host"
            )
        self._check_sizes()
        for path in (self.directory, self.cert, self.key, self.ca):
            if "\n" in str(path):
                raise ConfigError(f"the path {str(path)!r} has a line break, which mosquitto.conf cannot hold")
        if not self.has_tls and not all(address.is_loopback for address in self.addresses()):
            raise ConfigError(
                f"--host {self.host} lets other machines connect, and without TLS they would send their passwords in "
                "the clear. Add --tls, or --cert and --key, or keep --host 127.0.0.1"
            )

    def _check_sizes(self) -> None:
        if self.max_queued_bytes < self.max_packet_bytes:
            raise ConfigError(
                f"--max-queued-bytes {self.max_queued_bytes} is less than one message may have "
                f"(--max-packet-bytes {self.max_packet_bytes}): it could never be queued"
            )
        if self.max_memory_bytes < self.max_queued_bytes:
            raise ConfigError(
                f"--max-memory-bytes {self.max_memory_bytes} is less than may wait for one client "
                f"(--max-queued-bytes {self.max_queued_bytes}): raise the one or lower the other"
            )

    @property
    def has_tls(self) -> bool:
        """Whether clients connect with TLS."""
        return self.is_tls or self.cert is not None

    @property
    def listening_port(self) -> int:
        """The port, with its default."""
        return self.port or (_TLS_PORT if self.has_tls else _PORT)

    @property
    def reached(self) -> str:
        """Name or address by which clients reach the broker."""
        if self.name is not None:
            return self.name
        is_any = _is_address(self.host) and ipaddress.ip_address(self.host).is_unspecified
        return socket.gethostname() if is_any else self.host

    def url(self, principal: str | None = None) -> str:
        """Where clients connect, such as `mqtt://planner@127.0.0.1:1883/default`; None: without a user."""
        host = f"[{self.reached}]" if ":" in self.reached else self.reached
        user = "" if principal is None else f"{quote(principal, safe='')}@"
        return f"{'mqtts' if self.has_tls else 'mqtt'}://{user}{host}:{self.listening_port}/{self.space}"

    def addresses(self) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
        """What the host stands for.

        Raises:
            ConfigError: there is no such host.
        """
        try:
            found = socket.getaddrinfo(self.host, self.listening_port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise ConfigError(f"no address for --host {self.host!r}: {error}") from error
        return [ipaddress.ip_address(address[0]) for *_, address in found]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
