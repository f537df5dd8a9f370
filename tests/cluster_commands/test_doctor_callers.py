"""The answers of `gpuward doctor` about who may call the webhook.

tests/chart/test_lifecycle_doctor.py has the answers of a real API server.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from cluster.api.errors import ClusterError, ForbiddenError
from cluster.doctor.checks.dry_runs import NOT_WANTED
from cluster.doctor.rows import Row, State
from tests.testkit.cluster_commands.doctor_rows import NO_METRICS, in_release, installed, rows
from tests.testkit.cluster_commands.gpu_objects import Object
from webhook.admission.callers import ASKING_POD

HOME = {
    "kind": "Namespace",
    "metadata": {"name": "default", "labels": {"kubernetes.io/metadata.name": "default"}},
}
WITNESS = 'unknown field "gpuwardDryRun"'
AGENT = {
    "metadata": {
        "name": "konnectivity-agent-x2x",
        "namespace": "kube-system",
        "labels": {"k8s-app": "konnectivity-agent", "pod-template-hash": "5f7"},
    },
    "spec": {},
}
AGENTS = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
    "podSelector": {"matchLabels": {"k8s-app": "konnectivity-agent"}},
}


def deployment(*arguments: str, **spec: Any) -> Object:
    port = {"name": "https", "containerPort": 10250}
    container = {"name": "webhook", "args": ["serve", *arguments], "ports": [port]}
    pod_spec = {"containers": [container], **spec}
    return in_release("Deployment", "gpuward", spec={"template": {"spec": pod_spec}})


def policy(*peers: Object) -> Object:
    """The release's network policy, which lets these peers call the webhook; without any, all."""
    metrics = {"ports": [{"port": 8080}], "from": [{"podSelector": {}}]}
    rule: Object = {"ports": [{"port": 10250, "protocol": "TCP"}]}
    if peers:
        rule["from"] = [*peers, {"podSelector": {"matchLabels": {"component": "certs"}}}]
    return in_release("NetworkPolicy", "gpuward", spec={"ingress": [rule, metrics]})


def block(cidr: str, *excluded: str) -> Object:
    return {"ipBlock": {"cidr": cidr, **({"except": [*excluded]} if excluded else {})}}


def lease(renewed: str) -> Object:
    return {"spec": {"renewTime": f"2026-11-28T{renewed}.000000Z", "leaseDurationSeconds": 3600}}


ONE = (lease("10:00:00"),)
THREE = (lease("10:00:00"), lease("10:00:09"), lease("09:59:59"))


def asked(
    *objects: Object,
    warnings: Sequence[str] = (),
    error: ClusterError | None = None,
    pods: Sequence[Object] = (),
    leases: Sequence[Object] | None = ONE,
    listen_on: Sequence[str] = (),
    **options: Any,
) -> Row:
    """The row, if a dry run that asks from where the webhook is called gets this answer."""

    def send(_namespace: str, pod: Object) -> tuple[Object, Sequence[str]]:
        if pod["metadata"]["name"] != ASKING_POD:
            return pod, [WITNESS]
        if error:
            raise error
        return pod, [*warnings, WITNESS]

    def request(path: str) -> str:
        if path == "/metrics":
            return NO_METRICS
        if "/leases?" in path and leases is None:
            raise ForbiddenError("GET /leases: 403")
        endpoints = {"endpoints": [{"addresses": [each]} for each in listen_on]}
        listed = {"pods?": pods, "/leases?": leases, "/endpointslices?": [endpoints]}
        return json.dumps({"items": next(listed[part] for part in listed if part in path)})

    given = {"send": send, "request": request, **options}
    (row,) = rows(*installed(), HOME, *objects, **given)["callers"]
    return row


def called_from(address: str) -> list[str]:
    return [f"gpuward was called from {address} without a client certificate"]


FROM_ONE = called_from("10.0.0.5")


def test_a_client_ca_is_enough() -> None:
    row = asked(deployment("--client-ca=/etc/gpuward/client-ca/ca.crt"), policy())
    assert (row.state, row.subject) == (State.OK, "deployment/gpuward in gpuward-system")


@pytest.mark.parametrize(
    ("address", "cidr"), [("10.0.0.5", "10.0.0.5/32"), ("fd00::5", "fd00::5/128")]
)
def test_if_any_client_may_call_the_value_to_set_is_named(address: str, cidr: str) -> None:
    warned = called_from(address)
    row = asked(deployment(), policy(), warnings=warned)
    assert row.state is State.NOT_KNOWN
    assert "any client that reaches port 10250 may call the webhook" in row.message
    assert row.message.endswith(f"has called from {address}; there is one API server")
    value = row.remedy.partition("networkPolicy.webhookFrom: ")[2].partition(" in the values")[0]
    assert yaml.safe_load(value) == [block(cidr)]


def test_a_release_without_a_network_policy_lets_any_client_call() -> None:
    row = asked(deployment(), warnings=FROM_ONE)
    assert (row.state, row.subject) == (
        State.NOT_KNOWN,
        "networkpolicy/gpuward in gpuward-system",
    )
    assert "the release has no policy of this name" in row.message


