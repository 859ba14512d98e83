"""Connections beside Ray's own are encrypted where Ray's are: by the same variables, with the same files.

RAY_USE_TLS=1 with RAY_TLS_SERVER_CERT, RAY_TLS_SERVER_KEY and RAY_TLS_CA_CERT: both sides show a certificate.
"""

import os
import ssl

from mas.core.errors import ClusterError


def server_context() -> ssl.SSLContext | None:
    """Of the side that is connected to; None: Ray uses no TLS.

    Raises:
        ClusterError: a file is not named, or cannot be read.
    """
    return _context(ssl.PROTOCOL_TLS_SERVER)


def client_context() -> ssl.SSLContext | None:
    """Of the side that connects. Certificates are checked, names in them are not, as Ray has it: nodes have addresses.

    Raises:
        ClusterError: as `server_context`.
    """
    return _context(ssl.PROTOCOL_TLS_CLIENT)


def _context(protocol: int) -> ssl.SSLContext | None:
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return None
    files = {name: os.environ.get(f"RAY_TLS_{name}", "") for name in ("SERVER_CERT", "SERVER_KEY", "CA_CERT")}
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(files["SERVER_CERT"], files["SERVER_KEY"])
        context.load_verify_locations(files["CA_CERT"])
    except OSError as error:  # an SSLError among them
        named = ", ".join(f"RAY_TLS_{name}={path or '(not set)'}" for name, path in files.items())
        raise ClusterError(f"RAY_USE_TLS is on, and a file of {named} cannot be used: {error}") from error
    return context
