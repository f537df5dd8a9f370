"""Tests of the policy reload: a changed file is loaded, and a bad one keeps the last policy."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from policies.loading import PolicyError
from tests.testkit.admission.server import RunningServer, Serve, serving
from webhook.reload.policy import PolicyReloader

HEAD = "apiVersion: gpuward.io/v1\nkind: Policy\n"
STRICT = HEAD
LAX = HEAD + "rules:\n  visible-devices-env:\n    action: audit\n"


@pytest_asyncio.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Starts servers."""
    async with serving(tmp_path) as start:
        yield start


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A policy file."""
    path = tmp_path / "policy.yaml"
    path.write_text(STRICT)
    return path


@pytest.fixture
def policy(file: Path) -> PolicyReloader:
    """The loaded policy of the file."""
    loaded = PolicyReloader(str(file), clock=lambda: 12.0)
    loaded.load()
    return loaded


def test_a_change_is_loaded_when_two_reads_agree(file: Path, policy: PolicyReloader) -> None:
    before = policy.active
    assert policy.reload() == ""
    file.write_text(LAX)
    assert policy.reload() == ""
    assert policy.active is before
    assert policy.reload() == "loaded"
    assert policy.active is not before
    assert policy.active.digest != before.digest
    assert policy.active.since == 12.0
    assert (policy.loads, policy.failures) == (2, 0)
    assert policy.reload() == ""


def test_a_partially_written_policy_is_not_loaded(file: Path, policy: PolicyReloader) -> None:
    before = policy.active
    for length in range(len(HEAD), len(LAX)):
        file.write_text(LAX[:length])
        assert policy.reload() == ""
        assert policy.active is before
    file.write_text(LAX)
    assert [policy.reload(), policy.reload()] == ["", "loaded"]
    assert (policy.loads, policy.failures) == (2, 0)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"kind: Pod\n", HEAD.encode() + b"rules: {no-such-rule: {}}\n", b"\xff"]
)
def test_a_bad_policy_is_refused_once_and_the_last_good_one_stays(
    file: Path, policy: PolicyReloader, content: bytes
) -> None:
    before = policy.active
    file.write_bytes(content)
    assert [policy.reload() for _ in range(4)] == ["", "refused", "", ""]
    assert policy.active is before
    assert policy.last_error.startswith(str(file))
    assert policy.failures == 1
    file.write_text(STRICT)
    assert [policy.reload(), policy.reload()] == ["restored", ""]
    assert policy.last_error == ""
    assert policy.active is before


def test_a_file_that_is_gone_or_no_file_keeps_the_last_good_policy(
    file: Path, policy: PolicyReloader
) -> None:
    before = policy.active
    file.unlink()
    assert [policy.reload(), policy.reload()] == ["refused", ""]
    file.mkdir()
    assert [policy.reload(), policy.reload()] == ["refused", ""]
    assert policy.active is before
    file.rmdir()
    os.mkfifo(file)
    assert policy.reload() == ""
    file.unlink()
    file.write_text(LAX)
    assert [policy.reload(), policy.reload()] == ["", "loaded"]
    assert policy.last_error == ""


def test_a_config_map_is_swapped_by_its_link(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    for version, text in (("v1", STRICT), ("v2", LAX)):
        (mount / version).mkdir(parents=True)
        (mount / version / "policy.yaml").write_text(text)
    (mount / "..data").symlink_to("v1")
    (mount / "policy.yaml").symlink_to("..data/policy.yaml")
    policy = PolicyReloader(str(mount / "policy.yaml"))
    policy.load()
    before = policy.active.digest
    (mount / "..data_tmp").symlink_to("v2")
    (mount / "..data_tmp").rename(mount / "..data")
    assert [policy.reload(), policy.reload()] == ["", "loaded"]
    assert policy.active.digest != before


def test_at_the_start_a_bad_policy_is_an_error(tmp_path: Path, file: Path) -> None:
    with pytest.raises(PolicyError, match="no such file"):
        PolicyReloader(str(tmp_path / "none.yaml")).load()
    file.write_text("kind: Pod\n")
    with pytest.raises(PolicyError, match=r"policy\.yaml:1"):
        PolicyReloader(str(file)).load()
    file.write_bytes(b" " * (5 << 20))
    with pytest.raises(PolicyError, match="at most"):
        PolicyReloader(str(file)).load()
    with pytest.raises(PolicyError, match="no-such-profile"):
        PolicyReloader(None, ["no-such-profile"]).load()
    with pytest.raises(RuntimeError):
        _ = PolicyReloader(None).active


@pytest.mark.parametrize("content", [b"kind: Pod\n", None])
def test_at_the_start_the_fallback_replaces_a_bad_policy(
    tmp_path: Path, file: Path, content: bytes | None
) -> None:
    fallback = tmp_path / "fallback.yaml"
    fallback.write_text(LAX)
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    policy = PolicyReloader(str(file), fallback=str(fallback))
    policy.load()
    digest = hashlib.sha256(LAX.encode()).hexdigest()
    assert [policy.reload(), policy.reload()] == ["refused", ""]
    assert policy.last_error.startswith(str(file))
    assert policy.active.digest == digest
    assert (policy.loads, policy.failures) == (1, 1)
    file.write_text(LAX)
    assert [policy.reload(), policy.last_error] == ["restored", ""]
    file.write_text(STRICT)
    assert [policy.reload(), policy.reload()] == ["", "loaded"]
    assert policy.active.digest != digest


def test_a_good_policy_never_reads_the_fallback(tmp_path: Path, file: Path) -> None:
    policy = PolicyReloader(str(file), fallback=str(tmp_path / "none.yaml"))
    policy.load()
    assert [policy.reload(), policy.last_error] == ["", ""]


@pytest.mark.parametrize("content", [None, "kind: Pod\n"])
def test_without_a_good_fallback_the_error_is_that_of_the_policy(
    tmp_path: Path, file: Path, content: str | None
) -> None:
    fallback = tmp_path / "fallback.yaml"
    if content:
        fallback.write_text(content)
    file.write_text("kind: Policy\n")
    with pytest.raises(PolicyError, match=r"policy\.yaml:1"):
        PolicyReloader(str(file), fallback=str(fallback)).load()


@pytest.fixture
def with_fallback(tmp_path: Path, file: Path) -> PolicyReloader:
    """A policy that cannot be used, with a fallback that can."""
    fallback = tmp_path / "fallback.yaml"
    fallback.write_text(STRICT)
    file.write_text("kind: Pod\n")
    return PolicyReloader(str(file), fallback=str(fallback))


async def test_a_server_with_the_fallback_is_ready_and_says_why(
    serve: Serve, file: Path, with_fallback: PolicyReloader
) -> None:
    policy = with_fallback
    policy.load()
    server = await serve(policy)
    response = (await (await server.connect()).post("/validate/deny")).response
    assert "visible-devices-env" in response["status"]["message"]
    probe = await server.probe("/readyz")
    assert (probe.status, b"policy in the file is not active" in probe.body) == (200, True)
    assert b"policy.yaml:1" in probe.body
    assert (await server.metrics())("policy_valid") == 0
    (line,) = (line for line in server.logged() if line["event"].startswith("policy"))
    assert (line["event"], line["active"]) == ("policy refused", policy.active.digest)
    await write(server, file, STRICT)
    assert b"not active" not in (await server.probe("/readyz")).body
    assert (await server.metrics())("policy_valid") == 1


def test_the_default_policy_has_no_file_to_reload() -> None:
    policy = PolicyReloader(None, ["gke"])
    policy.load()
    assert (policy.reload(), policy.active.digest) == ("", "")


async def test_decisions_follow_the_file(serve: Serve, file: Path, policy: PolicyReloader) -> None:
    server = await serve(policy)
    caller = await server.connect()

    async def refused() -> bool:
        response = (await caller.post("/validate/deny")).response
        return "visible-devices-env" in response["status"]["message"]

    assert await refused()
    await write(server, file, LAX)
    assert not await refused()
    await write(server, file, "kind: Pod\n")
    assert not await refused()
    metrics = await server.metrics()
    assert metrics("policy_valid") == 0
    assert metrics("policy_loads_total") == 2
    assert metrics("policy_reload_failures_total") == 1
    assert metrics("policy_info", policy.active.digest) == 1
    assert (await server.probe("/readyz")).status == 200
    await write(server, file, STRICT)
    assert await refused()
    metrics = await server.metrics()
    assert metrics("policy_valid") == 1
    assert len(metrics.labels("policy_info")) == 1
    lines = [line for line in server.logged() if line["event"].startswith("policy")]
    assert [line["event"] for line in lines] == ["policy loaded", "policy refused", "policy loaded"]
    assert lines[1]["level"] == "error"
    assert "policy.yaml:1" in lines[1]["error"]
    assert lines[1]["active"] == lines[0]["digest"]
    assert lines[2]["digest"] != lines[0]["digest"]
    assert [sorted(line) for line in lines[::2]] == [["digest", "event", "level", "time"]] * 2


async def write(server: RunningServer, file: Path, text: str) -> None:
    """Change the policy file and let the server reload it."""
    await asyncio.to_thread(file.write_text, text)
    await server.service.reload()
    await server.service.reload()
