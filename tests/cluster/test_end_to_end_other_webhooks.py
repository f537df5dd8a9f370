"""gpuward with another mutating webhook and with quotas, at a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from rules.finding import Action
from tests.testkit.admission.registered_webhook import by_url, create, registered
from tests.testkit.admission.reviews import container, gpus, pod, variable
from tests.testkit.admission.server_process import Server
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.control_plane.quotas import await_quotas
from tests.testkit.end_to_end.sidecar_injector import NAME, SIDECAR, configuration, run_injector
from tests.testkit.end_to_end.steps import apply, audit_annotations, get_object
from tests.testkit.match_conditions.chart_condition import chart_condition
from webhook.registration import MODE_LABEL, RegistrationOptions

pytest_plugins = ["tests.testkit.end_to_end.fixtures"]
pytestmark = pytest.mark.usefixtures("clean_up_pods")

MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
VOID = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}


def test_a_sidecar_that_is_injected_after_gpuward_is_fixed_once(
    plane: ControlPlane, server: Server
) -> None:
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "deny"})
    pair = plane.authority.issue("injector", hosts=["127.0.0.1"])
    manifest = pod(container(**gpus(requests=1), **variable("all")))

    def is_injected() -> bool:
        plain = create(plane, namespace, pod(container()), dry_run=True)
        return len(plain.body["spec"]["containers"]) == 2

    with run_injector(pair) as url:
        plane.create(MUTATING, configuration(namespace, url, plane.authority.bundle))
        try:
            eventually(is_injected, what="the other webhook is called")
            answer = create(plane, namespace, manifest)
        finally:
            plane.request("DELETE", f"{MUTATING}/{NAME}")
    assert answer.status == 201
    main, sidecar = answer.body["spec"]["containers"]
    assert sidecar["image"] == SIDECAR["image"]
    assert sidecar["env"] == [VOID]
    assert "env" not in main
    assert main["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert len(answer.body["spec"]["tolerations"]) == len(
        {str(toleration) for toleration in answer.body["spec"]["tolerations"]}
    )
    names = answer.body["metadata"]["annotations"]["gpuward.io/fixed"].split(",")
    assert len(names) == len(set(names))
    both_rounds = {"request-only", "visible-devices-env", "toleration-default", "image-default-all"}
    assert both_rounds <= set(names)
    annotations = audit_annotations(plane, namespace, "trainer")
    assert annotations == {f"pods.deny.gpuward.io/{name}": "fixed" for name in names}
    assert not [
        line for line in plane.log("kube-apiserver").splitlines() if is_dropped_annotation(line)
    ]


def test_a_sidecar_in_a_pod_that_gpuward_was_not_sent_is_refused(
    plane: ControlPlane, server: Server
) -> None:
    # The API server calls a webhook again only if it called it in the first round.
    namespace = plane.namespace()
    pair = plane.authority.issue("injector", hosts=["127.0.0.1"])
    client_config = by_url(server.url, plane.authority.bundle)
    options = RegistrationOptions(Action.DENY, timeout_seconds=30)
    plain = pod(container())

    def refused() -> bool:
        answer = create(plane, namespace, plain, dry_run=True)
        return answer.status == 403 and "[image-default-all]" in answer.body["message"]

    with (
        run_injector(pair) as url,
        registered(
            plane,
            client_config,
            options,
            name="gpuward-conditions",
            only=namespace,
            condition=chart_condition(),
        ),
    ):
        plane.create(MUTATING, configuration(namespace, url, plane.authority.bundle))
        try:
            eventually(refused, what="both webhooks are called")
            message = create(plane, namespace, plain).body["message"]
        finally:
            plane.request("DELETE", f"{MUTATING}/{NAME}")
    assert 'container "sidecar"' in message
    assert "another webhook changed the pod" in message


def is_dropped_annotation(line: str) -> bool:
    """Return whether the API server logs that it dropped an audit annotation."""
    return "Failed to set" in line and "annotation" in line


def quota(key: str, amount: str) -> dict[str, Any]:
    """A ResourceQuota with one key."""
    manifest = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"}}
    return {**manifest, "spec": {"hard": {key: amount}}}


def test_a_quota_without_effect_is_warned_about(plane: ControlPlane, server: Server) -> None:
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "deny"})
    inert = quota("limits.nvidia.com/gpu", "1")
    done = apply(plane, namespace, inert)
    assert done.stdout == "resourcequota/gpus created\n"
    [message] = done.stderr.splitlines()
    assert message.startswith("Warning: gpuward [quota-inert-key] ")
    assert "requests.nvidia.com/gpu" in message
    assert get_object(plane, "ResourceQuota", namespace, "gpus")["spec"] == inert["spec"]
    await_quotas(plane, namespace)
    # The warning is right: a pod with four GPUs passes a quota of one.
    assert create(plane, namespace, pod(container(**gpus(limits=4)))).status == 201


def test_a_quota_with_effect_is_not_warned_about_and_limits_pods(
    plane: ControlPlane, server: Server
) -> None:
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "deny"})
    counting = quota("requests.nvidia.com/gpu", "1")
    assert apply(plane, namespace, counting).stderr == ""
    await_quotas(plane, namespace)
    refused = create(plane, namespace, pod(container(**gpus(requests=4))))
    assert refused.status == 403
    assert "exceeded quota: gpus" in refused.body["message"]


def test_a_quota_of_half_a_gpu_is_warned_about_and_admits_none(
    plane: ControlPlane, server: Server
) -> None:
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "deny"})
    done = apply(plane, namespace, quota("requests.nvidia.com/gpu", "0.5"))
    [message] = done.stderr.splitlines()
    assert message.startswith("Warning: gpuward [quota-fraction] ")
    # The API server accepts it: names with the prefix `requests.` are no extended resources to it.
    assert "which the API server refuses" not in message
    await_quotas(plane, namespace)
    refused = create(plane, namespace, pod(container(**gpus(limits=1))))
    assert refused.status == 403
    assert "limited: requests.nvidia.com/gpu=500m" in refused.body["message"]
