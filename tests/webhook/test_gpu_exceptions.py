"""The webhook applies the GpuExceptions in its file, as far as its policy allows them."""

from __future__ import annotations

import datetime
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from policies.controller_files import MAX_EXCEPTIONS_BYTES, ExceptionsFile, format_exceptions
from policies.gpu_exceptions import APPROVAL_LABEL, MAX_ACCEPTED, MAX_SPEC_CHARACTERS
from tests.testkit.admission.reviews import container, pod, review_body, variable
from tests.testkit.admission.server import PATIENT, RunningServer, Serve, serving
from webhook.reload.exceptions_and_inventory import STALE_SECONDS, GpuExceptionsFile
from webhook.reload.policy import PolicyReloader

RULE = "visible-devices-env"
POLICY = f"""\
apiVersion: gpuward.io/v1
kind: Policy
contact: "#gpu-help"
gpuExceptions:
  - {{rules: [{RULE}], namespaces: "team-*", longestDays: 30, approval: none}}
"""
WITHOUT_GPU_EXCEPTIONS = POLICY.partition("gpuExceptions")[0]
NOW = datetime.datetime.now(tz=datetime.UTC)
TODAY = NOW.date()
BYPASS = container("main", **variable("all"))


def gpu_exception(
    namespace: str = "team-vision", days: int = 7, **match: list[str]
) -> dict[str, Any]:
    spec: dict[str, Any] = {"rules": [RULE], "reason": "x", "expires": str(day(days))}
    if match:
        spec["match"] = match
    metadata = {"namespace": namespace, "name": "x", "creationTimestamp": NOW.isoformat()}
    return {"metadata": metadata, "spec": spec}


def day(days: int) -> datetime.date:
    return TODAY + datetime.timedelta(days=days)


class Mounted:
    """A policy and a file with GpuExceptions in a folder, and a webhook that reads both."""

    def __init__(self, folder: Path) -> None:
        self.policy_file, self.file = folder / "policy.yaml", folder / "exceptions.json"
        self.policy_file.write_text(POLICY)
        self.now = NOW.timestamp()
        self.gpu_exceptions = GpuExceptionsFile(str(self.file), clock=lambda: self.now)
        self.policy = PolicyReloader(str(self.policy_file), gpu_exceptions=self.gpu_exceptions)
        self.policy.load()

    def write(self, *objects: dict[str, Any], checked: datetime.datetime = NOW) -> None:
        """Replace the file, and reload."""
        self.file.write_text(format_exceptions(ExceptionsFile(checked, objects)))
        self.policy.reload()

    def write_policy(self, text: str) -> None:
        """Replace the policy, and reload until it is used."""
        self.policy_file.write_text(text)
        assert [self.policy.reload(), self.policy.reload()] == ["", "loaded"]

    @property
    def namespaces(self) -> list[str]:
        """The namespaces of the exceptions that apply."""
        found = self.policy.active.decider.policy.exceptions
        return [name for exception in found for name in exception.namespaces]


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path)


