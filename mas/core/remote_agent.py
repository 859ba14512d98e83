"""An agent elsewhere that plays a role, as data: where its card is, and its limits (A2A).

Leaves out on purpose: keys. A team is written down, so it holds the name of an environment variable instead.
"""

import os
import re
from importlib.util import find_spec
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from mas.core.errors import MissingPackage
from mas.core.options import Options
from mas.core.tool_server import checked_address, checked_variable

WELL_KNOWN = "/.well-known/agent-card.json"
"""Where the card of a server is."""
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]*")


def check_a2a(what: str) -> None:
    """Refuse what the SDK is needed for if it is not installed.

    Args:
        what: says what needs it.

    Raises:
        MissingPackage: it is not installed.
    """
    # its spans would hold what an agent sends as an error, which may repeat the key; read when it is imported
    os.environ.setdefault("OTEL_INSTRUMENTATION_A2A_SDK_ENABLED", "false")
    if find_spec("a2a") is None:
        raise MissingPackage(f"{what} the package a2a-sdk, which is not installed: pip install 'mas[a2a]'")


class RemoteAgent(Options):
    """An agent that speaks the Agent2Agent protocol.

    Attributes:
        url: the address of its card, which ends with `.json`, or of its server, whose card is at the well-known path.
        key_env: name of the environment variable whose value is sent with every request; None: nothing is.
        header: the HTTP header that it is sent in; in `Authorization` behind `Bearer `.
        timeout_s: how long the card, and each answer, may take.
        max_chars: of one answer; it is cut off behind them, and recorded as cut off.
    """

    url: Annotated[str, AfterValidator(checked_address)]
    key_env: Annotated[str, AfterValidator(checked_variable)] | None = None
    header: str = "Authorization"
    timeout_s: Annotated[float, Field(gt=0)] = 60.0
    max_chars: Annotated[int, Field(ge=100)] = 10_000

    @model_validator(mode="after")
    def _header_fits(self) -> Self:
        if self.key_env is None and self.header != type(self).model_fields["header"].default:
            raise ValueError(f"header {self.header!r} has no effect without key_env")
        if not _HEADER.fullmatch(self.header):
            raise ValueError(f"header {self.header!r} is no name of an HTTP header, such as X-Api-Key")
        return self

    @property
    def card_url(self) -> str:
        """The address of its card."""
        return self.url if self.url.endswith(".json") else self.url + WELL_KNOWN
