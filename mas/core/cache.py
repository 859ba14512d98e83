"""Where mas keeps what takes long to make and can be made again."""

import os
from pathlib import Path


def cache_directory() -> Path:
    """`$MAS_CACHE`, or `mas` under `$XDG_CACHE_HOME` or `~/.cache`."""
    if "MAS_CACHE" in os.environ:
        return Path(os.environ["MAS_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mas"
