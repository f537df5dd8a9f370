"""`gpuward serve --dev`: what it prints can be pasted, and piped."""

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

from tests.testkit.admission.server import ANY_PORT, PATIENT
from tests.testkit.paths import ROOT
from tests.testkit.skipping import missing

COMMAND = (sys.executable, "-m", "gpuward", "serve", "--dev", "--metrics-listen", ANY_PORT)
UNDO = "kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration gpuward-dev"
Start = Callable[..., Awaitable[Process]]


@pytest_asyncio.fixture
async def start() -> AsyncIterator[Start]:
    """Starts development servers; those that still run at the end are killed."""
    if shutil.which("curl") is None:
        missing("curl is not installed")
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


async def told(stream: asyncio.StreamReader | None) -> str:
    """What is said up to how to undo it."""
    assert stream is not None
    async with asyncio.timeout(PATIENT):
        return (await stream.readuntil(UNDO.encode())).decode()


async def answers(text: str) -> list[dict[str, Any]]:
    """What the command lines with curl in `text` are answered."""
    calls = [shlex.split(line) for line in text.splitlines() if line.startswith("  curl")]
    return [json.loads(await output(*call))["response"] for call in calls]


async def output(*command: str) -> bytes:
    """What a command prints."""
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0, command
    return out


def registered_file(text: str) -> Path:
    """The file that is to be applied."""
    (apply,) = (line for line in text.splitlines() if "kubectl apply" in line)
    return Path(shlex.split(apply)[-1])


async def test_it_says_how_to_try_register_and_undo_it(start: Start) -> None:
    process = await start("--listen", ANY_PORT)
    text = await told(process.stdout)
    fixed, refused = await answers(text)
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
    async with asyncio.timeout(PATIENT):
        await process.communicate()
    assert process.returncode == 0
    assert file.parent.name not in os.listdir(file.parent.parent)


@pytest.mark.parametrize("listen", [ANY_PORT, "0.0.0.0:0", ":0"])
async def test_what_the_cluster_calls_it_is_not_what_this_machine_calls(
    start: Start, listen: str
) -> None:
    process = await start("--listen", listen, "--server-name", "gpuward.invalid")
    text = await told(process.stdout)
    assert [answer["allowed"] for answer in await answers(text)] == [True, False]
    both = json.loads(await asyncio.to_thread(registered_file(text).read_text))
    url = both["items"][1]["webhooks"][0]["clientConfig"]["url"]
    assert url.startswith("https://gpuward.invalid:")
    assert "cluster that can reach https://gpuward.invalid:" in text


async def test_the_configuration_can_be_piped_while_it_serves(start: Start) -> None:
    process = await start("--listen", ANY_PORT, "--print-configuration")
    assert process.stdout is not None
    async with asyncio.timeout(PATIENT):
        printed = json.loads(await process.stdout.read())  # kubectl too reads to the end
    text = await told(process.stderr)
    assert json.loads(await asyncio.to_thread(registered_file(text).read_text)) == printed
    assert len(await answers(text)) == 2
    assert process.returncode is None
