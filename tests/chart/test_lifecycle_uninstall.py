"""Uninstalling the chart: nothing is left behind, and no pod is refused meanwhile."""

from __future__ import annotations

import re

import pytest

from cluster.doctor.cli import main as doctor
from tests.testkit.admission.enforcement import BYPASS_POD, enforcement_in
from tests.testkit.admission.pod_creator import PodCreator
from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.reviews import container, pod
from tests.testkit.chart.documented_commands import commands
from tests.testkit.chart.installation import SLOW_MACHINE, Installation, merge_values
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.cluster_contents import ObjectIdentity, list_objects
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import TIMEOUT, eventually
from tests.testkit.paths import DOCS

pytest_plugins = ["tests.testkit.chart.fixtures"]

HELMS = pytest.mark.parametrize("helm", ["helm3", "helm4"])
DENY = merge_values(SLOW_MACHINE, {"mode": "deny"})
# With the default drain, as users have it: servers answer late requests.
FAIL = {"mode": "deny", "registration": {"failurePolicy": "Fail", "timeoutSeconds": 30}}
BOTH_KINDS = "validatingwebhookconfiguration,mutatingwebhookconfiguration"
CONFIGURATIONS = {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}
SERVING = {"services", "deployments", "secrets"}


@HELMS
def test_it_leaves_nothing_behind_and_can_be_installed_again(
    chart_plane: ControlPlane, kubelet: Kubelet, helm: str
) -> None:
    before = list_objects(chart_plane)
    with Installation(chart_plane, kubelet, helm) as installation:
        installation.install(SLOW_MACHINE)
        installation.upgrade(DENY)
        installation.rollback(1)
        installation.helm("test", TIMEOUT)
        created_resources = {thing.resource for thing in list_objects(chart_plane) - before}
        assert created_resources > CONFIGURATIONS | {
            "leases",
            "secrets",
            "clusterroles",
            "serviceaccounts",
        }
        installation.uninstall()
        eventually(lambda: is_gone(installation, before), what="all objects are gone")
        installation.install(DENY)
        namespace = chart_plane.namespace()
        eventually(
            lambda: enforcement_in(chart_plane, namespace) == "enforced",
            what="the webhook enforces again",
        )


def is_gone(installation: Installation, before: set[ObjectIdentity]) -> bool:
    """Return whether nothing is left but the namespace with its default objects.

    Fail if something is.
    """
    now = list_objects(installation.plane)
    own = {
        ("namespaces", "", installation.namespace),
        ("serviceaccounts", installation.namespace, "default"),
        ("configmaps", installation.namespace, "kube-root-ca.crt"),
    }
    left = {t for t in now - before if (t.resource, t.namespace, t.name) not in own}
    assert left == set()
    return True


@HELMS
def test_no_pod_is_refused_meanwhile(
    chart_plane: ControlPlane, kubelet: Kubelet, helm: str
) -> None:
    """Helm 4 deletes the configurations first; before Helm 3, the manual's command does."""
    with Installation(chart_plane, kubelet, helm) as installation:
        installation.install(FAIL)
        namespace = chart_plane.namespace()
        eventually(
            lambda: enforcement_in(chart_plane, namespace) == "enforced",
            what="the webhook enforces",
        )
        with PodCreator(chart_plane, namespace) as creator:
            creator.wait_for_pods()
            assert not creator.not_evaluated
            if helm == "helm3":
                chart_plane.kubectl("delete", BOTH_KINDS, "gpuward", "--ignore-not-found")
            installation.uninstall()
            creator.wait_for_pods()
        assert creator.fixed
        assert creator.not_evaluated
        assert enforcement_in(chart_plane, namespace) == "silent"
        assert configurations_go_first(installation)


def test_what_remains_of_a_deleted_namespace_is_taken_over_or_deleted(
    chart_plane: ControlPlane, kubelet: Kubelet, capsys: pytest.CaptureFixture[str]
) -> None:
    """With failurePolicy Fail, pods that may concern a rule are refused until then."""
    text = (DOCS / "uninstall.md").read_text(encoding="utf-8")
    (part,) = re.findall(r"^\*\*If somebody deletes the.*?^## ", text, re.DOTALL | re.MULTILINE)
    before = list_objects(chart_plane)
    namespace = chart_plane.namespace()
    values = merge_values(FAIL, SLOW_MACHINE)
    with Installation(chart_plane, kubelet, "helm4") as installation:
        path = f"/api/v1/namespaces/{installation.namespace}"

        def wait_until_enforced() -> None:
            eventually(
                lambda: enforcement_in(chart_plane, namespace) == "enforced",
                what="the webhook enforces",
            )

        installation.install(values)
        wait_until_enforced()
        chart_plane.request("DELETE", path)
        eventually(lambda: chart_plane.request("GET", path).status == 404, what="it is gone")
        refused = create(chart_plane, namespace, BYPASS_POD, dry_run=True)
        assert refused.status == 500, refused
        assert 'failed calling webhook "pods.deny.gpuward.io"' in refused.body["message"]
        other = create(chart_plane, namespace, pod(container()), dry_run=True)
        assert other.status == 201, other
        absent = installation.helm("uninstall", check=False)
        assert "release: not found" in absent.stderr
        doctor(["--kubeconfig", str(chart_plane.kubeconfig)])
        first_line = capsys.readouterr().out.splitlines()[0]
        assert first_line.startswith("not guarded: the API server gets no answer from gpuward")
        installation.install(values)
        wait_until_enforced()
        for _, *words in commands(part):
            chart_plane.kubectl(*words)
        eventually(
            lambda: enforcement_in(chart_plane, namespace) == "silent", what="pods are admitted"
        )
        new = {each.resource for each in list_objects(chart_plane) - before if not each.namespace}
        assert new == {"namespaces", "ipaddresses"}, "the second is that of the Service"


def test_helm_3_alone_deletes_the_configurations_last(
    chart_plane: ControlPlane, kubelet: Kubelet
) -> None:
    """With failurePolicy Fail, no pod can be created for that moment: the manual says so."""
    with Installation(chart_plane, kubelet, "helm3") as installation:
        installation.install(SLOW_MACHINE)
        installation.uninstall()
        assert not configurations_go_first(installation)
        assert installation.webhooks() == {}


def configurations_go_first(installation: Installation) -> bool:
    """Return whether both configurations were deleted before the first object that serves them."""

    def deleted() -> list[str]:
        events = [e for e in installation.plane.audit_events() if e["verb"] == "delete"]
        found = [e["objectRef"] for e in events if e["responseStatus"]["code"] == 200]
        deletions = [
            each["resource"]
            for each in found
            if each.get("namespace") == installation.namespace
            or (each["resource"] in CONFIGURATIONS and each["name"] == "gpuward")
        ]
        # Ignore the configurations of earlier installations, which come first in the log.
        start = max(deletions.index(r) if r in deletions else -1 for r in CONFIGURATIONS)
        return deletions if start >= 0 and SERVING & {*deletions} else []

    order = eventually(deleted, what="the audit log has the deletions")
    last = {resource: position for position, resource in enumerate(order)}
    first = min(order.index(resource) for resource in SERVING if resource in order)
    return max(last[resource] for resource in CONFIGURATIONS) < first
