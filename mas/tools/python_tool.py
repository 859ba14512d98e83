"""The sandbox as a server of tools with one tool, `python`: it runs a program, and whatever becomes of it is a text.

Each program begins with nothing: no file, no variable of one before it, no network.
"""

import asyncio
from collections.abc import Collection
from typing import Annotated, Any

from pydantic import Field

from mas.core.errors import ConfigError, SandboxError
from mas.core.naming import did_you_mean
from mas.core.tool_call import ToolCall
from mas.core.tool_server import ToolServer
from mas.sandbox.box import Sandbox
from mas.sandbox.outcome import ProgramOutcome, SandboxLimits
from mas.tools.toolbox import Parameters, check_arguments

PYTHON = "python"
_ABOUT = "Runs a Python program and answers with what it prints. It has the standard library, no network and no files."


class Program(Parameters):
    """What is run."""

    source: Annotated[str, Field(description="the program")]
    stdin: Annotated[str, Field(description="what it reads from its standard input")] = ""


class PythonTool:
    """Satisfies `mas.tools.recorded.ToolConnection`.

    Args:
        name: of the server in the team. options: with the key `sandbox`.
    """

    def __init__(self, name: str, options: ToolServer) -> None:
        if options.sandbox is None:
            raise ConfigError(f"the server of tools {name!r} is no sandbox")
        limits = options.sandbox
        self._name, self._most_chars = name, options.max_chars
        self._limits = SandboxLimits(time_s=limits.time_s, memory_mib=limits.memory_mib, output_kib=limits.output_kib)
        self._box = Sandbox(self._limits, places=limits.places)

    async def start(self) -> None:
        """Run an empty program.

        Raises:
            SandboxError: none can be run safely here; it says why.
        """
        await self._box.run("")

    async def close(self) -> None:
        """End every program."""
        await asyncio.to_thread(self._box.close)

    async def tools(self) -> dict[str, dict[str, Any]]:
        """The one tool, described as MCP does."""
        return {PYTHON: {"description": _ABOUT, "inputSchema": Program.model_json_schema()}}

    async def allow(self, names: Collection[str]) -> None:
        """Refuse other tools.

        Raises:
            ConfigError: it has no tool of that name.
        """
        for name in names:
            if name != PYTHON:
                raise ConfigError(f"the sandbox {self._name!r} has no tool {name!r}. {did_you_mean(name, [PYTHON])}")

    def check(self, call: ToolCall) -> None:
        """Refuse wrong arguments.

        Raises:
            ToolRefused: says why.
        """
        check_arguments(call, Program)

    async def call(self, call: ToolCall) -> str:
        """Run the program, and once more if the sandbox itself ends meanwhile; what it printed and how it ended."""
        program = check_arguments(call, Program)
        for is_again in (False, True):
            try:
                return self._text(await self._box.run(program.source, program.stdin))
            except SandboxError as error:
                if is_again:
                    return f"error: tool {call.name!r}: {error}"
        raise AssertionError("unreachable")

    def clean(self, text: str) -> str:
        """The text: programs are given no secret."""
        return text

    def _text(self, outcome: ProgramOutcome) -> str:
        limits = self._limits
        why = {
            "ok": "",
            "wrong": f"error: it ended with exit code {outcome.exit_code}",
            "timeout": f"error: it did not end within {limits.time_s:g} s",
            "memory": f"error: it needs more than {limits.memory_mib} MiB",
            "output": f"error: it writes more than {limits.output_kib} KiB",
            "killed": "error: a signal ended it",
            "refused": "error: it was not run",
        }[outcome.status]
        said = [_cut(text.rstrip("\n"), self._most_chars) for text in (outcome.stdout, outcome.stderr)]
        return "\n".join(part for part in (*said, why) if part) or "it ended, and printed nothing"


def _cut(text: str, most: int) -> str:
    """The end of a text is kept, too: of an error it says most."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[cut: {len(text)} characters in all]\n{text[-half:]}"
