"""Code of users, named `path/file.py:NAME` or `package.module:NAME`, and imported."""

import sys
from functools import lru_cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from mas.core.errors import ConfigError
from mas.core.seeds import digest

_importing: set[str] = set()
"""Names of the files whose import has begun and not ended."""


def is_code(name: str) -> bool:
    """Whether a name is one of code: of a file, or of something in a module."""
    return ":" in name or name.endswith(".py")


def load_module(what: str, place: str, example: str) -> ModuleType:
    """The module of a file that ends with `.py`, or of a dotted name.

    Args:
        what: what names it, for errors: `reward function 'mine.py:score'`. example: how a file would be named.

    Raises:
        ConfigError: there is no such file or module, or importing it raises.
    """
    return _from_file(what, Path(place)) if place.endswith(".py") else _from_module(what, place, example)


def _from_module(what: str, name: str, example: str) -> ModuleType:
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:  # a user's code
        raise ConfigError(
            f"{what}: the module {name!r} cannot be imported: {type(error).__name__}: {error}. Install it, or name "
            f"the file instead: {example}"
        ) from error


def _from_file(what: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"{what}: there is no file {path}; a relative path starts at {Path.cwd()}")
    if is_script(path):
        return sys.modules["__main__"]
    try:
        return _executed(path.resolve(), path.stat().st_mtime_ns)
    except (Exception, SystemExit) as error:  # a user's code
        raise ConfigError(f"{what}: {path} cannot be imported: {type(error).__name__}: {error}") from error


def is_script(path: Path) -> bool:
    """Whether this file is the script that runs: it has its functions already, and an import would run it again."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    return script is not None and Path(script).resolve() == path.resolve()


@lru_cache(maxsize=8)
def _executed(path: Path, changed_ns: int) -> ModuleType:
    """The file as a module, executed once per change of it. `sys.modules` has it, as dataclasses look there."""
    name = f"mas_user_{digest(str(path), str(changed_ns))}"
    if name in _importing:
        raise ConfigError(
            "the file uses mas itself while it is imported, and would be imported for ever: put what it does under "
            "`if __name__ == '__main__':`"
        )
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    _importing.add(name)
    try:
        spec.loader.exec_module(module)
    except BaseException:  # an interrupt, too, must not leave half a module there
        sys.modules.pop(name, None)
        raise
    finally:
        _importing.discard(name)
    return module
