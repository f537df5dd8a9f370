"""Fixtures: a server for one folder, and the official client in this process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mcp import Client

from gpuward.mcp_server.folder import Folder
from gpuward.mcp_server.processes import ServerSettings
from gpuward.mcp_server.server import create_server

HIDDEN_NAME = "name-in-another-folder"
TAKER = """\
apiVersion: v1
kind: Pod
metadata: {name: taker}
spec:
  containers:
    - name: main
      image: example.com/app:1
      env:
        - {name: NVIDIA_VISIBLE_DEVICES, value: "0"}
      resources: {limits: {nvidia.com/gpu: 1}}
"""


class Reply(NamedTuple):
    """What a tool answers: texts, and whether it refuses the call."""

    texts: list[str]
    is_error: bool

    @property
    def text(self) -> str:
        """The first text."""
        return self.texts[0]

    @property
    def everything(self) -> str:
        """All texts, as the client may show them."""
        return "\n".join(self.texts)

    @property
    def document(self) -> Any:
        """The JSON that is the answer."""
        assert not self.is_error, self.text
        return json.loads(self.text)


class Assistant:
    """A client that is connected to a server."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def __call__(self, tool: str, **arguments: Any) -> Reply:
        result = await self.client.call_tool(tool, arguments)
        texts = [block.text for block in result.content if block.type == "text"]
        return Reply(texts, result.is_error)


class Place:
    """A folder that a server reads, `folder`, beside one that it must not read, `outside`."""

    def __init__(self, home: Path) -> None:
        self.folder = home.resolve() / "project"
        self.outside = home.resolve() / "outside"
        (self.folder / ".git").mkdir(parents=True)
        self.outside.mkdir()
        self.secret = self.outside / "secret.yaml"
        self.secret.write_text(TAKER.replace("taker", HIDDEN_NAME), encoding="utf-8")

    def write(self, name: str, text: str = TAKER) -> Path:
        """Put a file into the folder."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    @asynccontextmanager
    async def serve(self, write: str | None = None, **settings: Any) -> AsyncIterator[Assistant]:
        """A client of a server for the folder; `write` is the folder in it that is written."""
        target = None if write is None else str(self.folder / write)
        with Folder(str(self.folder)) as folder:
            server = create_server(ServerSettings(folder, target, **settings))
            async with Client(server) as client:
                yield Assistant(client)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Two folders, of which a server reads one."""
    return Place(tmp_path)
