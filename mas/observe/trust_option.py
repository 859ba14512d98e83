"""The option `--trust` of the commands that read stored runs. A command declares it and need not read it."""

from typing import Annotated

import typer

from mas.config.trust import set_trust


def _set(everything: bool) -> bool:
    set_trust(everything)
    return everything


Trust = Annotated[
    bool, typer.Option("--trust", callback=_set, help="allow all that stored files name: servers, keys, code, paths")
]
