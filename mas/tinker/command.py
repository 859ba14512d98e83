"""`mas tinker`: a server of the Tinker API on this machine."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from mas.core.errors import ConfigError, MissingPackage
from mas.core.printable import printable
from mas.observe.listener_options import AllowHost, Host, Port
from mas.observe.trust_option import Trust
from mas.runs.overrides import Overrides, configured, tell_loading
from mas.training.setup import Setup

_PREFIX = "tml-"
"""What the SDK wants keys to begin with."""


def tinker(
    overrides: Overrides = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    allow_host: AllowHost = None,
    models: Annotated[int, typer.Option(min=1, max=1024, help="models that are trained at the same time")] = 16,
    samplers: Annotated[int, typer.Option(min=1, max=4096, help="sets of weights held for sampling")] = 32,
    idle: Annotated[
        float, typer.Option(min=30, metavar="SECONDS", help="a client's session ends after so long without a sign")
    ] = 600.0,
    trust: Trust = False,
) -> None:
    """Serve the Tinker API: programs of the SDK `tinker` train adapters on this base, with AdamW and losses of theirs.

    Saved weights stay in run_dir. Ctrl-C ends it.
    """
    if find_spec("tinker") is None or find_spec("google.protobuf") is None:
        raise MissingPackage("mas tinker needs the package tinker, which is not installed: pip install 'mas[tinker]'")
    given = [*(overrides or [])]
    keys = {word.lstrip("+").partition("=")[0] for word in given}
    if "run_dir" not in keys:
        given.append("run_dir=runs/tinker")
    config, setup = configured(given)
    key = os.environ.get("MAS_API_KEY") or None
    _check(setup, key)
    from mas.endpoint.address import bind, known_hosts
    from mas.endpoint.client_keys import Entrance

    console = Console()
    with bind(host, port, has_key=key is not None) as listener:
        tell_loading(console, "the Tinker API", setup)
        from mas.tinker.service import TinkerLimits
        from mas.tinker.serving import serve_tinker
        from mas.training.base import open_base

        base = open_base(setup, lambda text: console.print(Text(printable(text), style="dim")), is_trained=True)
        serve_tinker(
            base,
            Path(config.run_dir),
            listener,
            console,
            options=config.learner,
            entrance=Entrance(key=key, hosts=known_hosts(host, allow_host or [])),
            limits=TinkerLimits(models=models, samplers=samplers, idle_s=idle),
        )


def _check(setup: Setup, key: str | None) -> None:
    """Refuse what the API cannot do here, before weights are loaded."""
    if setup.engine.name != "transformers":
        raise ConfigError(
            f"mas tinker samples with engine=transformers, not with {setup.engine.name}: leave engine out"
        )
    if setup.cluster.is_used:
        raise ConfigError("mas tinker is one process: leave cluster out")
    if key is not None and not key.startswith(_PREFIX):
        raise ConfigError(f"the SDK tinker sends only keys that begin with {_PREFIX!r}: choose such a MAS_API_KEY")
