"""What a team is trained on: a scenario by its name, questions of one's own, or a class of environments."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mas.config.options import ScenarioOptions
from mas.core.errors import ConfigError

RewardFunction = Callable[..., float]


def questions(path: Path | str, *, reward: RewardFunction | str | None = None, **options: Any) -> ScenarioOptions:
    """Questions from a file of one's own, as a task for `mas.train`.

    Args:
        path: a file of one JSON object per line with the fields `question` and `answer`, or what else
            `scenario.options.path` takes.
        reward: a function of the team's answer and the row, `score(said, row) -> float`, which stands in a file; or
            `file.py:function`. None: a scorer says what is right.
        options: other options of the scenario, such as `scorer="number"`, `question="q"` or `split="part"`.

    Raises:
        ConfigError: the function is not in a file, from which another process could load it.
    """
    given = {"path": str(path), **options}
    if reward is not None:
        given["reward"] = reward if isinstance(reward, str) else _place_of(reward)
    return ScenarioOptions(name="questions", options=given)


def class_name(kind: type) -> str:
    """What `scenario.name` calls a class of environments: `file.py:CLASS`, or `package.module:CLASS`; from a notebook
    or a prompt `__main__:CLASS`, which no other process can load.

    Raises:
        ConfigError: the class stands inside a function or another class, or its name is another one's now.
    """
    name, module = kind.__qualname__, sys.modules.get(kind.__module__)
    if getattr(module, name, None) is not kind:
        raise ConfigError(
            f"task: {name} is not a class at the top of a file or a notebook, from which a run loads it: move it "
            "there, or pass 'file.py:CLASS'"
        )
    return _in_file(kind) or f"{kind.__module__}:{name}"


def _place_of(function: RewardFunction) -> str:
    """`file.py:function`, or `package.module:function`."""
    found = _in_file(function)
    if found is None:
        raise ConfigError(
            f"reward: {getattr(function, '__qualname__', function)!r} is not a function at the top of a file, from "
            "which a run that goes on loads it: write it into a file such as reward.py, and pass it or "
            "'reward.py:function'"
        )
    return found


def _in_file(code: object) -> str | None:
    """`file.py:NAME` of what stands at the top of a file, in a package with `__init__.py` `package.module:NAME`, as
    only so its relative imports work; None: it does not."""
    name = getattr(code, "__qualname__", "")
    module = sys.modules.get(getattr(code, "__module__", None) or "")
    file = Path(getattr(module, "__file__", None) or "")
    is_there = getattr(module, name, None) is code and file.suffix == ".py" and file.is_file()
    if module is None or not is_there:
        return None
    package = sys.modules.get(getattr(module, "__package__", None) or "")
    is_packed = getattr(package, "__file__", None) is not None and module.__name__ != "__main__"
    return f"{module.__name__ if is_packed else file.absolute()}:{name}"
