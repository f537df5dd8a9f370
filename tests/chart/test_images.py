"""The image of the chart's containers, and the values that apply to all pods."""

from __future__ import annotations

import pytest

from tests.testkit.chart.rendering import CI_VALUES, pod_specs, render


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("", "ghcr.io/gpuward/gpuward:0.1.0"),
        ("image: {tag: edge}", "ghcr.io/gpuward/gpuward:edge"),
        ("image: {registry: eu.example.com}", "eu.example.com/gpuward/gpuward:0.1.0"),
        ('image: {registry: "", repository: mine}', "mine:0.1.0"),
        (
            f"image: {{tag: edge, digest: 'sha256:{'a' * 64}'}}",
            f"ghcr.io/gpuward/gpuward@sha256:{'a' * 64}",
        ),
    ],
)
def test_every_container_runs_the_image_of_the_values(text: str, reference: str) -> None:
    specs = pod_specs(render(text))
    assert set(specs) == {"webhook", "certs", "test", "policy-check", "policy-test"}
    assert {c["image"] for spec in specs.values() for c in spec["containers"]} == {reference}


def test_the_choice_of_users_can_be_left_to_the_cluster() -> None:
    text = "podSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}"
    for spec in pod_specs(render(text)).values():
        assert spec["securityContext"] == {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }


def test_values_for_all_pods_apply_to_every_pod() -> None:
    for spec in pod_specs(render(CI_VALUES["everything"])).values():
        assert spec["imagePullSecrets"] == [{"name": "regcred"}]
        assert spec["priorityClassName"] == "system-cluster-critical"
        assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "system"}
        assert spec["containers"][0]["imagePullPolicy"] == "Always"