@pytest.mark.parametrize("by", [block("10.0.0.5/32"), block("10.0.0.0/8", "10.1.0.0/16")])
def test_an_api_server_that_the_policy_names_is_ok(by: Object) -> None:
    row = asked(deployment(), policy(by), warnings=FROM_ONE)
    assert row.state is State.OK
    assert "whether the network of this cluster enforces it" in row.message


@pytest.mark.parametrize("by", [block("10.0.0.6/32"), block("10.0.0.0/8", "10.0.0.0/16"), AGENTS])
def test_an_api_server_that_the_policy_lacks_is_wrong(by: Object) -> None:
    row = asked(deployment(), policy(by), warnings=FROM_ONE)
    assert row.state is State.WRONG
    assert row.message.startswith("it does not allow 10.0.0.5, from where the API server")
    assert "10.0.0.5/32" in row.remedy


@pytest.mark.parametrize(
    ("leases", "listen_on", "state", "said"),
    [
        (THREE, (), State.NOT_KNOWN, "; there are 3 API servers, and one was asked"),
        (THREE, ("10.0.0.4", "10.0.0.5", "10.0.0.8"), State.NOT_KNOWN, "and one was asked"),
        (THREE, ("10.0.0.4", "10.0.0.5", "10.0.0.6"), State.OK, ", and 10.0.0.4, 10.0.0.6, where"),
        # As behind a load balancer, and where API servers call from other addresses.
        (THREE, ("10.0.0.5",), State.NOT_KNOWN, "and one was asked"),
        (THREE, ("10.0.0.4", "10.0.0.6", "10.0.0.7"), State.NOT_KNOWN, "and one was asked"),
        # One ended an hour ago.
        ((lease("09:05:00"), *ONE), (), State.OK, "it allows 10.0.0.5,"),
        ([], ("10.0.0.5",), State.NOT_KNOWN, "; how many API servers there are is not known"),
        (None, ("10.0.0.5",), State.NOT_KNOWN, "; how many API servers there are is not known"),
    ],
)
def test_of_several_api_servers_one_was_asked(
    leases: Sequence[Object] | None, listen_on: Sequence[str], state: State, said: str
) -> None:
    named = policy(block("10.0.0.4/30"))
    row = asked(deployment(), named, leases=leases, listen_on=listen_on, warnings=FROM_ONE)
    assert (row.state, said in row.message) == (state, True), row


def test_pods_of_a_tunnel_are_named_by_their_labels() -> None:
    """Their addresses change. All API servers call through them."""
    of_node = {**AGENT, "spec": {"hostNetwork": True}}
    row = asked(deployment(), policy(), warnings=FROM_ONE, leases=THREE, pods=[of_node, AGENT])
    value = row.remedy.partition("networkPolicy.webhookFrom: ")[2].partition(" in the values")[0]
    assert yaml.safe_load(value) == [AGENTS]
    assert "10.0.0.5 (pod/konnectivity-agent-x2x in kube-system)" in row.message
    row = asked(deployment(), policy(AGENTS), warnings=FROM_ONE, leases=THREE, pods=[AGENT])
    assert row.state is State.OK
    others = {**AGENTS, "podSelector": {"matchLabels": {"k8s-app": "another"}}}
    row = asked(deployment(), policy(others), warnings=FROM_ONE, leases=THREE, pods=[AGENT])
    assert row.state is State.WRONG


@pytest.mark.parametrize("peers", [(), (block("10.0.0.5/32"),)], ids=["any", "named"])
@pytest.mark.parametrize(
    ("answer", "why", "remedy"),
    [
        (
            {"error": ForbiddenError('POST /p: 403 alice cannot create resource "pods"')},
            "cannot create resource",
            "grant the right to create pods there",
        ),
        ({"warnings": []}, "it was not reached, or is older", "upgrade gpuward"),
        ({"send": NOT_WANTED}, "no pod was tried", "leave --no-dry-run out"),
    ],
    ids=["no right", "older", "not wanted"],
)
def test_without_an_answer_it_is_not_known_from_where_api_servers_call(
    peers: tuple[Object, ...], answer: Object, why: str, remedy: str
) -> None:
    row = asked(deployment(), policy(*peers), **answer)
    assert row.state is State.NOT_KNOWN
    assert why in row.message
    assert remedy in row.remedy


def test_without_the_right_to_get_the_policy_it_is_named() -> None:
    row = asked(deployment(), forbidden=("networkpolicies",), warnings=FROM_ONE)
    assert row.state is State.NOT_KNOWN
    assert row.remedy == (
        "grant the right to get networkpolicies.networking.k8s.io in namespace gpuward-system"
    )


def test_pods_with_the_network_of_their_node_need_certificates() -> None:
    named = policy(block("10.0.0.5/32"))
    row = asked(deployment(hostNetwork=True), named, warnings=FROM_ONE)
    assert (row.state, "the network of their nodes" in row.message) == (State.NOT_KNOWN, True)
    assert row.remedy.startswith("require client certificates")


def test_without_a_release_there_is_no_row() -> None:
    assert "callers" not in rows(HOME)
    assert "callers" not in rows(*installed(), HOME)
