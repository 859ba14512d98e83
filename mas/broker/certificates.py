"""TLS: a CA of the broker's own with one certificate, and a check that clients would accept what there is.

The `openssl` program makes them: it comes from where mosquitto comes from, while a Python package for one call in years
would be installed by everybody. The check is a handshake in memory, with Python's own `ssl`.
"""

import ipaddress
import secrets
import ssl
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mas.core.errors import ConfigError

_DAYS = 825
"""How long a certificate is good for: what the strictest clients accept."""

_REQUEST = """\
[req]
distinguished_name = subject
prompt = no
x509_extensions = authority
[subject]
CN = {subject}
[authority]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {names}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Certificate (with its chain) and key of the broker; `ca`: what clients trust, None: what they trust anyway."""

    cert: Path
    key: Path
    ca: Path | None


def made_files(directory: Path) -> TlsFiles:
    """Where the files lie that `make_certificates` makes."""
    return TlsFiles(
        cert=directory / "tls" / "server.crt", key=directory / "tls" / "server.key", ca=directory / "tls" / "ca.crt"
    )


def make_certificates(files: TlsFiles, name: str) -> dict[Path, bytes]:
    """Contents of a new CA, certificate and key for a name or address, and for this machine's own addresses.

    The CA's key is thrown away: nobody can ever sign another certificate with it.

    Raises:
        ConfigError: openssl is missing or fails.
    """
    assert files.ca is not None
    names = dict.fromkeys((_alternative(name), "DNS:localhost", "IP:127.0.0.1", "IP:::1"))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "ca.cnf").write_text(_REQUEST.format(subject="mas broker authority", names="DNS:localhost"))
        (place / "server.cnf").write_text(_REQUEST.format(subject="mas broker", names=", ".join(names)))
        new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-sha256")
        age = ("-days", str(_DAYS))
        _openssl(place, "req", "-x509", *new_key, *age, "-config", "ca.cnf", "-keyout", "ca.key", "-out", "ca.crt")
        _openssl(place, "req", "-new", *new_key, "-config", "server.cnf", "-keyout", "server.key", "-out", "server.csr")
        signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-set_serial", f"0x{secrets.token_hex(15)}", "-sha256", *age)
        wanted = ("-extfile", "server.cnf", "-extensions", "server", "-out", "server.crt")
        _openssl(place, "x509", "-req", "-in", "server.csr", *signed, *wanted)
        return {path: (place / path.name).read_bytes() for path in (files.ca, files.cert, files.key)}


def _alternative(name: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"


def _openssl(place: Path, *words: str) -> None:
    try:
        done = subprocess.run(["openssl", *words], cwd=place, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ConfigError(
            "--tls needs the program openssl, which is not installed: install it (apt-get install openssl), or give "
            "certificates of your own with --cert, --key and --ca"
        ) from None
    if done.returncode:
        raise ConfigError(f"openssl {words[0]} failed with {done.returncode}: {done.stderr.strip()}")


def tls_problem(files: TlsFiles, name: str) -> str | None:
    """Why a client that connects to the name would refuse the broker, or the broker its own files; None: all is well.

    Raises:
        ConfigError: a file is missing or cannot be read.
    """
    for path in (files.cert, files.key, files.ca):
        if path is not None:
            _check_readable(path)
    try:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(files.cert, files.key, password="")
    except (ssl.SSLError, ValueError) as error:
        return f"{files.cert} and {files.key} are no certificate with its own key, unencrypted ({_reason(error)})"
    try:
        client = ssl.create_default_context(cafile=files.ca)
    except ssl.SSLError as error:
        return f"{files.ca} is no certificate ({_reason(error)})"
    return _handshake_problem(server, client, name)


def _handshake_problem(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str | None:
    upward, downward = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(downward, upward, server_hostname=name),
        server.wrap_bio(upward, downward, server_side=True),
    )
    for side in sides * 2:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return f"clients would refuse the certificate: {error.verify_message}"
        except ssl.SSLError as error:
            return f"no handshake is possible with it: {_reason(error)}"
    return None


def _check_readable(path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the TLS file {path} cannot be read: {error.strerror}") from error


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
