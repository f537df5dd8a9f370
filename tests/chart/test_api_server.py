"""The real API server accepts the chart's objects, and stores them as they were sent.

The API server validates with its own schemas. It is the newest supported Kubernetes, and with
`make test-oldest` the oldest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.chart.rendering import CI_VALUES, Manifest, of_kind, pod_specs, render
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import TIMEOUT, eventually

every_values = pytest.mark.parametrize("values", CI_VALUES.values(), ids=list(CI_VALUES))
RESTRICTED = "pod-security.kubernetes.io/enforce"
Submit = Callable[..., list[Manifest]]


def apply(plane: ControlPlane, objects: list[Manifest], *options: str) -> Any:
    """Apply `objects`; the API server must know each of their fields. Returns the JSON output."""
    everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    strict = ("--server-side", "--force-conflicts", "--validate=strict", "--output=json")
    done = plane.kubectl("apply", *strict, *options, "--filename=-", input=everything)
    assert not done.stderr, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def submit(plane: ControlPlane, chart_tools: Programs) -> Submit:
    """Returns a function that renders the chart and returns its objects as dry-run results."""
    for path in chart_tools.crds:
        plane.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={path}")
    # kubectl refuses to wait for an object that has no conditions yet.
    wait = ("wait", "crd", "--all", "--for=condition=Established", TIMEOUT)
    eventually(lambda: plane.kubectl(*wait), what="the kinds are served")

    def submit_objects(*values: Path | str, **options: Any) -> list[Manifest]:
        namespace = plane.namespace()
        objects = render(*values, namespace=namespace, **options)
        # No pod is admitted without its account, not even in a dry run.
        apply(plane, of_kind(objects, "ServiceAccount"))
        stored: list[Manifest] = apply(plane, objects, "--dry-run=server")["items"]
        assert len(stored) == len(objects)
        return stored

    return submit_objects


@every_values
def test_every_object_is_accepted_and_each_of_its_fields_is_known(
    submit: Submit, values: Path
) -> None:
    assert submit(values)


def test_a_field_that_kubernetes_does_not_know_is_found(submit: Submit) -> None:
    with pytest.raises(AssertionError, match="misspelt"):
        submit("affinity: {nodeAffinity: {misspelt: 1}}")


@pytest.mark.parametrize(
    "release", ["long-" * 10 + "abc", "gpus.platform.prod"], ids=["long", "dotted"]
)
@pytest.mark.parametrize("values", ["", "certificates: {mode: certManager}"])
def test_every_object_is_accepted_for_every_release_name(
    submit: Submit, release: str, values: str
) -> None:
    assert submit(values, release=release)


@every_values
def test_the_api_server_adds_no_defaults_to_the_webhook_configurations(
    submit: Submit, values: Path
) -> None:
    stored = submit(values)
    (service,) = {
        entry["clientConfig"]["service"]["namespace"]
        for made in stored
        for entry in made.get("webhooks", [])
    }
    for sent in render(values, namespace=service):
        if "webhooks" in sent:
            (stored_configuration,) = of_kind(stored, sent["kind"])
            assert stored_configuration["webhooks"] == sent["webhooks"]


def pods_of(objects: list[Manifest]) -> list[Manifest]:
    """The pods that the objects would create, with an account that every namespace has."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": component},
            "spec": {**spec, "serviceAccountName": "default"},
        }
        for component, spec in pod_specs(objects).items()
    ]


def refusal_message(plane: ControlPlane, namespace: str, pod: Manifest) -> str:
    """The message of the API server if it refuses the pod; empty if it admits it."""
    answer = plane.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
    return "" if answer.status == 201 else str(answer.body["message"])


@every_values
def test_every_pod_satisfies_the_restricted_pod_security_standard(
    plane: ControlPlane, values: Path
) -> None:
    namespace = plane.namespace({RESTRICTED: "restricted"})
    for pod in pods_of(render(values)):
        if pod["spec"].get("hostNetwork"):
            # The host network violates the standard; nothing else in the pod does.
            assert "host namespaces (hostNetwork=true)" in refusal_message(plane, namespace, pod)
            del pod["spec"]["hostNetwork"]
            for port in pod["spec"]["containers"][0]["ports"]:
                port.pop("hostPort", None)
        assert refusal_message(plane, namespace, pod) == ""


@pytest.mark.parametrize("key", ["podSecurityContext", "securityContext"])
def test_a_weaker_security_context_is_refused(plane: ControlPlane, key: str) -> None:
    fields = {
        "podSecurityContext": "{runAsNonRoot: null, runAsUser: null, seccompProfile: null}",
        "securityContext": "{capabilities: null}",
    }
    namespace = plane.namespace({RESTRICTED: "restricted"})
    for pod in pods_of(render(f"{key}: {fields[key]}")):
        assert "violates PodSecurity" in refusal_message(plane, namespace, pod)
