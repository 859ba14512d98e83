"""A user's reward function, named `package.module:function` or `path/file.py:function`.

    def reward(said: str, row: Mapping[str, Any]) -> float

`said` is the team's answer, never blank; `row` is the row of the file, with every field that it has. The result is what
the team is paid: a finite number, True or False; the question is solved where it is at least 1. The same arguments must
give the same result: the function is called again for play-outs and verdicts.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, SupportsFloat

from mas.core.errors import ConfigError, RewardError
from mas.core.naming import did_you_mean
from mas.core.reward import check_finite
from mas.core.seeds import digest
from mas.scenarios.questions.records import Question
from mas.scenarios.rows import shown

Function = Callable[[str, Mapping[str, Any]], float]
_importing: set[str] = set()
"""Names of the files whose import has begun and not ended."""


class RewardFunction:
    """A grade (see `QuestionEnvironment`) that calls the function with the row of a question.

    Attributes:
        key: equal where function, its file and the rows are; of a module's function by its name alone.
    """

    def __init__(self, name: str, rows: Mapping[Question, Mapping[str, Any]]) -> None:
        """Import the function.

        Raises:
            ConfigError: as `load_function`.
        """
        self._name, self._function = name, load_function(name)
        self._rows = {question: MappingProxyType(dict(row)) for question, row in rows.items()}
        place = Path(name.rpartition(":")[0])
        source = place.read_text(encoding="utf-8") if place.suffix == ".py" else ""
        self.key = digest(name, source, *map(str, rows.values()))

    def __call__(self, question: Question, said: str) -> float:
        """What an answer is worth; nothing said is worth 0.

        Raises:
            RewardError: the function raises, or returns what is no finite number.
        """
        if not said.strip():
            return 0.0
        source = f"reward function {self._name}"
        try:
            value: object = self._function(said, self._rows[question])
        except (Exception, SystemExit) as error:  # a user's code: whatever it is, the episode cannot be scored
            raise RewardError(
                f"{source} raised {type(error).__name__}: {error} for the answer {shown(said)} to "
                f"{shown(question.text)}. Correct it, or return 0 there"
            ) from error
        if not isinstance(value, SupportsFloat):
            raise RewardError(f"{source} returned {shown(value)} of type {type(value).__name__}: return a number")
        try:
            paid = float(value)
        except Exception as error:  # too large, or an array
            raise RewardError(
                f"{source} returned a value of type {type(value).__name__} that is no finite number: {error}. "
                "Return a number"
            ) from error
        check_finite({"right": paid}, source)
        return paid


def load_function(name: str) -> Function:
    """The function of a name.

    Raises:
        ConfigError: the name has another form, its file or module cannot be imported or lacks the function, or the
            function does not take an answer and a row.
    """
    where = f"reward function {name!r}"
    place, _, function_name = name.rpartition(":")
    if not place or not function_name.isidentifier():
        raise ConfigError(f"{where}: write path/file.py:function or package.module:function")
    module = _from_file(where, Path(place)) if place.endswith(".py") else _from_module(where, place)
    found = getattr(module, function_name, None)
    if not callable(found):
        functions = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise ConfigError(
            f"{where}: {place} has no function {function_name!r}. {did_you_mean(function_name, functions)}"
        )
    try:
        inspect.signature(found).bind("", {})
    except TypeError as error:
        raise ConfigError(
            f"{where} cannot be called with an answer and a row: {error}. Write def {function_name}(said, row)"
        ) from error
    except ValueError:  # a compiled function does not tell
        pass
    function: Function = found
    return function


def _from_module(where: str, name: str) -> ModuleType:
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:  # a user's code
        raise ConfigError(
            f"{where}: the module {name!r} cannot be imported: {type(error).__name__}: {error}. Install it, or name "
            "the file instead: path/file.py:function"
        ) from error


def _from_file(where: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"{where}: there is no file {path}; a relative path starts at {Path.cwd()}")
    if is_script(path):
        return sys.modules["__main__"]
    try:
        return _executed(path.resolve(), path.stat().st_mtime_ns)
    except (Exception, SystemExit) as error:  # a user's code
        raise ConfigError(f"{where}: {path} cannot be imported: {type(error).__name__}: {error}") from error


def is_script(path: Path) -> bool:
    """Whether this file is the script that runs: it has its functions already, and an import would run it again."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    return script is not None and Path(script).resolve() == path.resolve()


@lru_cache(maxsize=8)
def _executed(path: Path, changed_ns: int) -> ModuleType:
    """The file as a module, executed once per change of it. `sys.modules` has it, as dataclasses look there."""
    name = f"mas_reward_{digest(str(path), str(changed_ns))}"
    if name in _importing:
        raise ConfigError(
            "the file uses mas itself while it is imported for its function, and would be imported for ever: put what "
            "it does under `if __name__ == '__main__':`"
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
