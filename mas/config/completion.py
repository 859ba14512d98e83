"""What a shell offers behind `scenario=`, `algorithm=`, `model=`, `engine=` and `cluster=` when Tab is pressed."""

import os
from collections.abc import Iterable

from mas.config.load import GROUPS, OFFERED, presets
from mas.core.plugins import offered_names


def names_of(group: str) -> list[str]:
    """Names that a preset's key may have, those of other packages included."""
    offered = offered_names(OFFERED[group]) if group in OFFERED else []
    return sorted({*presets(group), *offered})


def complete_override(incomplete: str) -> list[str]:
    """`scenario=re` -> `scenario=relay`, `scenario=red_team`, ...; before `=` the keys themselves."""
    key, is_split, value = _key_of(incomplete)
    if key is None:
        return [f"{group}=" for group in GROUPS if group.startswith(incomplete)]
    if key not in GROUPS:
        return []
    begin = "" if is_split else f"{key}="
    return [f"{begin}{name}" for name in _beginning(names_of(key), value)]


def complete_scenario(incomplete: str) -> list[str]:
    """Scenarios by their names."""
    return _beginning(names_of("scenario"), incomplete)


def complete_algorithm(incomplete: str) -> list[str]:
    """Algorithms by their names."""
    return _beginning(names_of("algorithm"), incomplete)


def _beginning(names: Iterable[str], typed: str) -> list[str]:
    return [name for name in names if name.startswith(typed)]


def _key_of(incomplete: str) -> tuple[str | None, bool, str]:
    """The key before `=`, None where there is none yet; whether the shell has split the word there, as bash does; and
    the value so far."""
    key, mark, value = incomplete.partition("=")
    if key and mark:
        return key, False, value
    words, number = os.environ.get("COMP_WORDS", "").split("\n"), os.environ.get("COMP_CWORD", "")  # of bash
    before = words[: int(number) + 1] if number.isdecimal() else []
    if "=" in before[-2:] and len(before) > 1:
        return before[before.index("=", len(before) - 2) - 1], True, incomplete
    return None, False, incomplete
