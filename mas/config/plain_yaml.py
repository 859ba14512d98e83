"""YAML of plain values: texts, numbers, true, false, null, lists and mappings whose keys differ."""

from collections.abc import Hashable
from typing import Any

import yaml

_PREFIX = "tag:yaml.org,2002:"
_TAGS = frozenset(_PREFIX + name for name in ("str", "int", "float", "bool", "null", "seq", "map"))


class PlainLoader(yaml.SafeLoader):
    """Refuses other tags (`!!binary` would make bytes, `2026-01-31` a date) and a key that is written twice, of which
    plain YAML would keep the last one silently."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        node: yaml.Node | None = super().compose_node(parent, index)
        if node is not None and node.tag not in _TAGS:
            tag = node.tag.replace(_PREFIX, "!!", 1)
            said = f"the tag {tag} is not read here, only texts, numbers, true, false, null, lists and mappings"
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
