"""Tests of `gpuward serve --dev`: its printed commands work, and its output can be piped."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shlex
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.testkit.admission.caller import TIMEOUT_SECONDS
from tests.testkit.admission.server import ANY_PORT
from tests.testkit.paths import ROOT
from tests.testkit.skipping import skip_missing

COMMAND = (sys.executable, "-m", "gpuward", "serve", "--dev", "--metrics-listen", ANY_PORT)
UNDO = "kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration gpuward-dev"
Start = Callable[..., Awaitable[Process]]


@pytest_asyncio.fixture
async def start() -> AsyncIterator[Start]:
    """Starts development servers; those that still run at the end are killed."""
    if shutil.which("curl") is None:
        skip_missing("curl is not installed")
    started: list[Process] = []

    async def run(*arguments: str) -> Process:
        command = (*COMMAND, *arguments)
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE, stderr=PIPE)
        started.append(process)
        return process

    yield run
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def read_instructions(stream: asyncio.StreamReader | None) -> str:
    """Read the instructions up to the command that removes the registration."""
    assert stream is not None
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return (await stream.readuntil(UNDO.encode())).decode()


async def responses(text: str) -> list[dict[str, Any]]:
    """The responses to the curl commands in `text`."""
    commands = [shlex.split(line) for line in text.splitlines() if line.startswith("  curl")]
    return [json.loads(await output(*call))["response"] for call in commands]


async def output(*command: str) -> bytes:
    """The standard output of a command."""
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0, command
    return out


def registered_file(text: str) -> Path:
    """The file of the `kubectl apply` command in `text`."""
    (apply,) = (line for line in text.splitlines() if "kubectl apply" in line)
    return Path(shlex.split(apply)[-1])


async def test_it_prints_how_to_try_register_and_remove_it(start: Start) -> None:
    process = await start("--listen", ANY_PORT)
    text = await read_instructions(process.stdout)
    fixed, refused = await responses(text)
    assert fixed["allowed"]
    assert json.loads(base64.b64decode(fixed["patch"]))
    assert refused["status"]["reason"] == "Forbidden"
    assert "The label gpuward.io/mode of a namespace sets its mode; the default is warn." in text
    assert "failurePolicy Ignore" in text
    file = registered_file(text)
    both = json.loads(await asyncio.to_thread(file.read_text))
    assert [item["kind"] for item in both["items"]] == [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ]
    assert {item["metadata"]["name"] for item in both["items"]} == {UNDO.rsplit(maxsplit=1)[-1]}
    client = both["items"][0]["webhooks"][0]["clientConfig"]
    assert client["url"].startswith("https://127.0.0.1:")
    assert base64.b64decode(client["caBundle"]) == await asyncio.to_thread(
        (file.parent / "ca.crt").read_bytes
    )
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await process.communicate()
    assert process.returncode == 0
    assert file.parent.name not in os.listdir(file.parent.parent)


@pytest.mark.parametrize("listen", [ANY_PORT, "0.0.0.0:0", ":0"])
async def test_the_cluster_and_this_machine_may_use_different_addresses(
    start: Start, listen: str
) -> None:
    process = await start("--listen", listen, "--server-name", "gpuward.invalid")
    text = await read_instructions(process.stdout)
    assert [answer["allowed"] for answer in await responses(text)] == [True, False]
    both = json.loads(await asyncio.to_thread(registered_file(text).read_text))
    url = both["items"][1]["webhooks"][0]["clientConfig"]["url"]
    assert url.startswith("https://gpuward.invalid:")
    assert "cluster that can reach https://gpuward.invalid:" in text


async def test_the_configuration_can_be_piped_while_it_serves(start: Start) -> None:
    process = await start("--listen", ANY_PORT, "--print-configuration")
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT_SECONDS):
        printed = json.loads(await process.stdout.read())  # kubectl too reads to the end
    text = await read_instructions(process.stderr)
    assert json.loads(await asyncio.to_thread(registered_file(text).read_text)) == printed
    assert len(await responses(text)) == 2
    assert process.returncode is None
