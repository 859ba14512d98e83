"""The files of a broker, written without harm to what is there: mosquitto.conf, passwords, rights, certificates.

One password per principal is made here, kept in a file for the principal's host, and hashed for mosquitto. Leaves out
on purpose: the tool mosquitto_passwd, which takes a password from a terminal, a command line or a file where it lies
in the clear. The format is two lines of the standard library.
"""

import base64
import hashlib
import hmac
import os
import re
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mas.broker.certificates import TlsFiles, made_files, make_certificates, tls_problem
from mas.broker.options import BrokerOptions
from mas.broker.rights import acl_text, team_rights
from mas.core.errors import ConfigError, RunDirectoryError
from mas.core.team import TeamSpec
from mas.observe.files import write_bytes_atomic

_OWN = frozenset({"mosquitto.conf", "acl", "users", "passwords", "tls", "mosquitto.db"})
_WORDS = {False: "false", True: "true"}
VARIABLE = "MAS_BUS_PASSWORD"
"""Names the password in the file of a principal; with `_AGENT` behind it, the password that is wanted for the agent."""
_ITERATIONS = 1000
"""A random password needs no slow hash, and mosquitto answers nobody while it hashes at each connection."""
_SALT_BYTES = 12
"""The only length that mosquitto 2.0 reads."""
_MIN_LENGTH = 16
_PLAIN = re.compile(r"[A-Za-z0-9._~+/=@%:-]*")
"""Characters that mean themselves to shells, systemd and container engines alike, which all read such files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFiles:
    """Where everything lies; `handouts`: principal -> the file with its password, for its host."""

    conf: Path
    handouts: Mapping[str, Path]
    tls: TlsFiles | None


def write_broker(
    spec: TeamSpec, options: BrokerOptions, environ: Mapping[str, str], *, is_overwriting: bool = False
) -> BrokerFiles:
    """Write what a mosquitto for the team needs, readable for its owner alone. Passwords that exist stay.

    Args:
        environ: may hold passwords, see `mas.broker.files.choose_passwords`.
        is_overwriting: replace files that are there and hold something else.

    Raises:
        ConfigError: such files and not `is_overwriting`; names, passwords or TLS files that are not possible.
        RunDirectoryError: the directory cannot be written or read.
    """
    directory = options.directory.absolute()
    rights = team_rights(spec, options.space)
    handouts = {one.principal: _handout(directory, one.principal) for one in rights}
    kept = {principal: found for principal, path in handouts.items() if (found := _kept_password(path))}
    passwords = choose_passwords(handouts, kept, environ)
    conf, acl, users = (directory / name for name in ("mosquitto.conf", "acl", "users"))
    tls, certificates = _tls(options, directory)
    contents = {
        **{
            path: _handout_text(options, principal, passwords[principal]).encode()
            for principal, path in handouts.items()
        },
        **certificates,
        **_ignored(directory),
        users: password_file(passwords, (_read(users) or b"").decode(errors="replace")).encode(),
        acl: acl_text(rights).encode(),
        conf: conf_text(options, tls, acl=acl, users=users).encode(),
    }
    changed = {path: content for path, content in contents.items() if _read(path) != content}
    standing = [str(options.directory / path.relative_to(directory)) for path in changed if path.exists()]
    if standing and not is_overwriting:
        raise ConfigError(
            f"{', '.join(standing)} would change: --overwrite replaces what is there (passwords stay), another --dir "
            "keeps it, and the options that it was made with start it as it is"
        )
    _write(directory, changed)
    return BrokerFiles(conf=conf, handouts=handouts, tls=tls)


def _ignored(directory: Path) -> dict[Path, bytes]:
    """A file that keeps git away from passwords and keys, unless there is one, or the directory holds other things."""
    path = directory / ".gitignore"
    try:
        has_others = directory.is_dir() and any(entry.name not in _OWN for entry in directory.iterdir())
    except OSError as error:
        raise RunDirectoryError(f"{directory} cannot be read: {error.strerror}. Choose another --dir.") from error
    return {} if path.exists() or has_others else {path: b"*\n"}


def _handout(directory: Path, principal: str) -> Path:
    return directory / "passwords" / f"{principal.replace('/', '.')}.env"


def _handout_text(options: BrokerOptions, principal: str, password: str) -> str:
    return f"MAS_BUS_URL={options.url(principal)}\n{VARIABLE}={password}\n"


def _kept_password(path: Path) -> str | None:
    """The password that a principal has; None: it has none yet."""
    content = _read(path)
    if content is None:
        return None
    for line in content.decode(errors="replace").splitlines():
        name, _, value = line.partition("=")
        if name == VARIABLE and value:
            return value
    raise ConfigError(f"{path} holds no {VARIABLE}; delete it, and a new one is made")


def _tls(options: BrokerOptions, directory: Path) -> tuple[TlsFiles | None, dict[Path, bytes]]:
    """The TLS files, and contents for those that are made anew: all of them, unless they are there and good."""
    if options.cert is not None and options.key is not None:
        given = TlsFiles(
            cert=options.cert.absolute(), key=options.key.absolute(), ca=options.ca.absolute() if options.ca else None
        )
        if problem := tls_problem(given, options.reached):
            hint = "" if options.ca else "; a certificate of an authority of your own needs --ca"
            raise ConfigError(f"{problem} (clients connect to {options.reached!r}, --name changes that){hint}")
        return given, {}
    if not options.is_tls:
        return None, {}
    made = made_files(directory)
    there = all(path is not None and path.exists() for path in (made.cert, made.key, made.ca))
    is_good = there and tls_problem(made, options.reached) is None
    return made, {} if is_good else make_certificates(made, options.reached)


def _read(path: Path) -> bytes | None:
    """What is in a file; None: there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be read: {error.strerror}. Choose another --dir.") from error


