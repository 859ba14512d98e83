"""Options of the commands that listen: where, and who may ask."""

from typing import Annotated

import typer

Host = Annotated[str, typer.Option(help="address to listen at; other machines need the key MAS_API_KEY")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0: any free one")]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(help="a name that clients may ask it by, beside localhost and its address (may be repeated)"),
]
AllowOrigin = Annotated[
    list[str] | None,
    typer.Option(help="an origin of web pages that may ask, such as https://app.example (may be repeated)"),
]
