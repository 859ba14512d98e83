"""What a team is trained on: a scenario by its name, or questions of one's own."""

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


def _place_of(function: RewardFunction) -> str:
    """`file.py:function`."""
    name = getattr(function, "__qualname__", "")
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    file = Path(getattr(module, "__file__", None) or "")
    if getattr(module, name, None) is not function or file.suffix != ".py" or not file.is_file():
        raise ConfigError(
            f"reward: {name or function!r} is not a function at the top of a file, from which a run that goes on loads "
            "it: write it into a file such as reward.py, and pass it or 'reward.py:function'"
        )
    return f"{file.absolute()}:{name}"
