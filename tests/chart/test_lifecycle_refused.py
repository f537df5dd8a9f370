"""Helm refuses a second installation, and an installation into a reserved namespace."""

from __future__ import annotations

import pytest

from tests.testkit.chart.installation import SLOW_MACHINE, Installation
from tests.testkit.cluster_contents import list_objects
from tests.testkit.control_plane.processes import eventually

pytest_plugins = ["tests.testkit.chart.fixtures"]


@pytest.fixture(scope="module")
def first(installation: Installation) -> Installation:
    """An installation that changes nothing in the cluster any more."""
    installation.install(SLOW_MACHINE)
    eventually(lambda: b"" not in installation.ca_bundles(), what="the CA bundle is published")
    return installation


def refused_installation(first: Installation, release: str, namespace: str) -> str:
    """Attempt a second installation, which must change nothing; returns the error of helm."""
    before, webhooks = list_objects(first.plane), first.webhooks()
    second = Installation(
        first.plane, first.kubelet, first.program, release=release, namespace=namespace
    )
    done = second.install(SLOW_MACHINE, check=False)
    assert done.returncode
    after = list_objects(first.plane)
    assert after - before == set()
    # In other namespaces, objects of earlier tests may still be terminating.
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
def test_a_second_installation_is_refused(
    first: Installation, release: str, namespace: str
) -> None:
    error = refused_installation(first, release, namespace or first.namespace)
    location = f'as release "gpuward" in namespace "{first.namespace}"'
    assert f"gpuward is already installed, {location}" in error


@pytest.mark.parametrize("namespace", ["default", "kube-system", "kube-public", "kube-node-lease"])
def test_an_installation_into_a_reserved_namespace_is_refused(
    first: Installation, namespace: str
) -> None:
    error = refused_installation(first, "gpuward", namespace)
    assert f"install gpuward into a namespace of its own and not into {namespace}" in error
