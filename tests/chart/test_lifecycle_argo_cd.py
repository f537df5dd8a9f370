"""The chart as Argo CD installs it: nothing differs for ever, and what is lost is healed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.testkit.admission.enforcement import enforcement_in
from tests.testkit.chart.argo_cd import Application, ArgoCD, Comparison
from tests.testkit.chart.installation import ADMISSION, ALL_COMPONENTS, Installation, merge_values
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane import objects
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

pytest_plugins = ["tests.testkit.chart.fixtures", "tests.testkit.chart.argo_cd_fixtures"]

# With the hook that checks the policy, which Argo CD runs before it applies anything.
CHECKED = merge_values(ALL_COMPONENTS, {"policyHook": {"enabled": True}})
MUTATING = f"{ADMISSION}/mutatingwebhookconfigurations/gpuward"
REFRESHES = 5


class Installed(NamedTuple):
    """The chart, installed by Argo CD."""

    installation: Installation
    application: Application


@pytest.fixture(scope="module", params=["", "ServerSideApply=true"], ids=["default", "server-side"])
def installed(
    request: pytest.FixtureRequest, argo_cd: ArgoCD, chart_plane: ControlPlane, kubelet: Kubelet
) -> Iterator[Installed]:
    """The chart by Argo CD, for each way of applying; its pods start while the tests run."""
    with Installation(chart_plane, kubelet, "helm4") as installation:
        namespace = objects.namespace(installation.namespace, {})
        chart_plane.create("/api/v1/namespaces", namespace)
        options = filter(None, [request.param])
        with argo_cd.application(installation, CHECKED, *options) as application:
            yield Installed(installation, application)


def _settle(installed: Installed) -> Comparison:
    """Wait until the webhook enforces and Argo CD has nothing to do; what it says then."""
    plane = installed.installation.plane
    namespace = plane.namespace()
    eventually(lambda: enforcement_in(plane, namespace) == "enforced", what="the webhook enforces")

    def settled() -> Comparison:
        found = installed.application.refresh()
        assert (found.sync, found.health, found.phase) == ("Synced", "Healthy", "Succeeded"), found
        return found

    return eventually(settled, what="the application is synced and healthy")


def test_it_is_in_sync_and_remains_so(installed: Installed) -> None:
    before = _settle(installed)
    published = installed.installation.ca_bundles()
    assert b"" not in published
    assert {"MutatingWebhookConfiguration/gpuward", "Deployment/gpuward"} <= before.managed
    # It excludes some kinds from what it applies, such as Leases. The chart renders none of them.
    assert before.conditions == {}
    for _ in range(REFRESHES):
        # Nor has it synchronised in between: `synced_at` is the same.
        assert installed.application.refresh() == before
    assert installed.installation.ca_bundles() == published


def test_a_deleted_configuration_is_healed(installed: Installed) -> None:
    before = _settle(installed)
    plane = installed.installation.plane
    first = plane.request("GET", MUTATING).body["metadata"]["uid"]
    plane.request("DELETE", MUTATING)

    def is_created_again() -> bool:
        found = plane.request("GET", MUTATING)
        return found.status == 200 and found.body["metadata"]["uid"] != first

    eventually(is_created_again, what="Argo CD creates the configuration again")
    after = _settle(installed)
    assert after.managed == before.managed
    assert b"" not in installed.installation.ca_bundles()


def test_what_is_no_longer_rendered_is_pruned(installed: Installed) -> None:
    guard = "ValidatingAdmissionPolicy/gpuward-node-guard"
    assert guard in _settle(installed).managed
    installed.application.upgrade(merge_values(ALL_COMPONENTS, {"nodeGuard": {"enabled": False}}))
    eventually(
        lambda: guard not in installed.application.refresh().managed, what="the guard is pruned"
    )
    _settle(installed)
