"""Pods made so that the call about them fails, because a failed call passes under Ignore."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from registration.configurations import MODE_LABEL
from tests.testkit.admission.registered_webhook import Server, create
from tests.testkit.admission.reviews import container, gpus, pod, variable
from tests.testkit.control_plane.client import Answer
from tests.testkit.control_plane.plane import ControlPlane

GRANT = container("taker", **variable("all"))
# An API server writes each of these as six characters into a review.
ESCAPED = "<" * 1_300_000


@pytest.fixture
def judged(plane: ControlPlane, server: Server) -> str:
    """A namespace in mode deny."""
    assert server.url
    return plane.namespace({MODE_LABEL: "deny"})


def deep_fields(depth: int) -> bytes:
    """`managedFields` of so many levels, as JSON text."""
    fields = b'{"f:a":' * depth + b"{}" + b"}" * depth
    about = b'"operation": "Update", "apiVersion": "v1", "time": "2024-01-01T00:00:00Z"'
    return (
        b'[{"manager": "me", '
        + about
        + b', "fieldsType": "FieldsV1", "fieldsV1": '
        + fields
        + b"}]"
    )


def with_deep_fields(manifest: dict[str, Any], depth: int) -> bytes:
    """`manifest` as JSON text, with such `managedFields`."""
    marked = copy.deepcopy(manifest)
    marked["metadata"]["managedFields"] = "HERE"
    return json.dumps(marked).encode().replace(b'"HERE"', deep_fields(depth))


def is_ours(answer: Answer) -> bool:
    return answer.status == 403 and "gpuward" in str(answer.body)


@pytest.mark.parametrize("depth", [900, 1_100, 5_000, 9_000])
def test_deep_managed_fields_hide_nothing(plane: ControlPlane, judged: str, depth: int) -> None:
    path = f"/api/v1/namespaces/{judged}/pods"
    taker = {**pod(GRANT), "metadata": {"name": "taker"}}
    assert is_ours(plane.request("POST", path, with_deep_fields(taker, depth)))
    harmless = {**pod(container()), "metadata": {"name": f"deep-{depth}"}}
    assert plane.request("POST", path, with_deep_fields(harmless, depth)).status == 201
    labelled = {"metadata": {"labels": {"a": "b"}}}
    where = f"{path}/deep-{depth}"
    content_type = "application/merge-patch+json"
    assert plane.request("PATCH", where, labelled, content_type=content_type).status == 200
    added = {"spec": {"ephemeralContainers": [GRANT]}}
    content_type = "application/strategic-merge-patch+json"
    where = f"{where}/ephemeralcontainers"
    assert is_ours(plane.request("PATCH", where, added, content_type=content_type))


def test_a_status_that_the_api_server_forgets_keeps_no_fix_away(
    plane: ControlPlane, judged: str
) -> None:
    cuda = container("cuda", image="nvcr.io/nvidia/pytorch:24.01-py3")
    conditions = [{"type": f"example.com/c{n}", "status": "True"} for n in range(14_000)]
    for status in ({"conditions": conditions}, {"message": ESCAPED * 2}):
        new = {**pod(cuda, container("holder", **gpus(limits=1))), "status": status}
        made = create(plane, judged, new, dry_run=True)
        assert made.status == 201
        assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in made.body["spec"][
            "containers"
        ][0]["env"]


def test_a_body_of_many_escapes_hides_nothing(plane: ControlPlane, judged: str) -> None:
    padded = container(env=[{"name": "PADDING", "value": ESCAPED}])
    assert is_ours(create(plane, judged, pod(padded, GRANT), dry_run=True))
    harmless = {**pod(padded), "metadata": {"name": "padded"}}
    assert create(plane, judged, harmless).status == 201
    path = f"/api/v1/namespaces/{judged}/pods/padded/ephemeralcontainers"
    added = {"spec": {"ephemeralContainers": [GRANT]}}
    content_type = "application/strategic-merge-patch+json"
    assert is_ours(plane.request("PATCH", path, added, content_type=content_type))
