"""`registration.repair`: a deleted webhook configuration comes back, and Helm goes on with it."""

from __future__ import annotations

import re

import pytest

from cluster.api.errors import ConfigurationKind
from tests.testkit.admission.enforcement import enforcement_in
from tests.testkit.chart import certificate_modes
from tests.testkit.chart.installation import ADMISSION, SLOW_MACHINE, Installation, merge_values
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.cluster_contents import ObjectIdentity, list_objects
from tests.testkit.control_plane import objects as manifests
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.paths import DOCS

pytest_plugins = ["tests.testkit.chart.fixtures"]

HELMS = pytest.mark.parametrize("helm", ["helm3", "helm4"])
REPAIR = merge_values(SLOW_MACHINE, {"mode": "deny", "registration": {"repair": True}})
# Fewer webhooks, and other fields in those that stay.
CHANGED = merge_values(REPAIR, {"minimumMode": "deny", "registration": {"failurePolicy": "Fail"}})
BINDING = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/gpuward-repair"


def path(kind: ConfigurationKind) -> str:
    return f"{ADMISSION}/{kind.value}/gpuward"


def uids(installation: Installation) -> dict[ConfigurationKind, str]:
    """The uid of each configuration that exists."""
    found = {kind: installation.plane.request("GET", path(kind)) for kind in ConfigurationKind}
    return {
        kind: answer.body["metadata"]["uid"]
        for kind, answer in found.items()
        if answer.status == 200
    }


def delete_and_wait(installation: Installation, *kinds: ConfigurationKind) -> None:
    """Delete configurations, and wait until others of their names are trusted."""
    old = uids(installation)
    webhooks = {*installation.webhooks()}
    for kind in kinds:
        assert installation.plane.request("DELETE", path(kind)).status == 200

    def is_repaired() -> bool:
        now = uids(installation)
        return (
            now.keys() == old.keys()
            and not any(now[kind] == old[kind] for kind in kinds)
            and b"" not in installation.ca_bundles()
        )

    eventually(is_repaired, what="the configurations are created again and trusted")
    assert {*installation.webhooks()} == webhooks


def wait_until_enforced(installation: Installation) -> None:
    namespace = installation.plane.namespace()
    eventually(
        lambda: enforcement_in(installation.plane, namespace) == "enforced",
        what="the webhook enforces",
    )


def left(installation: Installation, before: set[ObjectIdentity]) -> set[ObjectIdentity]:
    """The objects of the release that there were not `before`."""
    default = {("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")}
    return {
        each
        for each in list_objects(installation.plane) - before
        if each.resource != "namespaces"
        and each.namespace in {"", installation.namespace}
        and (each.resource, each.name) not in default
    }


@HELMS
def test_helm_upgrades_rolls_back_and_uninstalls_what_was_repaired(
    chart_plane: ControlPlane, kubelet: Kubelet, helm: str
) -> None:
    before = list_objects(chart_plane)
    validating, mutating = ConfigurationKind.VALIDATING, ConfigurationKind.MUTATING
    with Installation(chart_plane, kubelet, helm) as installation:
        installation.install(REPAIR)
        wait_until_enforced(installation)
        delete_and_wait(installation, validating)
        wait_until_enforced(installation)
        fields = ("--field-selector=reason=RegistrationRepaired", "-o", "jsonpath={.items}")
        events = ("get", "events", "-n", installation.namespace, *fields)
        eventually(
            lambda: "somebody has deleted it" in chart_plane.kubectl(*events).stdout,
            what="an event",
        )
        installation.upgrade(CHANGED)
        assert len(installation.webhooks()) == 3
        assert installation.webhooks()["deny.gpuward.io"]["failurePolicy"] == "Fail"
        # A pod gets the new expectation a little later than Helm writes it, and a new pod at once.
        installation.publish_ca_bundle()
        delete_and_wait(installation, validating, mutating)
        installation.rollback(1)
        assert len(installation.webhooks()) == 9
        wait_until_enforced(installation)
        delete_and_wait(installation, mutating)
        installation.uninstall()
        eventually(lambda: left(installation, before) == set(), what="all objects are gone")
        assert not installation.kubelet.pods(installation.namespace, "certs")
        assert uids(installation) == {}


def test_the_command_of_the_manual_disables_it_for_good(
    chart_plane: ControlPlane, kubelet: Kubelet
) -> None:
    text = (DOCS / "uninstall.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^ *\$ kubectl (delete clusterrolebinding/.*)$", text, re.MULTILINE)
    with Installation(chart_plane, kubelet, "helm4") as installation:
        installation.install(REPAIR)
        wait_until_enforced(installation)
        chart_plane.kubectl(*command.split())
        (pod,) = installation.pods("certs")
        name = pod.manifest["metadata"]["name"]
        eventually(
            lambda: "registration not repaired" in kubelet.log(pod.namespace, name),
            what="the repair is refused",
        )
        assert uids(installation) == {}
        # To enable it again.
        installation.upgrade(REPAIR)
        assert chart_plane.request("GET", BINDING).status == 200
        wait_until_enforced(installation)
        delete_and_wait(installation, ConfigurationKind.VALIDATING)


def test_without_the_certificate_controller_the_watch_repairs(
    chart_plane: ControlPlane, kubelet: Kubelet
) -> None:
    with Installation(chart_plane, kubelet, "helm4") as installation:
        chart_plane.create("/api/v1/namespaces", manifests.namespace(installation.namespace, {}))
        signer = certificate_modes.new_signer(installation)
        certificate_modes.fill_secret(installation, signer)
        given = certificate_modes.values("existingSecret", signer.certificate_pem)
        installation.install(merge_values(given, {"registration": {"repair": True}}))
        wait_until_enforced(installation)
        assert not installation.pods("certs")
        delete_and_wait(installation, *ConfigurationKind)
        wait_until_enforced(installation)
