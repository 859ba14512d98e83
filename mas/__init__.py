"""mas: teams of LLM agents that can be trained together.

    import mas

    config = mas.load_config(["scenario=relay", "train.steps=20", "run_dir=runs/relay"])
    outcome = mas.train(config)  # in a script or in a notebook's cell
    results = mas.evaluate("runs/relay")

What is named in `__all__` is loaded when it is first used: importing mas loads no tensor library.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mas.api import evaluate as evaluate
    from mas.api import train as train
    from mas.config.load import load_config as load_config
    from mas.config.load import load_run_config as load_run_config

__version__ = "0.1.0"
__all__ = ["__version__", "evaluate", "load_config", "load_run_config", "train"]
_HOMES = {
    **dict.fromkeys(("load_config", "load_run_config"), "mas.config.load"),
    **dict.fromkeys(("evaluate", "train"), "mas.api"),
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'mas' has no attribute {name!r}; it has {', '.join(__all__)}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
