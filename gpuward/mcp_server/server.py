"""The server: calls of the protocol come in by the SDK, and texts go out."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Any

import anyio
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from gpuward import __version__
from gpuward.mcp_server import tools
from gpuward.mcp_server.processes import Answerer, ServerSettings, printable_lines

MAX_MESSAGE_CHARACTERS = 8_000_000
"""The most characters of a message: a text in which every character is an escape fits."""


def create_server(settings: ServerSettings) -> Server[Any]:
    """Return the server, which serves no client yet."""
    answerer = Answerer(settings)
    offered = ListToolsResult(tools=[_to_tool(tool, settings) for tool in tools.TOOLS])

    async def list_tools(
        _context: ServerRequestContext[Any], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return offered

    async def call_tool(
        _context: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult:
        try:
            texts = await answerer.answer(tools.to_call(params.name, params.arguments or {}))
        except tools.ToolError as error:
            text = printable_lines(str(error))
            return CallToolResult(content=[TextContent(text=text)], is_error=True)
        return CallToolResult(content=[TextContent(text=text) for text in texts])

    return Server(
        "gpuward",
        version=__version__,
        instructions=tools.INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def serve(settings: ServerSettings) -> None:
    """Serve one client on standard input and output until it closes them.

    Raises OSError if one of them cannot be read or written.
    """
    try:
        anyio.run(_serve, create_server(settings))
    except ExceptionGroup as errors:  # of the tasks that read and write
        broken: BaseException | None = errors.subgroup(OSError)
        while isinstance(broken, BaseExceptionGroup):
            broken = broken.exceptions[0]
        raise (broken or errors) from None


async def _serve(server: Server[Any]) -> None:
    lines = anyio.wrap_file(_BoundedLines(sys.stdin.buffer, encoding="utf-8", errors="replace"))
    async with stdio_server(stdin=lines) as (read, write):
        await server.run(read, write, server.create_initialization_options())


class _BoundedLines(TextIOWrapper):
    """Lines of messages; in the place of one that is too long is one that is no message."""

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # as typeshed's own
        """Return the next line, up to `MAX_MESSAGE_CHARACTERS` and no other size."""
        line = super().readline(MAX_MESSAGE_CHARACTERS if size < 0 else size)
        if size >= 0 or line.endswith("\n") or len(line) < MAX_MESSAGE_CHARACTERS:
            return line
        while (rest := super().readline(MAX_MESSAGE_CHARACTERS)) and not rest.endswith("\n"):
            pass
        return "a message that is too long\n"


def _to_tool(tool: tools.Tool, settings: ServerSettings) -> Tool:
    writes = tool.writes and settings.write is not None
    asks = settings.cluster_arguments is not None and tool.name in {"why", "gpus"}
    return Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        annotations=ToolAnnotations(
            read_only_hint=not writes,
            destructive_hint=writes,
            idempotent_hint=True,
            open_world_hint=asks,
        ),
    )
