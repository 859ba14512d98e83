"""The files of a broker: what should be in them, and writing them without harm to what is there."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mas.broker.certificates import TlsFiles, made_files, make_certificates, tls_problem
from mas.broker.conf import conf_text
from mas.broker.options import BrokerOptions
from mas.broker.passwords import VARIABLE, choose_passwords, password_file
from mas.broker.rights import acl_text, team_rights
from mas.core.errors import ConfigError, RunDirectoryError
from mas.core.team import TeamSpec
from mas.observe.atomic import write_bytes_atomic

_OWN = frozenset({"mosquitto.conf", "acl", "users", "passwords", "tls", "mosquitto.db"})


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
        environ: may hold passwords, see `mas.broker.passwords.choose_passwords`.
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
