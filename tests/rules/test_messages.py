"""The advice of messages is possible for the container that they are about."""

from __future__ import annotations

from typing import Any

from tests.testkit.cases import Case, cases
from tests.testkit.for_every_case import for_every_case

IMPOSSIBLE = "resources.limits"
PODS = [case for case in cases() if case.manifest.get("kind") == "Pod"]


def with_ephemeral_containers(manifest: Any) -> Any:
    """The pod with a copy of each of its containers as an ephemeral one, without resources."""
    spec = manifest["spec"]
    listed = [c for field in ("initContainers", "containers") for c in spec.get(field) or []]
    copies = [{**c, "name": f"debug-{i}"} for i, c in enumerate(listed) if isinstance(c, dict)]
    for copy in copies:
        copy.pop("resources", None)
    return {**manifest, "spec": {**spec, "ephemeralContainers": copies}}


@for_every_case(PODS)
def test_an_ephemeral_container_is_not_told_to_request_a_gpu(case: Case) -> None:
    manifest = with_ephemeral_containers(case.manifest)
    result = case.check(manifest, case.rules)
    found = [f for f in result.findings if f.container and f.container.role == "ephemeral"]
    assert [f.help for f in found if IMPOSSIBLE in f.help] == []
