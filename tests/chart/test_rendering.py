"""The chart renders with every values file and both helms: same objects, labels, namespaces."""

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
    find_one,
    of_kind,
    render,
    render_error,
    render_text,
    run_helm,
    template,
)

CLUSTER_WIDE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "FlowSchema",
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
}
COMPONENTS = {
    "audit",
    "webhook",
    "certs",
    "console",
    "controllers",
    "doctor",
    "exceptions",
    "test",
    "monitoring",
    "policy-check",
    "policy-test",
    "watch",
}

every_values = pytest.mark.parametrize("values", CI_VALUES.values(), ids=list(CI_VALUES))
every_helm = pytest.mark.parametrize("helm", HELMS)


def identity(made: Manifest) -> tuple[str, str, str]:
    metadata = made["metadata"]
    return made["kind"], metadata.get("namespace", ""), metadata["name"]


def test_the_tested_values_include_the_defaults() -> None:
    assert render() == render(CI_VALUES["default"])


@every_values
def test_both_helms_render_the_same_objects(values: Path) -> None:
    old, new = (sorted(render(values, helm=helm), key=identity) for helm in HELMS)
    assert old
    assert old == new


@every_values
def test_no_policy_has_variables(values: Path) -> None:
    """API servers before Kubernetes 1.36 may crash while they compile some: kubernetes#135757."""
    for policy in of_kind(render(values), "ValidatingAdmissionPolicy"):
        assert "variables" not in policy["spec"]
        assert "variables." not in json.dumps(policy)


@every_helm
@every_values
def test_two_renderings_are_identical(values: Path, helm: str) -> None:
    first = render_text(values, helm=helm)
    assert template.__wrapped__(values, helm=helm).stdout == first


@every_helm
@every_values
def test_helm_lint_finds_nothing(values: Path, helm: str) -> None:
    done = run_helm(
        "lint", str(CHART), "--strict", f"--namespace={NAMESPACE}", values=[values], helm=helm
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[" not in done.stdout.replace("[INFO]", "").replace(str(CHART), ""), done.stdout


@every_values
def test_every_object_has_the_common_labels(values: Path) -> None:
    objects = render(values)
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
def test_namespaced_objects_name_the_namespace_of_the_release(values: Path) -> None:
    for made in render(values, namespace="gpus"):
        expected = None if made["kind"] in CLUSTER_WIDE else "gpus"
        assert made["metadata"].get("namespace") == expected, identity(made)


@every_values
def test_no_object_is_rendered_twice(values: Path) -> None:
    assert max(Counter(map(identity, render(values))).values()) == 1


def test_labels_and_annotations_of_the_values_are_set() -> None:
    objects = render(CI_VALUES["everything"])
    assert all(made["metadata"]["labels"]["team"] == "platform" for made in objects)
    for made in objects:
        if made["kind"] == "ServiceAccount":
            assert made["metadata"]["annotations"]["example.com/owner"] == "platform"
        if made["kind"] in {"Deployment", "Job", "Pod"}:
            pod = made if made["kind"] == "Pod" else made["spec"]["template"]
            assert pod["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
            assert pod["metadata"]["labels"]["team"] == "platform"
            assert pod["metadata"]["annotations"]["example.com/note"] == "yes"


def test_user_labels_replace_no_chart_label_and_pod_labels_override_common_labels() -> None:
    text = "commonLabels: {team: a, app.kubernetes.io/component: x, helm.sh/chart: x}\n"
    text += "podLabels: {team: b, app.kubernetes.io/instance: z}\n"
    made = find_one(render(text), "Deployment", "gpuward")
    plain = find_one(render(), "Deployment", "gpuward")
    assert made["metadata"]["labels"] == {**plain["metadata"]["labels"], "team": "a"}
    inside, before = (one["spec"]["template"]["metadata"]["labels"] for one in (made, plain))
    assert inside == {**before, "team": "b"}
    assert not any(d and d.duplicates for d in map(read, split(render_text(text))))


@pytest.mark.parametrize(
    "version",
    ["1.30.0", "1.31.0", "v1.31.2-eks-1234567", "1.32.1-gke.1006000", "1.33.4+k3s1", "1.37.2"],
)
@every_helm
def test_supported_versions_of_kubernetes_are_accepted(version: str, helm: str) -> None:
    assert render(helm=helm, options=(f"--kube-version={version}",)) == render(helm=helm)


@pytest.mark.parametrize("version", ["1.29.9", "v1.29.15-eks-1234567"])
@every_helm
def test_older_versions_of_kubernetes_are_refused(version: str, helm: str) -> None:
    error = render_error(helm=helm, options=(f"--kube-version={version}",))
    assert "chart requires kubeVersion: >=1.30.0-0" in error


@every_values
def test_rendering_is_independent_of_the_clusters_api_versions(values: Path) -> None:
    """Tools such as Argo CD render without a cluster, and must get the same objects."""
    objects = render(values, options=("--api-versions=monitoring.coreos.com/v1",))
    assert json.dumps(objects) == json.dumps(render(values))
