"""Pods that would wait for ever or be refused, and run once gpuward has fixed them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from rules.finding import Action
from tests.testkit.admission.registered_webhook import by_url, is_enforced, registered
from tests.testkit.admission.reviews import container, gpus, pod, variable
from tests.testkit.admission.server_process import Server, folder_of
from tests.testkit.container_runtime.node import ALL
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import Processes, eventually
from tests.testkit.control_plane.quotas import await_quotas
from tests.testkit.real_node.node import RESOURCE, SHOW_DEVICES, RealNode
from tests.testkit.real_node.pods import create_pod, devices, waiting_pod
from webhook.registration import MODE_LABEL, RegistrationOptions

GPU_POD = pod(container(**gpus(limits=1)))
SHARE = "nvidia.com/gpumem"
SCHEDULER = "sharing-scheduler"
POLICY = f"""\
profiles:
  - name: sharing
    extends: [hami]
    schedulers:
      - {{name: {SCHEDULER}, resources: [{RESOURCE}, {SHARE}], required: true}}
"""
TAINT = {"key": RESOURCE, "value": "present", "effect": "NoSchedule"}


@pytest.fixture
def namespaces(real_node: RealNode, server: Server) -> Iterator[tuple[str, str]]:
    """A namespace that gpuward does not evaluate, and one in mode `deny`."""
    assert server.url
    plane = real_node.plane
    names = plane.namespace(), plane.namespace({MODE_LABEL: "deny"})
    yield names
    for name in names:
        real_node.remove_pods(name)


@pytest.fixture
def tainted(real_node: RealNode) -> Iterator[None]:
    """The node has the taint of GPU nodes."""
    real_node.change({"spec": {"taints": [TAINT]}})
    yield
    real_node.change({"spec": {"taints": []}})


def refusal(plane: Cluster, namespace: str, name: str, manifest: dict[str, Any]) -> Response:
    """The answer to a pod that is not admitted."""
    answered = create_pod(plane, namespace, {**manifest, "metadata": {"name": name}})
    assert answered.status != HTTPStatus.CREATED
    return answered


@pytest.mark.usefixtures("tainted")
def test_a_pod_without_a_toleration_waits_for_ever_and_runs_once_it_has_one(
    real_node: RealNode, namespaces: tuple[str, str]
) -> None:
    without, deny = namespaces
    lacking = {**GPU_POD, "metadata": {"name": "waits"}}
    assert create_pod(real_node.plane, without, lacking).status == HTTPStatus.CREATED
    real_node.wait_for_event(without, "waits", "had untolerated taint")
    waiting_pod(real_node, deny, "runs", GPU_POD)
    assert len(devices(real_node, deny, "runs").gpus) == 1


@pytest.fixture
def sharing(
    real_node: RealNode, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[str, str]]:
    """Two namespaces on a node with a scheduler of shares, the second with gpuward for it.

    As HAMi's, it alone places what no node has in its status. This is the scheduler of Kubernetes
    under another name, which does not look for the resource.
    """
    plane = real_node.plane
    user = plane.authority.issue(SCHEDULER, common_name="system:kube-scheduler")
    arguments = {"name": "NodeResourcesFit", "args": {"ignoredResources": [SHARE]}}
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(plane.kubeconfig_with(user))},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": SCHEDULER, "pluginConfig": [arguments]}],
    }
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps(configuration), encoding="utf-8")
    processes = Processes(tmp_path)
    request.addfinalizer(processes.stop)  # noqa: PT021  the processes end last
    scheduler = [str(plane.programs["kube-scheduler"]), f"--config={file}", "--secure-port=0"]
    processes.start(SCHEDULER, scheduler, {})
    pair = folder_of(plane.authority.issue("sharing", hosts=["127.0.0.1"]), tmp_path / "pair")
    serving = Server(processes, tmp_path, pair, POLICY, arguments=("--drain-seconds", "0"))
    names = plane.namespace(), plane.namespace()
    options = RegistrationOptions(default=Action.DENY, timeout_seconds=30)
    config = by_url(serving.url, plane.authority.bundle)
    with registered(plane, config, options, name="sharing", only=names[1]):
        eventually(lambda: is_enforced(plane, names[1]), what="the webhook is called")
        yield names
        for name in names:
            real_node.remove_pods(name)


def test_a_pod_without_its_scheduler_waits_for_ever_and_runs_once_it_names_it(
    real_node: RealNode, sharing: tuple[str, str]
) -> None:
    without, deny = sharing
    share = pod(container(resources={"limits": {RESOURCE: "1", SHARE: "3000"}}))
    lacking = {**share, "metadata": {"name": "waits"}}
    assert create_pod(real_node.plane, without, lacking).status == HTTPStatus.CREATED
    real_node.wait_for_event(without, "waits", f"Insufficient {SHARE}")
    running = waiting_pod(real_node, deny, "runs", share)
    assert running["spec"]["schedulerName"] == SCHEDULER
    assert len(devices(real_node, deny, "runs").gpus) == 1


def test_a_request_without_a_limit_is_refused_and_gets_a_card_once_it_has_one(
    real_node: RealNode, namespaces: tuple[str, str]
) -> None:
    without, deny = namespaces
    requests = pod(container(resources={"requests": {RESOURCE: 1}}, image=SHOW_DEVICES))
    answered = refusal(real_node.plane, without, "p", requests)
    assert "Limit must be set for non overcommitable resources" in answered.body["message"]
    waiting_pod(real_node, deny, "p", requests)
    assert len(devices(real_node, deny, "p").gpus) == 1


def test_half_a_gpu_is_refused_by_the_api_server_itself(
    real_node: RealNode, namespaces: tuple[str, str]
) -> None:
    half = pod(container(resources={"limits": {RESOURCE: "500m"}}))
    answered = refusal(real_node.plane, namespaces[0], "p", half)
    assert "must be an integer" in answered.body["message"]


def test_a_quota_counts_requests_and_no_variables(
    real_node: RealNode, namespaces: tuple[str, str]
) -> None:
    """So a quota of one card is no bound without gpuward."""
    without, deny = namespaces
    for namespace in namespaces:
        quota = {"metadata": {"name": "one"}, "spec": {"hard": {f"requests.{RESOURCE}": "1"}}}
        real_node.plane.create(f"/api/v1/namespaces/{namespace}/resourcequotas", quota)
        await_quotas(real_node.plane, namespace)
    waiting_pod(real_node, without, "counted", GPU_POD)
    answered = refusal(real_node.plane, without, "second", GPU_POD)
    assert "exceeded quota: one" in answered.body["message"]
    waiting_pod(real_node, without, "uncounted", pod(container(**variable("all"))))
    assert devices(real_node, without, "uncounted").gpus == ALL
    answered = refusal(real_node.plane, deny, "uncounted", pod(container(**variable("all"))))
    assert "gpuward [visible-devices-env]" in answered.body["message"]


def test_a_limit_range_can_give_every_container_a_card(
    real_node: RealNode, namespaces: tuple[str, str]
) -> None:
    """The API server adds its default before webhooks are asked: gpuward sees a request."""
    for namespace in namespaces:
        limits = [{"type": "Container", "default": {RESOURCE: "1"}}]
        body = {"metadata": {"name": "gpus"}, "spec": {"limits": limits}}
        real_node.plane.create(f"/api/v1/namespaces/{namespace}/limitranges", body)
        waiting_pod(real_node, namespace, "plain", pod(container()))
        assert len(devices(real_node, namespace, "plain").gpus) == 1


def test_hidden_gpus_stay_hidden_and_requested_ones_do_not(
    real_node: RealNode, namespaces: tuple[str, str]
) -> None:
    """`void` beside a request takes the card away; gpuward removes it."""
    without, deny = namespaces
    void = pod(container(**variable("void"), **gpus(limits=1)))
    waiting_pod(real_node, without, "void", void)
    assert not devices(real_node, without, "void").gpus
    waiting_pod(real_node, deny, "void", void)
    assert len(devices(real_node, deny, "void").gpus) == 1
