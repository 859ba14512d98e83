"""Parts that no algorithm of mas has together, as the file of a user's own algorithm: `mas.config.owned`."""

import hashlib
import os
from copy import deepcopy
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from mas.algorithms.registry import find_algorithm
from mas.config.load import leaves
from mas.config.options import Config
from mas.config.owned import is_owned, place

_FILE = """from mas.algorithms import Algorithm, NoOptions, Recipe

algorithm = Algorithm(recipe=Recipe(title="Mixed", does="Mixes parts."), parts={parts!r}, options=NoOptions)
"""


def mixed(*words: str) -> list[str]:
    """Overrides in which parts that only some algorithms have are those of a file, beside `algorithm=NAME`'s own."""
    owned = [word for word in words if _is_owned(word)]
    if not owned:
        return list(words)
    named = [word.partition("=")[2] for word in words if word.startswith("algorithm=")]
    name = named[-1] if named else Config().algorithm.name
    own = find_algorithm(name)
    parts: dict[str, Any] = deepcopy(dict(own.parts))
    place(parts, own, own.options().model_dump(mode="json"))
    merged = OmegaConf.create({"algorithm": parts})
    for override in OverridesParser.create().parse_overrides(owned):
        OmegaConf.update(merged, override.key_or_group, override.value(), force_add=True)
    text = _FILE.format(parts=OmegaConf.to_container(merged)["algorithm"])  # type: ignore[index, call-overload]
    path = Path(os.environ["MAS_CACHE"]) / f"mixed_{hashlib.sha256(text.encode()).hexdigest()[:12]}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    rest = [word for word in words if word not in owned and not word.startswith("algorithm=")]
    return [f"algorithm={path}", f"algorithm.name={name}", *rest]


def _is_owned(word: str) -> bool:
    key, _, _ = word.partition("=")
    if not key.startswith("algorithm.") or key.startswith("algorithm.options"):
        return False
    (override,) = OverridesParser.create().parse_overrides([word])
    return any(is_owned(one.removeprefix("algorithm.")) for one, _ in leaves(override.value(), key))
