"""`mas gateway`: trains a program of the user's own by its calls of an OpenAI-compatible endpoint."""

import os
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from mas.api.train import train_setup
from mas.core.errors import ConfigError
from mas.core.printable import printable
from mas.observe.listener_options import AllowHost, Host, Port
from mas.observe.trust_option import Trust
from mas.runs.overrides import FromStep, Overrides, configured, tell_stopped
from mas.runs.resolve import with_tasks


def gateway(
    overrides: Overrides = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    allow_host: AllowHost = None,
    idle: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="an episode without a call for so long is given up")
    ] = 600.0,
    from_step: FromStep = None,
    trust: Trust = False,
) -> None:
    """Train a program of your own, an adapter per role: it calls the roles as models of an OpenAI-compatible endpoint.

    The same command again resumes a run that was stopped or killed.
    """
    given = [*(overrides or [])]
    keys = {word.lstrip("+").partition("=")[0] for word in given}
    if not keys & {"scenario", "scenario.name"}:
        given.insert(0, "scenario=program")
    if not keys & {"algorithm", "algorithm.name"}:
        given.insert(0, "algorithm=parallel_grpo")
    config, setup = configured(given)
    if "model" not in keys and "model.path" not in keys:
        raise ConfigError("say which model is trained: mas gateway model=smollm2, or another one")
    from mas.endpoint.address import bind, known_hosts
    from mas.endpoint.client_keys import Entrance
    from mas.gateway.serving import GatewayLimits, check_program, program_opening

    check_program(setup)
    key, console = os.environ.get("MAS_API_KEY") or None, Console()
    with bind(host, port, has_key=key is not None) as listener:
        opening = program_opening(
            with_tasks(config, setup),
            listener,
            note=lambda text: console.print(Text(printable(text)), soft_wrap=True),
            entrance=Entrance(key=key, hosts=known_hosts(host, allow_host or [])),
            limits=GatewayLimits(idle_s=idle),
        )
        try:
            train_setup(config, setup, console, from_step=from_step, open_bus=lambda: opening)
        except KeyboardInterrupt:
            tell_stopped(config.run_dir, ["mas", "gateway", *(overrides or [])])
            raise typer.Exit(130) from None
    console.print(Text(f"next: mas report {config.run_dir}   mas serve {config.run_dir}", style="dim"), soft_wrap=True)
