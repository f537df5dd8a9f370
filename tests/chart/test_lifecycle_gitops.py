"""The chart as a GitOps tool applies it: no difference remains, and what is lost is healed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.testkit.admission.enforcement import enforcement_in
from tests.testkit.chart.installation import ALL_COMPONENTS, CHART, Installation
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane import objects as manifests
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

pytest_plugins = ["tests.testkit.chart.fixtures"]

APPLY = ("apply", "--server-side", "--field-manager=gitops", "--filename=-")
DIFF = ("diff", "--server-side", "--field-manager=gitops", "--filename=-")
# Only the watch of the configurations can begin another pass within a test.
HOURLY = "--interval=3600"


@pytest.fixture(scope="module")
def applied(
    chart_plane: ControlPlane, kubelet: Kubelet
) -> Iterator[tuple[Installation, list[dict[str, Any]]]]:
    """The chart, rendered by helm and applied by kubectl, and its objects."""
    with Installation(chart_plane, kubelet, "helm4") as installation:
        chart_plane.create("/api/v1/namespaces", manifests.namespace(installation.namespace, {}))
        text = installation.helm("template", str(CHART), "--no-hooks", values=ALL_COMPONENTS).stdout
        rendered = chart_plane.kubectl(
            "create", "--dry-run=client", "--output=json", "--filename=-", input=text
        )
        objects = _objects(rendered.stdout)
        for made in objects:
            if made["metadata"]["name"] == "gpuward-certs" and made["kind"] == "Deployment":
                made["spec"]["template"]["spec"]["containers"][0]["args"].append(HOURLY)
        _run(installation, *APPLY, objects=objects)
        yield installation, objects


def _objects(text: str) -> list[dict[str, Any]]:
    """The objects that kubectl has printed one after the other."""
    decoder, found, at = json.JSONDecoder(), list[dict[str, Any]](), 0
    while at < len(text.rstrip()):
        made, at = decoder.raw_decode(text, at)
        at += len(text[at:]) - len(text[at:].lstrip())
        found.append(made)
    return found


def _run(installation: Installation, *arguments: str, objects: list[dict[str, Any]]) -> Any:
    """Run kubectl with the objects as its input; the finished process."""
    everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    return installation.plane.kubectl(*arguments, input=everything, check="diff" not in arguments)


def test_what_is_applied_is_what_is_there(
    applied: tuple[Installation, list[dict[str, Any]]],
) -> None:
    installation, objects = applied
    namespace = installation.plane.namespace()
    eventually(
        lambda: enforcement_in(installation.plane, namespace) == "enforced",
        what="the webhook enforces",
    )

    def no_difference() -> bool:
        """Until all components run, the status of an object may change while it is compared."""
        done = _run(installation, *DIFF, objects=objects)
        assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
        return True

    eventually(no_difference, what="no difference remains")
    # A change would increase it.
    generation = "{.items[*].metadata.generation}"
    policies = ("get", "networkpolicies", "-n", installation.namespace, "-o")
    before = installation.plane.kubectl(*policies, f"jsonpath={generation}").stdout
    _run(installation, *APPLY, objects=objects)
    assert installation.plane.kubectl(*policies, f"jsonpath={generation}").stdout == before
    assert set(before.split()) == {"1"}


def test_a_replaced_configuration_is_trusted_again_at_once(
    applied: tuple[Installation, list[dict[str, Any]]],
) -> None:
    installation, objects = applied
    eventually(lambda: b"" not in installation.ca_bundles(), what="the CA bundle is published")
    published = installation.ca_bundles()
    configurations = [made for made in objects if "webhooks" in made]
    assert len(configurations) == 2
    # As Argo CD does it with `Replace=true`.
    done = _run(installation, "replace", "--filename=-", objects=configurations)
    assert done.stdout.count("replaced") == 2
    eventually(lambda: installation.ca_bundles() == published, what="the CA bundle is restored")
    namespace = installation.plane.namespace()
    eventually(
        lambda: enforcement_in(installation.plane, namespace) == "enforced",
        what="the webhook enforces again",
    )
