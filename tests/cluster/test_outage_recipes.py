"""The manual's commands that find what was admitted during an outage, on a real API server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from registration.configurations import RegistrationOptions
from rules.finding import Action
from tests.testkit.admission.registered_webhook import by_url, create, registered
from tests.testkit.admission.reviews import container, pod, variable
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.documented_recipes import jq_command, run_jq
from tests.testkit.paths import DOCS, ROOT

PAGE = "monitoring.md"
TIME = "%Y-%m-%dT%H:%M:%SZ"
NOBODY = "https://127.0.0.1:1"
OPTIONS = RegistrationOptions(default=Action.DENY)


@pytest.fixture
def outage(plane: ControlPlane) -> str:
    """A namespace in which a pod was created while nobody answered as gpuward."""
    namespace = plane.namespace()
    config = by_url(NOBODY, plane.authority.bundle)
    manifest = pod(container(**variable("all")))
    with registered(plane, config, OPTIONS, name=f"outage-{namespace}", only=namespace):
        before = failed_open(plane)

        def is_registered() -> bool:
            create(plane, namespace, manifest, dry_run=True)
            return failed_open(plane) > before

        eventually(is_registered, what="the API server admits a pod without an answer")
        assert create(plane, namespace, manifest).status == 201
    return namespace


def failed_open(plane: ControlPlane) -> float:
    """The metric that the manual names, summed over the webhooks of gpuward."""
    manual = (DOCS / PAGE).read_text(encoding="utf-8")
    [(metric, pattern)] = re.findall(r'increase\((\w+)\{name=~"(.*?)"\}\[1h\]\)', manual)
    samples = re.findall(
        rf'^{metric}\{{name="(.*?)",.*\}} (\d+)$',
        str(plane.request("GET", "/metrics").body),
        re.MULTILINE,
    )
    return sum(float(value) for name, value in samples if re.fullmatch(pattern, name))


def test_the_audit_log_names_the_requests(plane: ControlPlane, outage: str) -> None:
    command = jq_command(PAGE, "failed-open")

    def found() -> list[list[str]]:
        text = "\n".join(json.dumps(event) for event in plane.audit_events())
        lines = [line.split("\t") for line in run_jq(command, text).splitlines()]
        return [fields for fields in lines if fields[3] == outage]

    lines = eventually(found, what="the audit log has the request")
    for _, *fields, user in lines:
        assert fields == ["create", "pods", outage, "trainer"]
        assert user


def test_the_pods_of_that_time_are_listed_and_linted(plane: ControlPlane, outage: str) -> None:
    now = datetime.now(UTC)
    listed = plane.kubectl("get", "pods", "-n", outage, "-o", "json").stdout
    for since, expected in ((timedelta(minutes=10), True), (timedelta(minutes=-10), False)):
        names, items = (
            run_jq(with_times(command, now - since, now + timedelta(hours=1)), listed)
            for command in (jq_command(PAGE, ".items[].metadata"), jq_command(PAGE, ".items |="))
        )
        assert (f"\t{outage}\ttrainer\n" in names) == expected
        linted = subprocess.run(
            [sys.executable, "-m", "gpuward", "lint", "-"],
            input=items,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
        assert ("visible-devices-env" in linted.stdout) == expected


def with_times(command: list[str], first: datetime, last: datetime) -> list[str]:
    """The command with other times than those of the manual's example."""
    times = iter((first, last))
    return [
        next(times).strftime(TIME) if re.fullmatch(r"\d{4}-.*Z", word) else word for word in command
    ]
