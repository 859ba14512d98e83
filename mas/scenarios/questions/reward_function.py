"""A user's reward function, named `package.module:function` or `path/file.py:function`.

    def reward(said: str, row: Mapping[str, Any]) -> float

`said` is the team's answer, never blank; `row` is the row of the file, with every field that it has. The result is what
the team is paid: a finite number, True or False; the question is solved where it is at least 1. The same arguments must
give the same result: the function is called again for play-outs and verdicts.
"""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, SupportsFloat

from mas.core.environment import check_finite
from mas.core.errors import ConfigError, RewardError
from mas.core.naming import did_you_mean
from mas.core.seeds import digest
from mas.core.user_code import load_module
from mas.scenarios.questions.records import QuestionRecord
from mas.scenarios.rows import shown

Function = Callable[[str, Mapping[str, Any]], float]


class RewardFunction:
    """A grade (see `QuestionEnvironment`) that calls the function with the row of a question.

    Attributes:
        key: equal where function, its file and the rows are; of a module's function by its name alone.
    """

    def __init__(self, name: str, rows: Mapping[QuestionRecord, Mapping[str, Any]]) -> None:
        """Import the function.

        Raises:
            ConfigError: as `load_function`.
        """
        self._name, self._function = name, load_function(name)
        self._rows = {question: MappingProxyType(dict(row)) for question, row in rows.items()}
        place = Path(name.rpartition(":")[0])
        source = place.read_text(encoding="utf-8") if place.suffix == ".py" else ""
        self.key = digest(name, source, *map(str, rows.values()))

    def __call__(self, question: QuestionRecord, said: str) -> float:
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
    module = load_module(where, place, "path/file.py:function")
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
