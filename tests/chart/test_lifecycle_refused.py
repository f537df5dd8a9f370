"""A cluster has the chart once, and never where nobody would be judged."""

from __future__ import annotations

import pytest

from tests.testkit.chart.installation import PATIENT, Installed
from tests.testkit.cluster_contents import everything
from tests.testkit.control_plane.processes import eventually

pytest_plugins = ["tests.testkit.chart.fixtures"]


@pytest.fixture(scope="module")
def first(installed: Installed) -> Installed:
    """An installation that has come to rest."""
    installed.install(PATIENT)
    eventually(lambda: b"" not in installed.bundles(), what="the bundle is published")
    return installed


def refused(first: Installed, release: str, namespace: str) -> str:
    """What helm says to a second installation, which must change nothing."""
    before, webhooks = everything(first.plane), first.webhooks()
    second = Installed(
        first.plane, first.kubelet, first.program, release=release, namespace=namespace
    )
    done = second.install(PATIENT, check=False)
    assert done.returncode
    after = everything(first.plane)
    assert after - before == set()
    # Elsewhere things of earlier tests may just be going.
    assert {t for t in before - after if t.namespace == first.namespace} == set()
    assert first.webhooks() == webhooks
    return done.stderr


@pytest.mark.parametrize(
    ("release", "namespace"),
    [
        pytest.param("gpuward", "elsewhere", id="the same name in another namespace"),
        pytest.param("other", "elsewhere", id="another name in another namespace"),
        pytest.param("other", "", id="another name beside it"),
    ],
)
def test_a_second_one_is_refused(first: Installed, release: str, namespace: str) -> None:
    told = refused(first, release, namespace or first.namespace)
    there = f'as release "gpuward" in namespace "{first.namespace}"'
    assert f"gpuward is already installed, {there}" in told


@pytest.mark.parametrize("namespace", ["default", "kube-system", "kube-public", "kube-node-lease"])
def test_it_is_not_installed_into(first: Installed, namespace: str) -> None:
    told = refused(first, "gpuward", namespace)
    assert f"install gpuward into a namespace of its own and not into {namespace}" in told
