"""API servers answer the controllers although others send many requests."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.testkit.chart.rendering import CI_VALUES, NAMESPACE, find_one, of_kind, render
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import eventually

SCHEMAS = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
DISPATCHED = "apiserver_flowcontrol_dispatched_requests_total"
EVERYTHING = "{gpuExceptions: {enabled: true}, clusterInventory: {enabled: true}}"


def accounts(*values: Any) -> set[str]:
    """The accounts that the FlowSchema of the chart is about."""
    (rule,) = find_one(render(*values), "FlowSchema", "gpuward")["spec"]["rules"]
    assert {s["serviceAccount"]["namespace"] for s in rule["subjects"]} == {NAMESPACE}
    return {subject["serviceAccount"]["name"] for subject in rule["subjects"]}


@pytest.mark.parametrize(
    ("values", "components"),
    [
        ("", {"certs"}),
        ("certificates: {mode: certManager}", {"watch"}),
        (EVERYTHING, {"certs", "exceptions", "inventory"}),
    ],
)
def test_it_is_about_the_controllers_that_there_are(values: str, components: set[str]) -> None:
    assert accounts(values) == {f"gpuward-{component}" for component in components}
    created = {made["metadata"]["name"] for made in of_kind(render(values), "ServiceAccount")}
    assert accounts(values) <= created


def test_it_can_be_left_out() -> None:
    assert not of_kind(render(CI_VALUES["everything"]), "FlowSchema")


def test_api_servers_give_the_controllers_the_priority_of_their_own(api_server: Cluster) -> None:
    namespace = api_server.namespace()
    (schema,) = of_kind(render(EVERYTHING, namespace=namespace), "FlowSchema")
    names = ("gpuward-certs", "gpuward-inventory", "default")
    for name in names[:2]:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        api_server.create(path, {"metadata": {"name": name}})
    clients = {name: api_server.client(api_server.token(name, namespace)) for name in names}

    def levels_of_requests(account: str) -> set[tuple[str, str]]:
        """The FlowSchema and the level of the request of an account for a Lease."""

        def counts() -> dict[tuple[str, str], float]:
            samples = api_server.metrics(DISPATCHED.removesuffix("_total"))[DISPATCHED]
            return {(s["flow_schema"], s["priority_level"]): count for s, count in samples}

        before = counts()
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/gpuward-certs"
        clients[account].request("GET", lease)
        own = {"gpuward", "service-accounts"}
        return {key for key, n in counts().items() if key[0] in own and n > before.get(key, 0)}

    def has_level_of_controllers(account: str) -> bool:
        return levels_of_requests(account) == {("gpuward", "workload-high")}

    api_server.create(SCHEMAS, schema)
    try:
        for account in names[:2]:
            eventually(
                partial(has_level_of_controllers, account),
                what=f"the requests of {account} have the level of controllers",
            )
        assert not has_level_of_controllers("default")
    finally:
        api_server.request("DELETE", f"{SCHEMAS}/gpuward")
