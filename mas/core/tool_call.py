"""A call of a tool, as data: of a server's, of an environment's, or of the sandbox."""

from collections.abc import Mapping
from typing import Any

import msgspec


class ToolCall(msgspec.Struct, frozen=True):
    """The name of a tool and its arguments, not checked yet."""

    name: str
    arguments: Mapping[str, Any]

    def text(self) -> str:
        """The call as JSON, as `mas.tools.read_call` reads it."""
        return msgspec.json.encode({"name": self.name, "arguments": dict(self.arguments)}).decode()
