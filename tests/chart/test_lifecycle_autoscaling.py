"""The number of the webhook's pods when an autoscaler takes it over, and when it gives it back."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.testkit.chart.installation import CHART, SLOW_MACHINE, Installation, merge_values
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.chart.rendering import find_one, render
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

pytest_plugins = ["tests.testkit.chart.fixtures"]

# The pods fit no node: only their number counts here.
VALUES = merge_values(
    SLOW_MACHINE, {"mode": "off", "replicaCount": 3, "nodeSelector": {"no-node": "has-this"}}
)


def with_autoscaler(least: int) -> Any:
    return merge_values(VALUES, {"autoscaling": {"enabled": True, "minReplicas": least}})


def replicas(installation: Installation) -> int:
    number: int = installation.get("deployment/gpuward")["spec"]["replicas"]
    return number


def upgraded(installation: Installation, values: Any, *options: str) -> int:
    """The replicas that an upgrade writes and leaves; it waits for no pod."""
    installation.helm("upgrade", str(CHART), *options, values=values)
    objects = yaml.safe_load_all(installation.helm("get manifest").stdout)
    written: int = find_one(objects, "Deployment", "gpuward")["spec"]["replicas"]
    assert replicas(installation) >= written
    return written


def scale(installation: Installation, number: int) -> None:
    """Set the number of replicas as the controller of autoscalers does."""
    deployments = f"/apis/apps/v1/namespaces/{installation.namespace}/deployments"
    path = f"{deployments}/gpuward/scale?fieldManager=kube-controller-manager"
    body = {"spec": {"replicas": number}}
    merge = "application/merge-patch+json"
    done = installation.plane.request("PATCH", path, body, content_type=merge)
    assert done.status == 200, done.body


def test_an_installation_begins_with_the_minimum(
    chart_plane: ControlPlane, kubelet: Kubelet
) -> None:
    """With Helm. Where the chart is only rendered, the number is left to the autoscaler."""
    values = with_autoscaler(2)
    for program in ("helm3", "helm4"):
        with Installation(chart_plane, kubelet, program) as installation:
            text = installation.helm("template", str(CHART), values=values).stdout
            deployment = find_one(yaml.safe_load_all(text), "Deployment", "gpuward")
            assert "replicas" not in deployment["spec"]
            installation.helm("install", str(CHART), "--create-namespace", values=values)
            objects = yaml.safe_load_all(installation.helm("get manifest").stdout)
            assert find_one(objects, "Deployment", "gpuward")["spec"]["replicas"] == 2


@pytest.fixture(scope="module")
def scaled(installation: Installation) -> Installation:
    """An installation whose replicas the autoscaler has set to 5."""
    installation.helm("install", str(CHART), "--create-namespace", values=VALUES)
    assert replicas(installation) == 3
    assert upgraded(installation, with_autoscaler(2)) == 3
    assert upgraded(installation, with_autoscaler(4)) == 4
    scale(installation, 5)
    return installation


def test_an_upgrade_keeps_what_the_autoscaler_has_chosen(scaled: Installation) -> None:
    assert upgraded(scaled, with_autoscaler(2)) == 5
    assert replicas(scaled) == 5


def test_a_larger_minimum_is_left_to_the_autoscaler(scaled: Installation) -> None:
    """It owns the number, so that another one would be a conflict with server-side apply."""
    assert upgraded(scaled, with_autoscaler(6)) == 5
    eventually(lambda: replicas(scaled) == 6, what="the autoscaler reaches its minimum")


def test_without_the_autoscaler_the_number_is_that_of_the_values(scaled: Installation) -> None:
    """With server-side apply only by force, because the autoscaler owned the number."""
    # The autoscaler is deleted after the Deployment is changed: with a larger minimum it could
    # raise the number once more in between.
    assert upgraded(scaled, with_autoscaler(2)) > 3
    force: tuple[str, ...] = ()
    if scaled.program == "helm4":
        done = scaled.helm("upgrade", str(CHART), values=VALUES, check=False)
        assert "conflict" in done.stderr
        assert ".spec.replicas" in done.stderr
        assert replicas(scaled) > 3
        force = ("--force-conflicts",)
    for options in (force, ()):
        assert upgraded(scaled, VALUES, *options) == 3
        assert replicas(scaled) == 3


class GitOpsTool:
    """Applies the chart's Deployment to a namespace, as it is rendered without the cluster."""

    def __init__(self, plane: ControlPlane, *options: str) -> None:
        self._plane = plane
        self._options = options
        self.namespace = plane.namespace()

    def deployment(self, values: Any) -> Any:
        """The Deployment as it is rendered."""
        objects = render(json.dumps(values), namespace=self.namespace, helm="helm4")
        return find_one(objects, "Deployment", "gpuward")

    def replicas_after(self, values: Any) -> int:
        """Apply the Deployment; returns its replicas."""
        done = self.kubectl("apply", *self._options, "-o=json", manifest=self.deployment(values))
        number: int = json.loads(done)["spec"]["replicas"]
        return number

    def kubectl(self, *arguments: str, manifest: Any) -> str:
        """The output of kubectl, which reads the manifest."""
        target = (f"--namespace={self.namespace}", "--filename=-")
        return self._plane.kubectl(*arguments, *target, input=json.dumps(manifest)).stdout


# Without the second step of these, which docs/install.md describes, the third leaves one replica.


def test_the_number_is_handed_over_with_server_side_apply(chart_plane: ControlPlane) -> None:
    tool = GitOpsTool(chart_plane, "--server-side", "--field-manager=gitops")
    assert tool.replicas_after(VALUES) == 3
    number = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "gpuward"},
        "spec": {"replicas": 3},
    }
    tool.kubectl("apply", "--server-side", "--field-manager=autoscaling", manifest=number)
    assert tool.replicas_after(with_autoscaler(2)) == 3


def test_the_number_is_handed_over_with_client_side_apply(chart_plane: ControlPlane) -> None:
    tool = GitOpsTool(chart_plane)
    assert tool.replicas_after(VALUES) == 3
    # What `kubectl apply edit-last-applied` writes once `replicas` is removed.
    edited = tool.deployment(with_autoscaler(2))
    tool.kubectl("apply", "set-last-applied", manifest=edited)
    assert tool.replicas_after(with_autoscaler(2)) == 3
