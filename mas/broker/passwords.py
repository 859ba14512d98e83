"""One password per principal: made here, kept in a file for the principal's host, and hashed for mosquitto.

Leaves out on purpose: the tool mosquitto_passwd, which takes a password from a terminal, a command line or a file where
it lies in the clear. The format is two lines of the standard library.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping

from mas.core.errors import ConfigError

VARIABLE = "MAS_BUS_PASSWORD"
"""Names the password in the file of a principal; with `_AGENT` behind it, the password that is wanted for the agent."""
_ITERATIONS = 1000
"""A random password needs no slow hash, and mosquitto answers nobody while it hashes at each connection."""
_SALT_BYTES = 12
"""The only length that mosquitto 2.0 reads."""
_MIN_LENGTH = 16
_PLAIN = re.compile(r"[A-Za-z0-9._~+/=@%:-]*")
"""Characters that mean themselves to shells, systemd and container engines alike, which all read such files."""


def choose_passwords(principals: Iterable[str], kept: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """A password for each principal: from the environment, else the one it has already, else a random one of 256 bits.

    Args:
        kept: passwords of earlier.
        environ: `MAS_BUS_PASSWORD_PLANNER` is for `team/planner`.

    Raises:
        ConfigError: a password from the environment that is short or has characters that files cannot hold, or one
            that could be meant for two principals. No message shows a password.
    """
    wanting: defaultdict[str, list[str]] = defaultdict(list)
    for principal in principals:
        wanting[_variable(principal)].append(principal)
    chosen = {}
    for variable, names in wanting.items():
        given = environ.get(variable)
        if given is not None:
            _check(variable, given, names)
        for name in names:
            chosen[name] = given or kept.get(name) or secrets.token_urlsafe(32)
    return chosen


def _variable(principal: str) -> str:
    return f"{VARIABLE}_{re.sub(r'[^A-Za-z0-9]', '_', principal.rpartition('/')[2]).upper()}"


def _check(variable: str, password: str, principals: list[str]) -> None:
    if len(principals) > 1:
        raise ConfigError(f"{variable} is set, and could be the password of {' or '.join(principals)}: unset it")
    if len(password) < _MIN_LENGTH or not _PLAIN.fullmatch(password):
        raise ConfigError(
            f"the password in {variable} is not possible: at least {_MIN_LENGTH} letters, digits or ._~+/=@%:- "
            "(openssl rand -hex 24 makes one)"
        )


def password_file(passwords: Mapping[str, str], before: str) -> str:
    """The text of mosquitto's password file: `user:$7$iterations$salt$hash`, PBKDF2 with SHA-512.

    Args:
        before: the file as it is; lines in it that hold the same password stay: equal passwords make equal text.
    """
    old = dict(line.split(":", 1) for line in before.splitlines() if ":" in line)
    lines = []
    for principal, password in passwords.items():
        known = old.get(principal, "")
        is_same = _is_hash_of(known, password)
        lines.append(
            f"{principal}:{known if is_same else _hashed(password, secrets.token_bytes(_SALT_BYTES), _ITERATIONS)}\n"
        )
    return "".join(lines)


def _hashed(password: str, salt: bytes, iterations: int) -> str:
    found = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, iterations)
    return f"$7${iterations}${base64.b64encode(salt).decode()}${base64.b64encode(found).decode()}"


def _is_hash_of(known: str, password: str) -> bool:
    match = re.fullmatch(rf"\$7\${_ITERATIONS}\$([A-Za-z0-9+/=]+)\$[A-Za-z0-9+/=]+", known)
    if match is None:
        return False
    return hmac.compare_digest(_hashed(password, base64.b64decode(match[1]), _ITERATIONS), known)
