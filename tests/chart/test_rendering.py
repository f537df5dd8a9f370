"""The chart renders: with every values file, both helms, always the same, and tidily."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from kubeyaml import read, split
from tests.testkit.chart.rendering import (
    CHART,
    CI_VALUES,
    HELMS,
    NAMESPACE,
    Manifest,
    refusal,
    rendered,
    rendering,
    run_helm,
    template,
    the,
)

CLUSTER_WIDE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
}
COMPONENTS = {"webhook", "certs", "removal", "test", "monitoring"}

every_values = pytest.mark.parametrize("values", CI_VALUES.values(), ids=list(CI_VALUES))
every_helm = pytest.mark.parametrize("helm", HELMS)


def identity(made: Manifest) -> tuple[str, str, str]:
    metadata = made["metadata"]
    return made["kind"], metadata.get("namespace", ""), metadata["name"]


def test_the_default_values_are_among_those_that_are_tried() -> None:
    assert rendered() == rendered(CI_VALUES["default"])


@every_values
def test_both_helms_make_the_same_objects(values: Path) -> None:
    old, new = (sorted(rendered(values, helm=helm), key=identity) for helm in HELMS)
    assert old
    assert old == new


@every_helm
@every_values
def test_two_renderings_are_the_same_to_the_byte(values: Path, helm: str) -> None:
    first = rendering(values, helm=helm)
    assert template.__wrapped__(values, helm=helm).stdout == first


@every_helm
@every_values
def test_helm_s_own_linter_finds_nothing(values: Path, helm: str) -> None:
    done = run_helm(
        "lint", str(CHART), "--strict", f"--namespace={NAMESPACE}", values=[values], helm=helm
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[" not in done.stdout.replace("[INFO]", "").replace(str(CHART), ""), done.stdout


@every_values
def test_every_object_carries_the_common_labels(values: Path) -> None:
    objects = rendered(values)
    for made in objects:
        labels = made["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "gpuward", identity(made)
        assert labels["app.kubernetes.io/part-of"] == "gpuward"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["app.kubernetes.io/version"] == "0.1.0"
        assert labels["helm.sh/chart"] == "gpuward-0.1.0"
        assert labels["app.kubernetes.io/component"] in COMPONENTS
    assert len({made["metadata"]["labels"]["app.kubernetes.io/name"] for made in objects}) == 1


@every_values
def test_what_is_in_a_namespace_names_that_of_the_release(values: Path) -> None:
    for made in rendered(values, namespace="gpus"):
        expected = None if made["kind"] in CLUSTER_WIDE else "gpus"
        assert made["metadata"].get("namespace") == expected, identity(made)


@every_values
def test_no_two_objects_are_the_same_one(values: Path) -> None:
    assert max(Counter(map(identity, rendered(values))).values()) == 1


def test_the_user_s_labels_and_annotations_are_where_the_values_say() -> None:
    objects = rendered(CI_VALUES["everything"])
    assert all(made["metadata"]["labels"]["team"] == "platform" for made in objects)
    for made in objects:
        if made["kind"] == "ServiceAccount":
            assert made["metadata"]["annotations"]["example.com/owner"] == "platform"
        if made["kind"] in {"Deployment", "Job", "Pod"}:
            pod = made if made["kind"] == "Pod" else made["spec"]["template"]
            assert pod["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
            assert pod["metadata"]["labels"]["team"] == "platform"
            assert pod["metadata"]["annotations"]["example.com/note"] == "yes"


def test_labels_of_the_user_replace_none_of_ours_and_those_of_pods_come_first() -> None:
    text = "commonLabels: {team: a, app.kubernetes.io/component: x, helm.sh/chart: x}\n"
    text += "podLabels: {team: b, app.kubernetes.io/instance: z}\n"
    made = the(rendered(text), "Deployment", "gpuward")
    plain = the(rendered(), "Deployment", "gpuward")
    assert made["metadata"]["labels"] == {**plain["metadata"]["labels"], "team": "a"}
    inside, before = (one["spec"]["template"]["metadata"]["labels"] for one in (made, plain))
    assert inside == {**before, "team": "b"}
    assert not any(d and d.duplicates for d in map(read, split(rendering(text))))


@pytest.mark.parametrize(
    "version",
    ["1.30.0", "1.31.0", "v1.31.2-eks-1234567", "1.32.1-gke.1006000", "1.33.4+k3s1", "1.36.3"],
)
@every_helm
def test_supported_versions_of_kubernetes_are_taken(version: str, helm: str) -> None:
    assert rendered(helm=helm, options=(f"--kube-version={version}",)) == rendered(helm=helm)


@pytest.mark.parametrize("version", ["1.29.9", "v1.29.15-eks-1234567"])
@every_helm
def test_older_versions_of_kubernetes_are_refused(version: str, helm: str) -> None:
    told = refusal(helm=helm, options=(f"--kube-version={version}",))
    assert "chart requires kubeVersion: >=1.30.0-0" in told


@every_values
def test_what_the_cluster_serves_changes_nothing(values: Path) -> None:
    """Argo CD and the like render without a cluster, and must get the same."""
    some = rendered(values, options=("--api-versions=monitoring.coreos.com/v1",))
    assert json.dumps(some) == json.dumps(rendered(values))