@pytest_asyncio.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Starts servers."""
    async with serving(tmp_path) as start:
        yield start


def test_only_what_the_policy_allows_applies(mounted: Mounted) -> None:
    """A user who may write the file gains nothing beyond that."""
    mounted.write(
        gpu_exception("kube-system"),
        gpu_exception("team-*"),
        gpu_exception("team-late", days=31),
        gpu_exception("team-vision"),
    )
    assert mounted.namespaces == ["team-vision"]
    mounted.write_policy(WITHOUT_GPU_EXCEPTIONS)
    assert mounted.namespaces == []
    mounted.write_policy(POLICY)
    assert mounted.namespaces == ["team-vision"]
    mounted.write()
    assert mounted.namespaces == []


def test_a_new_decider_is_made_only_for_other_objects(mounted: Mounted) -> None:
    mounted.write(gpu_exception())
    before = mounted.policy.active
    mounted.write(gpu_exception(), checked=NOW + datetime.timedelta(minutes=10))
    assert mounted.policy.active is before
    mounted.write(gpu_exception("team-speech"))
    assert mounted.policy.active.decider is not before.decider
    assert mounted.policy.active.since == before.since
    assert mounted.policy.loads == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no such file"),
        (b"", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "checkedAt is no time"),
        (b'{"checkedAt": "2030-01-01"}', "no time zone"),
        (b'{"checkedAt": "2020-01-01T00:00:00Z"}', "checked at 2020-01-01 00:00 UTC, which is too"),
        (b'{"checkedAt": "2999-01-01T00:00:00Z"}', "too long ago"),
        (b" " * (MAX_EXCEPTIONS_BYTES + 1), "more than 1,048,576 bytes"),
    ],
)
def test_without_a_usable_file_there_are_no_such_exceptions_but_a_policy(
    mounted: Mounted, content: bytes | None, says: str
) -> None:
    mounted.write(gpu_exception())
    assert mounted.namespaces
    if content is None:
        mounted.file.unlink()
    else:
        mounted.file.write_bytes(content)
    mounted.policy.reload()
    assert mounted.namespaces == []
    assert says in mounted.gpu_exceptions.error
    assert mounted.policy.last_error == ""
    mounted.write(gpu_exception())
    assert mounted.namespaces == ["team-vision"]
    assert mounted.gpu_exceptions.error == ""


def test_a_file_that_nobody_checks_any_more_is_not_used(mounted: Mounted) -> None:
    mounted.write(gpu_exception())
    assert mounted.gpu_exceptions.is_valid
    mounted.now += STALE_SECONDS - 1
    mounted.policy.reload()
    assert mounted.namespaces
    assert not mounted.gpu_exceptions.is_valid, "the metric says so before"
    mounted.now += 2
    mounted.policy.reload()
    assert mounted.namespaces == []
    assert "too long ago" in mounted.gpu_exceptions.error


def test_a_bug_leaves_the_policy_in_use(mounted: Mounted, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("webhook.reload.exceptions_and_inventory.acceptances", fail)
    mounted.write(gpu_exception())
    assert mounted.namespaces == []
    assert "please report it: KeyError" in mounted.gpu_exceptions.error


def test_the_largest_accepted_objects_fit_into_a_config_map() -> None:
    made = gpu_exception("n" * 63)
    made["metadata"] |= {"name": "x" * 253, "labels": {APPROVAL_LABEL: "x" * 40}}
    made["spec"]["reason"] = ""
    made["spec"]["reason"] = "x" * (MAX_SPEC_CHARACTERS - len(json.dumps(made["spec"])))
    text = format_exceptions(ExceptionsFile(NOW, (made,) * MAX_ACCEPTED))
    assert len(text.encode()) < MAX_EXCEPTIONS_BYTES


def test_a_file_with_more_objects_than_the_controller_writes_is_not_used(mounted: Mounted) -> None:
    mounted.write(*[gpu_exception()] * (MAX_ACCEPTED + 1))
    assert mounted.namespaces == []
    assert "the controller writes at most 400" in mounted.gpu_exceptions.error


async def post(server: RunningServer, size: int = 0, name: str = "x") -> bool:
    """Return whether the webhook allows a pod that takes GPUs.

    A large one is for the second process.
    """
    manifest = pod(BYPASS, container("other", command=["x" * size]))
    manifest["metadata"]["name"] = name
    body = json.dumps(review_body(manifest), separators=(",", ":")).encode()
    caller = await server.connect()
    allowed: bool = (await caller.post(PATIENT, body)).response["allowed"]
    return allowed


async def test_a_refused_pod_is_allowed_until_the_object_is_gone(
    mounted: Mounted, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "webhook.evaluator.evaluator.MAX_EVALUATION_SECONDS", 60.0
    )  # on a busy machine
    mounted.write()
    server = await serve(mounted.policy)
    for size in (0, 70_000):
        assert not await post(server, size)
        mounted.write(gpu_exception())
        assert await post(server, size)
        mounted.write()
        assert not await post(server, size)
    mounted.write(gpu_exception(days=-1))
    caller = await server.connect()
    body = json.dumps(review_body(pod(BYPASS)), separators=(",", ":")).encode()
    message = (await caller.post("/validate/deny", body)).response["status"]["message"]
    assert f"an exception for this ended after {day(-1)}" in message


async def test_an_exception_for_names_fits_only_these(mounted: Mounted, serve: Serve) -> None:
    """Decisions are kept for replicas, but not where an exception names pods."""
    mounted.write(gpu_exception(name=["debug-*"]))
    server = await serve(mounted.policy)
    for name, allowed in (("debug-1", True), ("other", False), ("debug-2", True)):
        assert await post(server, name=name) is allowed
    decider = mounted.policy.active.decider
    assert decider.depends_on_names("team-vision")
    assert not decider.depends_on_names("team-speech")


async def test_metrics_and_log_say_whether_the_file_is_used(mounted: Mounted, serve: Serve) -> None:
    server = await serve(mounted.policy)
    await server.service.reload()
    samples = await server.metrics()
    assert (samples("gpu_exceptions"), samples("gpu_exceptions_valid")) == (0, 0)
    mounted.write(gpu_exception())
    await server.service.reload()
    samples = await server.metrics()
    assert (samples("gpu_exceptions"), samples("gpu_exceptions_valid")) == (1, 1)
    await server.service.reload()
    lines = [line for line in server.logged() if "GpuExceptions" in line["event"]]
    assert [line["event"] for line in lines] == ["GpuExceptions not used", "GpuExceptions loaded"]
    assert lines[0]["error"] == "no such file or directory"
    assert lines[1]["exceptions"] == 1
