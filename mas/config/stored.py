"""Reads YAML that somebody else may have written: as text, with bounds.

Values are texts, numbers, true, false, null, lists and mappings: no other tags (`!!binary` would make bytes, which are
read as text later on), no interpolation, no aliases (a few lines of which can stand for gigabytes), and no file that is
longer than any that mas writes.
"""

from pathlib import Path
from typing import Any

import yaml

from mas.config.plain_yaml import PlainLoader
from mas.core.errors import ConfigError, RunDirectoryError

MOST_BYTES = 4 * 2**20
"""Of one stored file; those that mas writes have some kilobytes."""


class _Loader(PlainLoader):
    """Plain YAML without aliases."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # types-PyYAML leaves it untyped
            raise yaml.composer.ComposerError(None, None, "aliases are not read here", mark)
        return super().compose_node(parent, index)


def read_value(text: str) -> Any:
    """A YAML value of plain types, with the bounds of a stored file.

    Raises:
        ConfigError: it is no such value.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{text!r} is no plain value: {error}") from error
    except RecursionError:
        raise ConfigError(f"{text[:40]!r} is nested too deeply") from None


def read_stored(path: Path) -> dict[Any, Any]:
    """The mapping in a stored YAML file.

    Raises:
        OSError: the file cannot be opened.
        RunDirectoryError: it is too long, or holds no YAML mapping.
    """
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise RunDirectoryError(f"{path} is longer than {MOST_BYTES // 2**20} MiB: it is no file that mas wrote")
    try:
        stored = yaml.load(content.decode(), Loader=_Loader)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise RunDirectoryError(f"{path} cannot be read: {error}") from error
    except RecursionError:
        raise RunDirectoryError(f"{path} cannot be read: it is nested too deeply") from None
    if not isinstance(stored, dict):
        raise RunDirectoryError(f"{path} holds no configuration; restore it, or train a new run elsewhere")
    return stored
