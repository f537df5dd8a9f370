"""The guard of node labels, as the real API server applies it to updates like a kubelet's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.testkit.chart.rendering import HELMS, Manifest, of_kind, render, render_error
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.control_plane.rights import await_rights
from tests.testkit.paths import ROOT

KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
GUIDE = ROOT / "docs" / "node-guard.md"
MODE = "ack.node.gpu.schedule"
NODES = "/api/v1/nodes"
VALUES = """
nodeGuard:
  enabled: true
  users: [pool-manager]
  groups: [node-admins]
  serviceAccounts: [kube-system/pools]
"""
LISTED = ("pool-manager", "system:serviceaccount:kube-system:pools")
TENANT = "tenant-admin"
KUBELET = "system:node:guarded"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
# In the control plane of the tests nothing else gives kubelets their rights.
BINDING: dict[str, Any] = {
    "metadata": {"name": "node-guard-test"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "cluster-admin",
    },
    "subjects": [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name}
        for name in ("node-admins", "system:nodes")
    ],
}
Relabel = Callable[..., Response]


def guard_objects(values: str, helm: str = "helm3") -> list[Manifest]:
    """The guard and its binding as the chart renders them."""
    rendered = render(values, helm=helm)
    found = [each for kind in KINDS for each in of_kind(rendered, kind)]
    return [each for each in found if each["metadata"]["name"] == "gpuward-node-guard"]


def patch(
    plane: ControlPlane, path: str, body: dict[str, Any], user: str, group: str = "system:masters"
) -> Response:
    """Patch the guarded node as `user`, whose group may do everything."""
    kind = "application/strategic-merge-patch+json"
    headers = {"Impersonate-User": user, "Impersonate-Group": group}
    return plane.request(
        "PATCH", f"{NODES}/guarded{path}", body, content_type=kind, headers=headers
    )


def relabel(plane: ControlPlane, user: str, labels: dict[str, str | None]) -> Response:
    """Set or remove labels of the guarded node."""
    return patch(plane, "", {"metadata": {"labels": labels}}, user)


@pytest.fixture(scope="module")
def guarded(plane: ControlPlane) -> Iterator[ControlPlane]:
    """The plane with the guard and a node without a mode."""
    for metadata in ({"name": "guarded"}, {"name": "probe", "labels": {MODE: "share"}}):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        assert plane.request("POST", NODES, node).status == 201
    rights = plane.request("POST", BINDINGS, BINDING)
    assert rights.status == 201
    await_rights(plane)
    made = {"apiVersion": "v1", "kind": "List", "items": guard_objects(VALUES)}
    options = ("--server-side", "--validate=strict", "--filename=-")
    plane.kubectl("apply", *options, input=json.dumps(made))
    removal = {"metadata": {"labels": {MODE: None}}}
    kind = "application/merge-patch+json"
    # API servers take a moment to notice a new policy.
    eventually(
        lambda: (
            plane.request("PATCH", f"{NODES}/probe?dryRun=All", removal, content_type=kind).status
            == 403
        ),
        what="the guard refuses",
    )
    yield plane
    for kind in KINDS:
        plane.kubectl("delete", kind, "gpuward-node-guard", "--ignore-not-found")
    plane.request("DELETE", f"{BINDINGS}/{BINDING['metadata']['name']}")
    for name in ("guarded", "probe"):
        plane.request("DELETE", f"{NODES}/{name}")


def test_only_listed_users_change_a_mode_that_is_set(guarded: ControlPlane) -> None:
    assert relabel(guarded, TENANT, {MODE: "share"}).status == 200
    for value in ("cgpu", None):
        refused = relabel(guarded, TENANT, {MODE: value})
        assert refused.status == 403
        expected = f'the node has {MODE}: "share", and its pods keep what this mode gave them'
        assert expected in refused.body["message"]
    command = ("label", "node", "guarded", f"{MODE}=cgpu", "--overwrite")
    done = guarded.kubectl(*command, check=False)
    assert done.stderr.replace("guarded", "gpu-1") in GUIDE.read_text(encoding="utf-8")
    for user in LISTED:
        assert relabel(guarded, user, {MODE: "cgpu"}).status == 200
        assert relabel(guarded, user, {MODE: "share"}).status == 200
    in_group = patch(guarded, "", {"metadata": {"labels": {MODE: None}}}, TENANT, "node-admins")
    assert in_group.status == 200


def test_nobody_else_gives_a_mode_to_a_node_that_must_join_with_it(guarded: ControlPlane) -> None:
    refused = relabel(guarded, TENANT, {MODE: "core_mem"})
    assert refused.status == 403
    assert "works only on nodes that join with it" in refused.body["message"]
    joining = {"name": "joining", "labels": {MODE: "core_mem"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": joining}
    headers = {"Impersonate-User": "system:node:joining", "Impersonate-Group": "system:masters"}
    path = f"{NODES}?dryRun=All"
    assert guarded.request("POST", path, node, headers=headers).status == 201


def test_updates_of_kubelets_and_of_other_labels_pass(guarded: ControlPlane) -> None:
    assert relabel(guarded, "pool-manager", {MODE: "core_mem"}).status == 200
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
    heartbeat = {"status": {"conditions": [ready], "capacity": {"nvidia.com/gpu": "4"}}}
    bodies: dict[str, dict[str, Any]] = {
        "/status": heartbeat,
        "": {"metadata": {"annotations": {"volumes.kubernetes.io/x": "true"}}},
    }
    for path, body in bodies.items():
        assert patch(guarded, path, body, KUBELET, "system:nodes").status == 200
    zone = {"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}}
    assert patch(guarded, "", zone, KUBELET, "system:nodes").status == 200
    changed = {"metadata": {"labels": {MODE: "share"}}}
    assert patch(guarded, "", changed, KUBELET, "system:nodes").status == 403
    # A cordon, and another label of a node that has the mode.
    assert patch(guarded, "", {"spec": {"unschedulable": True}}, TENANT).status == 200
    assert relabel(guarded, TENANT, {"team": "a", MODE: "core_mem"}).status == 200


def test_labels_do_not_change_with_the_status_either(guarded: ControlPlane) -> None:
    assert relabel(guarded, "pool-manager", {MODE: "share"}).status == 200
    changed = {"metadata": {"labels": {MODE: "cgpu"}}}
    removed = {"metadata": {"labels": {MODE: None}}}
    node = guarded.request("GET", f"{NODES}/guarded").body
    node["metadata"]["labels"] = {}
    del node["metadata"]["resourceVersion"]  # controllers change the node, too
    tenant = {"Impersonate-User": TENANT, "Impersonate-Group": "system:masters"}
    refused = [
        patch(guarded, "/status", changed, TENANT),
        patch(guarded, "/status", removed, TENANT),
        guarded.request("PUT", f"{NODES}/guarded/status", node, headers=tenant),
    ]
    assert [answer.status for answer in refused] == [403] * 3
    # Controllers write conditions and resources.
    capacity = {"status": {"capacity": {"example.com/batch-cpu": "4"}}}
    assert patch(guarded, "/status", capacity, TENANT).status == 200
    # A kubelet is never refused, the limit that docs/node-guard.md states.
    passed = patch(guarded, "/status", changed, KUBELET, "system:nodes")
    assert passed.body["metadata"]["labels"][MODE] == "cgpu"


def test_no_number_of_labels_keeps_the_status_from_being_written(guarded: ControlPlane) -> None:
    labels = {f"team-{number}": "x" * 60 for number in range(9000)}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "crowded", "labels": labels}}
    assert guarded.request("POST", NODES, node).status == 201
    heartbeat = {"status": {"capacity": {"nvidia.com/gpu": "4"}}}
    merge = "application/merge-patch+json"
    try:
        for user, group in ((KUBELET, "system:nodes"), (TENANT, "system:masters")):
            headers = {"Impersonate-User": user, "Impersonate-Group": group}
            path = f"{NODES}/crowded/status?dryRun=All"
            answer = guarded.request("PATCH", path, heartbeat, content_type=merge, headers=headers)
            assert answer.status == 200
    finally:
        guarded.request("DELETE", f"{NODES}/crowded")


@pytest.mark.parametrize("helm", HELMS)
def test_the_guard_is_off_until_it_is_wanted(helm: str) -> None:
    assert guard_objects("", helm) == []
    assert [made["kind"] for made in guard_objects(VALUES, helm)] == list(KINDS)
    error = render_error('nodeGuard: {enabled: true, labels: {"it\'s": {}}}', helm=helm)
    assert "does not match pattern" in error
