"""Values of plain types as text: YAML, also such as somebody else may have written, and the command line's grammar.

Values are texts, numbers, true, false, null, lists and mappings whose keys differ: no other tags (`!!binary` would make
bytes, which are read as text later on) and no interpolation. In stored files there are no aliases (a few lines of which
can stand for gigabytes), and none is longer than any that mas writes.
"""

import os
import re
import stat
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from mas.core.errors import ConfigError, RunDirectoryError

_PREFIX = "tag:yaml.org,2002:"
_TAGS = frozenset(_PREFIX + name for name in ("str", "int", "float", "bool", "null", "seq", "map"))
MOST_BYTES = 4 * 2**20
"""Of one stored file; those that mas writes have some kilobytes."""
MOST_VALUES = 2**21
"""In one file, those that an alias repeats counted each time: more than `MOST_BYTES` can spell out."""
_PLAIN = re.compile(r"[A-Za-z_/][\w./-]*", re.ASCII)
"""Texts that Hydra reads as they are."""


class PlainLoader(yaml.SafeLoader):
    """Refuses other tags (`!!binary` would make bytes, `2026-01-31` a date), a key that is written twice, of which
    plain YAML would keep the last one silently, and aliases that stand for more than `MOST_VALUES` values."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        is_alias = self.check_event(yaml.AliasEvent)
        node: yaml.Node | None = super().compose_node(parent, index)
        if node is not None and node.tag not in _TAGS:
            tag = node.tag.replace(_PREFIX, "!!", 1)
            said = f"the tag {tag} is not read here, only texts, numbers, true, false, null, lists and mappings"
            raise yaml.composer.ComposerError(None, None, said, node.start_mark)
        if isinstance(node, yaml.CollectionNode) and not is_alias:  # whose size is known: each is counted once
            pairs = node.value if isinstance(node, yaml.MappingNode) else [(one,) for one in node.value]
            size = 1 + sum(self._sizes.get(id(one), 1) for pair in pairs for one in pair)
            self._sizes[id(node)] = size
            if size > MOST_VALUES:
                said = f"its aliases stand for more than {MOST_VALUES:,} values"
                raise yaml.composer.ComposerError(None, None, said, node.start_mark)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, KeyError, IndexError) as error:  # PyYAML's own, of `!!int x`, `!!bool x` and `!!int ""`
            said = f"{str(node.value)[:40]!r} is no value of the tag {node.tag.replace(_PREFIX, '!!', 1)}"
            raise yaml.constructor.ConstructorError(None, None, said, node.start_mark) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(
                    "while reading a mapping", node.start_mark, f"the key {key!r} is written twice", key_node.start_mark
                )
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep)


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
        RunDirectoryError: it is too long, or holds no YAML mapping, or is a pipe or a device.
    """
    with open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise RunDirectoryError(f"{path} is neither a file nor a directory: remove it from the run directory")
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


def _without_waiting(path: str, flags: int) -> int:
    """An opener that does not block: opening a pipe otherwise waits for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def literal(value: Any) -> str:
    """A value as `key=VALUE` takes it. `load_config` reads the same value: `${...}` in it stays text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value) and value.lower() not in ("null", "true", "false", "nan", "inf")
        return value if is_plain else f"'{_escaped(value)}'"
    if isinstance(value, list | tuple):
        return f"[{','.join(literal(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{literal(item)}" for key, item in value.items()) + "}"
    return repr(value)


def _escaped(text: str) -> str:
    """First for OmegaConf, which reads backslashes before `${`, then for Hydra, which reads those before a quote."""
    text = re.sub(r"(\\*)\$\{", lambda found: f"{found[1] * 2}\\${{", text)
    return re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), text)
