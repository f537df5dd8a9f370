"""Exceptions that have ended: the refusal says so, and a metric has said so before."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from rules.engine.rule_set import PolicyException
from tests.testkit.admission.server import Serve, serving
from webhook.reload.policy import PolicyReloader
from webhook.telemetry.metrics import MAX_EXCEPTIONS, exception_metric

POLICY = """\
apiVersion: gpuward.io/v1
kind: Policy
exceptions:
  - {rules: [zero-gpu], match: {namespace: x}, reason: no end}
  - rules: [visible-devices-env]
    match: {namespace: "*vision"}
    reason: RDMA bring-up
    expires: 2020-01-31
"""
LABELS = {"exception": "2", "rules": "visible-devices-env", "namespaces": "*vision"}
FEBRUARY = datetime.datetime(2020, 2, 1, tzinfo=datetime.UTC).timestamp()


@pytest_asyncio.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Starts servers."""
    async with serving(tmp_path) as start:
        yield start


@pytest.fixture
def policy(tmp_path: Path) -> PolicyReloader:
    """A policy with an exception that has ended, for the namespace of the sample."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    loaded = PolicyReloader(str(file))
    loaded.load()
    return loaded


async def test_the_refusal_and_the_metrics_name_the_end(
    serve: Serve, policy: PolicyReloader
) -> None:
    server = await serve(policy)
    caller = await server.connect()
    message = (await caller.post("/validate/deny")).response["status"]["message"]
    assert "an exception for this ended after 2020-01-31" in message
    text = (await server.probe("/metrics")).body.decode()
    (line,) = (t for t in text.splitlines() if t.startswith("gpuward_exception_expiry_seconds{"))
    assert all(f'{name}="{value}"' in line for name, value in LABELS.items())
    assert float(line.rpartition(" ")[2]) < 0


def test_an_exception_holds_to_the_end_of_its_last_day(policy: PolicyReloader) -> None:
    (sample,) = exception_metric(policy.active.exceptions, FEBRUARY - 60).samples
    assert sample.value == 60
    assert sample.labels == LABELS | {"reason": "RDMA bring-up"}
    assert not policy.active.exceptions[1].has_expired(datetime.date(2020, 1, 31))
    assert policy.active.exceptions[1].has_expired(datetime.date(2020, 2, 1))


def test_many_and_long_exceptions_are_bounded() -> None:
    exceptions = [
        PolicyException(
            rules=("zero-gpu",) * 99,
            reason="x" * 10_000,
            expires=datetime.date(2030, 1, 1) + datetime.timedelta(days=number),
            namespaces=("n",) * 999,
        )
        for number in range(MAX_EXCEPTIONS + 9, 0, -1)
    ]
    samples = exception_metric(exceptions, 0.0).samples
    assert len(samples) == MAX_EXCEPTIONS
    assert samples[0].labels["exception"] == str(len(exceptions))
    assert max(len(value) for s in samples for value in s.labels.values()) <= 128
