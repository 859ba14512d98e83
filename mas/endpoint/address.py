"""The address that a server listens at. Free of torch and of the server: what is wrong with it is said at once."""

import ipaddress
import socket

from mas.core.errors import ConfigError


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
