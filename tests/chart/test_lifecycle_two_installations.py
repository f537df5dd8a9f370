"""A second installation that is only rendered: without access to the cluster nothing refuses it."""

from __future__ import annotations

from typing import Any

from tests.testkit.admission.enforcement import enforcement_in
from tests.testkit.chart.installation import CHART, SLOW_MACHINE, Installation, merge_values
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane import objects as manifests
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import TIMEOUT, eventually

pytest_plugins = ["tests.testkit.chart.fixtures"]


def secrets_of(installation: Installation) -> list[Any]:
    """The data of the Secrets of the certificate controller."""
    return [installation.get(f"secret/gpuward-{end}")["data"] for end in ("ca", "tls")]


def test_the_second_takes_the_cluster_over_and_the_first_can_have_it_back(
    chart_plane: ControlPlane, kubelet: Kubelet
) -> None:
    """The cluster is guarded by one of them, and no Secret of the first changes."""
    deny = merge_values(SLOW_MACHINE, {"mode": "deny"})
    user_namespace = chart_plane.namespace()
    with (
        Installation(chart_plane, kubelet, "helm4") as before,
        Installation(chart_plane, kubelet, "helm4") as after,
    ):

        def wait_until_enforced_by(installation: Installation) -> None:
            def is_enforced() -> bool:
                services = {
                    each["clientConfig"]["service"]["namespace"]
                    for each in installation.webhooks().values()
                }
                assert services == {installation.namespace}
                return enforcement_in(chart_plane, user_namespace) == "enforced"

            eventually(is_enforced, what="the webhook enforces")

        before.install(deny)
        wait_until_enforced_by(before)
        (certs,) = before.pods("certs")
        secrets = secrets_of(before)
        chart_plane.create("/api/v1/namespaces", manifests.namespace(after.namespace, {}))
        text = after.helm("template", str(CHART), "--no-hooks", values=deny).stdout
        chart_plane.kubectl("apply", "--filename=-", input=text)
        wait_until_enforced_by(after)
        name = certs.manifest["metadata"]["name"]
        eventually(
            lambda: "cannot get resource" in kubelet.log(before.namespace, name),
            what="the controller of the first says that it lacks a right",
        )
        assert secrets_of(before) == secrets
        chart_plane.request("DELETE", f"/api/v1/namespaces/{after.namespace}")
        force = ("--server-side=true", "--force-conflicts", "--wait", TIMEOUT)
        before.helm("upgrade", str(CHART), *force, values=deny)
        wait_until_enforced_by(before)
        assert secrets_of(before) == secrets
