"""Values in the grammar of the command line."""

import re
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/][\w./-]*", re.ASCII)
"""Texts that Hydra reads as they are."""


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
