"""The manual's commands that find what was admitted during an outage, on a real API server."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.testkit.admission.registered_webhook import by_url, create, registered
from tests.testkit.admission.reviews import container, pod, variable
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.documented_recipes import recipe, run_recipe
from tests.testkit.end_to_end.steps import DENY
from tests.testkit.paths import DOCS

PAGE = "monitoring.md"
NOBODY = "https://127.0.0.1:1"


@pytest.fixture
def outage(plane: ControlPlane) -> str:
    """A namespace in which a pod was created while no server answered as gpuward."""
    namespace = plane.namespace()
    config = by_url(NOBODY, plane.authority.bundle)
    manifest = pod(container(**variable("all")))
    with registered(plane, config, DENY, name=f"outage-{namespace}", only=namespace):
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


def test_the_audit_log_names_the_requests(plane: ControlPlane, outage: str, tmp_path: Path) -> None:
    def found() -> list[list[str]]:
        events = "\n".join(json.dumps(event) for event in plane.audit_events())
        (tmp_path / "audit.log").write_text(events, encoding="utf-8")
        output = run_recipe(recipe(PAGE, "failed-open"), tmp_path)
        lines = [line.split("\t") for line in output.splitlines()]
        return [fields for fields in lines if fields[3] == outage]

    lines = eventually(found, what="the audit log has the request")
    for _, *fields, user in lines:
        assert fields == ["create", "pods", outage, "trainer"]
        assert user
