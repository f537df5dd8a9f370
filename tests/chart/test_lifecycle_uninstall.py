"""Off again: nothing is left behind, and nobody is held up meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from tests.testkit.admission.enforcement import treatment
from tests.testkit.admission.pod_creator import PodMaker
from tests.testkit.chart.installation import ADMISSION, PATIENT, Installed, merged
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.cluster_contents import Thing, everything
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.end_to_end.steps import patch

pytest_plugins = ["tests.testkit.chart.fixtures"]

HELMS = pytest.mark.parametrize("helm", ["helm3", "helm4"])
DENY = merged(PATIENT, {"mode": "deny"})
# As users have it, who leave the servers the time to answer whoever still asks.
FAIL = {"mode": "deny", "registration": {"failurePolicy": "Fail", "timeoutSeconds": 30}}
NO_HOOK = {"removalHook": {"enabled": False}}
BOTH = "validatingwebhookconfiguration,mutatingwebhookconfiguration"
CONFIGURATIONS = {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}
SERVING = {"services", "deployments", "secrets"}


@HELMS
def test_it_leaves_nothing_behind_and_can_come_again(
    chart_plane: ControlPlane, kubelet: Kubelet, helm: str
) -> None:
    before = everything(chart_plane)
    with Installed(chart_plane, kubelet, helm) as installed:
        installed.install(PATIENT)
        installed.upgrade(DENY)
        installed.rollback(1)
        installed.helm("test", "--timeout=100s")
        made = {thing.resource for thing in everything(chart_plane) - before}
        assert made > CONFIGURATIONS | {"leases", "secrets", "clusterroles", "serviceaccounts"}
        installed.uninstall()
        eventually(lambda: is_gone(installed, before), what="all of it is gone")
        installed.install(DENY)
        namespace = chart_plane.namespace()
        eventually(lambda: treatment(chart_plane, namespace) == "enforced", what="it is back")


def test_a_hook_that_fails_stops_it_and_there_is_a_way_out(
    chart_plane: ControlPlane, kubelet: Kubelet
) -> None:
    before = everything(chart_plane)
    with Installed(chart_plane, kubelet, "helm3") as installed:
        installed.install(PATIENT)
        # A configuration with a webhook of somebody else is not removed.
        path = f"{ADMISSION}/mutatingwebhookconfigurations/gpuward"
        foreign = [{"op": "replace", "path": "/webhooks/0/name", "value": "pods.example.com"}]
        assert patch(chart_plane, path, foreign, how="json-patch").status == 200
        # Not as long as it takes until the Job gives up.
        assert installed.helm("uninstall", "--timeout=5s", check=False).returncode
        assert chart_plane.request("GET", path).status == 200
        assert len(installed.pods()) == 2
        # What docs/uninstall.md says then.
        chart_plane.kubectl("delete", BOTH, "gpuward", "--ignore-not-found")
        installed.helm("uninstall", "--no-hooks")
        # The Job goes by itself, ten minutes later.
        assert installed.get("job/gpuward-removal")["spec"]["ttlSecondsAfterFinished"] == 600
        chart_plane.kubectl("delete", "job/gpuward-removal", "-n", installed.namespace)
        eventually(lambda: is_gone(installed, before), what="all of it is gone")


def is_gone(installed: Installed, before: set[Thing]) -> bool:
    """Whether there is nothing that was not there before, but for a namespace and its own."""
    now = everything(installed.plane)
    own = {
        ("namespaces", "", installed.namespace),
        ("serviceaccounts", installed.namespace, "default"),
        ("configmaps", installed.namespace, "kube-root-ca.crt"),
    }
    left = {t for t in now - before if (t.resource, t.namespace, t.name) not in own}
    assert left == set()
    return True


@pytest.mark.parametrize(
    ("helm", "values"),
    [
        pytest.param("helm3", {}, id="helm3"),
        pytest.param("helm4", {}, id="helm4"),
        # It takes the configurations away first by itself.
        pytest.param("helm4", NO_HOOK, id="helm4-without-the-hook"),
    ],
)
def test_nobody_is_refused_or_held_up_meanwhile(
    chart_plane: ControlPlane, kubelet: Kubelet, helm: str, values: Any
) -> None:
    with Installed(chart_plane, kubelet, helm) as installed:
        installed.install(merged(FAIL, values))
        namespace = chart_plane.namespace()
        eventually(lambda: treatment(chart_plane, namespace) == "enforced", what="it is in force")
        with PodMaker(chart_plane, namespace) as maker:
            maker.goes_on()
            assert not maker.not_evaluated
            installed.uninstall()
            maker.goes_on()
        assert maker.fixed
        assert maker.not_evaluated
        assert treatment(chart_plane, namespace) == "silent"
        assert configurations_go_first(installed)


def test_helm_3_without_the_hook_takes_the_configurations_away_last(
    chart_plane: ControlPlane, kubelet: Kubelet
) -> None:
    # Under Fail nobody could make a pod in between, which is why there is a hook.
    with Installed(chart_plane, kubelet, "helm3") as installed:
        installed.install(merged(PATIENT, NO_HOOK))
        installed.uninstall()
        assert not configurations_go_first(installed)


def configurations_go_first(installed: Installed) -> bool:
    """Whether both configurations were deleted before the first object that serves them."""

    def deleted() -> list[str]:
        events = [e for e in installed.plane.audit_events() if e["verb"] == "delete"]
        found = [e["objectRef"] for e in events if e["responseStatus"]["code"] == 200]
        ours = [
            each["resource"]
            for each in found
            if each.get("namespace") == installed.namespace
            or (each["resource"] in CONFIGURATIONS and each["name"] == "gpuward")
        ]
        # Those of earlier installations stand before what this one has lost.
        start = max(ours.index(r) if r in ours else -1 for r in CONFIGURATIONS)
        return ours if start >= 0 else []

    order = eventually(deleted, what="the audit log has it")
    last = {resource: place for place, resource in enumerate(order)}
    first = min(order.index(resource) for resource in SERVING if resource in order)
    return max(last[resource] for resource in CONFIGURATIONS) < first
