"""mas: teams of LLM agents that can be trained together.

    import mas

    run = mas.train("team", "relay", steps=20, run_dir="runs/relay")  # in a script or in a notebook's cell
    run.evaluate(tasks=50)
    print(run.play(task=3))

What is named in `__all__` is loaded when it is first used: importing mas loads no tensor library.
"""

from typing import TYPE_CHECKING

from mas.core.version import VERSION

if TYPE_CHECKING:
    from mas import protocols as protocols
    from mas.api.evaluate import evaluate as evaluate
    from mas.api.evaluate import evaluate_async as evaluate_async
    from mas.api.inspect_task import inspect_task as inspect_task
    from mas.api.league import League as League
    from mas.api.run import Run as Run
    from mas.api.team import Team as Team
    from mas.api.train import questions as questions
    from mas.api.train import train as train
    from mas.api.train import train_async as train_async
    from mas.config.load import load_config as load_config
    from mas.config.stored_run import load_run_config as load_run_config
    from mas.config.trust import trusting as trusting

__version__ = VERSION
__all__ = [
    "League",
    "Run",
    "Team",
    "__version__",
    "evaluate",
    "evaluate_async",
    "inspect_task",
    "load_config",
    "load_run_config",
    "protocols",
    "questions",
    "train",
    "train_async",
    "trusting",
]
_HOMES = {
    "load_config": "mas.config.load",
    "load_run_config": "mas.config.stored_run",
    **dict.fromkeys(("evaluate", "evaluate_async"), "mas.api.evaluate"),
    **dict.fromkeys(("train", "train_async"), "mas.api.train"),
    "League": "mas.api.league",
    "inspect_task": "mas.api.inspect_task",
    "Run": "mas.api.run",
    "Team": "mas.api.team",
    "questions": "mas.api.train",
    "trusting": "mas.config.trust",
}

if not TYPE_CHECKING:  # else a name that there is not would be an object to type checkers

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'mas' has no attribute {name!r}; it has {', '.join(__all__)}")
        from importlib import import_module

        return import_module(f"mas.{name}") if name == "protocols" else getattr(import_module(_HOMES[name]), name)
