"""The real API server takes what the chart makes, and keeps it as it was sent.

The schemas that decide are those inside the API server: it is the newest supported Kubernetes,
and with `make test-oldest` the oldest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.chart.rendering import CI_VALUES, Manifest, of_kind, pod_specs, rendered
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.plane import ControlPlane

every_values = pytest.mark.parametrize("values", CI_VALUES.values(), ids=list(CI_VALUES))
RESTRICTED = "pod-security.kubernetes.io/enforce"
Submit = Callable[..., list[Manifest]]


def apply(plane: ControlPlane, objects: list[Manifest], *options: str) -> Any:
    """What kubectl says to `objects`, whose fields the API server must know one and all."""
    everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    strict = ("--server-side", "--force-conflicts", "--validate=strict", "--output=json")
    done = plane.kubectl("apply", *strict, *options, "--filename=-", input=everything)
    assert not done.stderr, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def submit(plane: ControlPlane, chart_tools: Programs) -> Submit:
    """A dry run of what the chart makes with some values: as the API server would store it."""
    for path in chart_tools.crds:
        plane.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={path}")
    plane.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=60s")

    def submitted(*values: Path | str, **where: Any) -> list[Manifest]:
        namespace = plane.namespace()
        objects = rendered(*values, namespace=namespace, **where)
        # Without its account no pod is admitted, not even for a try.
        apply(plane, of_kind(objects, "ServiceAccount"))
        stored: list[Manifest] = apply(plane, objects, "--dry-run=server")["items"]
        assert len(stored) == len(objects)
        return stored

    return submitted


@every_values
def test_every_object_is_accepted_and_each_of_its_fields_is_known(
    submit: Submit, values: Path
) -> None:
    assert submit(values)


def test_a_field_that_kubernetes_does_not_know_would_be_noticed(submit: Submit) -> None:
    with pytest.raises(AssertionError, match="misspelt"):
        submit("affinity: {nodeAffinity: {misspelt: 1}}")


@pytest.mark.parametrize(
    "release", ["long-" * 10 + "abc", "gpus.platform.prod"], ids=["long", "dotted"]
)
@pytest.mark.parametrize("values", ["", "certificates: {mode: certManager}"])
def test_every_object_is_accepted_whatever_the_release_is_called(
    submit: Submit, release: str, values: str
) -> None:
    assert submit(values, release=release)


@every_values
def test_the_api_server_fills_nothing_into_the_webhook_configurations(
    submit: Submit, values: Path
) -> None:
    stored = submit(values)
    (service,) = {
        entry["clientConfig"]["service"]["namespace"]
        for made in stored
        for entry in made.get("webhooks", [])
    }
    for sent in rendered(values, namespace=service):
        if "webhooks" in sent:
            (kept,) = of_kind(stored, sent["kind"])
            assert kept["webhooks"] == sent["webhooks"]


def pods_of(objects: list[Manifest]) -> list[Manifest]:
    """The pods that the objects would make, under an account that every namespace has."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": component},
            "spec": {**spec, "serviceAccountName": "default"},
        }
        for component, spec in pod_specs(objects).items()
    ]


def refused(plane: ControlPlane, namespace: str, pod: Manifest) -> str:
    """Why the pod is refused in a namespace; empty if it is not."""
    answer = plane.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
    return "" if answer.status == 201 else str(answer.body["message"])


@every_values
def test_every_pod_is_admitted_where_pods_are_most_restricted(
    plane: ControlPlane, values: Path
) -> None:
    namespace = plane.namespace({RESTRICTED: "restricted"})
    for pod in pods_of(rendered(values)):
        if pod["spec"].get("hostNetwork"):
            # Whoever chooses the nodes' network leaves that standard, and only by that.
            assert "host namespaces (hostNetwork=true)" in refused(plane, namespace, pod)
            del pod["spec"]["hostNetwork"]
            for port in pod["spec"]["containers"][0]["ports"]:
                port.pop("hostPort", None)
        assert refused(plane, namespace, pod) == ""


@pytest.mark.parametrize("key", ["podSecurityContext", "securityContext"])
def test_less_than_that_would_be_noticed(plane: ControlPlane, key: str) -> None:
    fields = {
        "podSecurityContext": "{runAsNonRoot: null, runAsUser: null, seccompProfile: null}",
        "securityContext": "{capabilities: null}",
    }
    namespace = plane.namespace({RESTRICTED: "restricted"})
    for pod in pods_of(rendered(f"{key}: {fields[key]}")):
        assert "violates PodSecurity" in refused(plane, namespace, pod)