def _write(directory: Path, contents: Mapping[Path, bytes]) -> None:
    path = directory
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path, content in contents.items():
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_bytes_atomic(path, content, mode=0o600)
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be written: {error.strerror}. Choose another --dir.") from error


def conf_text(options: BrokerOptions, tls: TlsFiles | None, *, acl: Path, users: Path) -> str:
    """The configuration for mosquitto 2. A persistent broker keeps its database beside the ACL file."""
    lines = [
        "# Written by `mas broker`.",
        f"listener {options.listening_port} {options.host}",
        f"max_connections {options.max_connections}",
    ]
    if tls is not None:
        lines += [f"certfile {tls.cert}", f"keyfile {tls.key}"]
        lines += [f"cafile {tls.ca}"] if tls.ca is not None else []
    lines += [
        "",
        "allow_anonymous false",
        f"password_file {users}",
        f"acl_file {acl}",
        "",
        "# Without it requests and their answers wait for each other's delayed acknowledgements, 40 ms at a time.",
        "set_tcp_nodelay true",
        f"max_packet_size {options.max_packet_bytes}",
        f"max_inflight_messages {options.max_inflight_messages}",
        f"max_queued_messages {options.max_queued_messages}",
        f"max_queued_bytes {options.max_queued_bytes}",
        "# Retained messages have no limit of their own: whoever may write to a topic may leave one there.",
        f"memory_limit {options.max_memory_bytes}",
        "# Sessions of processes that never come back would fill their queues for ever.",
        "persistent_client_expiration 1h",
        "",
        f"persistence {_WORDS[options.is_persistent]}",
        *([f"persistence_location {acl.parent}/"] if options.is_persistent else []),
        "log_dest stderr",
        *(f"log_type {kind}" for kind in ("error", "warning", "notice")),
        "log_timestamp_format %Y-%m-%dT%H:%M:%S",
    ]
    if os.geteuid() == 0:
        lines += ["# As another user it could not read these files.", "user root"]
    return "\n".join(lines) + "\n"


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
