"""A small MCP server, written with the SDK of either major version: `good.py LOG`, or `good.py LOG PORT` over HTTP."""

import os
import sys
from pathlib import Path
from typing import Any

try:
    from mcp.server.mcpserver import MCPServer as Server
except ImportError:
    from mcp.server.fastmcp import FastMCP as Server

LOG = Path(sys.argv[1])
PORT = int(sys.argv[2]) if len(sys.argv) > 2 else 0
server: Any = Server("good")


def note(text: str) -> None:
    with LOG.open("a") as log:
        log.write(f"{text}\n")


@server.tool(description="Adds two numbers.")
def add(a: int, b: int) -> str:
    note(f"add {a} {b}")
    return str(a + b)


@server.tool(description="Counts its calls.")
def count() -> str:
    note("count")
    return str(LOG.read_text().splitlines().count("count"))


@server.tool(description="Tells its key.")
def tell() -> str:
    return f"my key is {os.environ.get('TOOL_KEY')}"


@server.tool(description="Dies.")
def die() -> str:
    note("die")
    os._exit(1)


@server.tool(description="Fails.")
def fail() -> str:
    raise ValueError("no such thing")


@server.tool(description="Says much.")
def long(characters: int) -> str:
    return "x" * characters


if PORT:
    import uvicorn

    uvicorn.run(server.streamable_http_app(), port=PORT, log_level="error")
else:
    server.run()
