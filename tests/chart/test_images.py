"""The image of the chart's containers, and the values that apply to all pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.testkit.chart.rendering import CI_VALUES, HELMS, pod_specs, render
from tests.testkit.chart.umbrella import umbrella


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


def security_contexts(*values: str, **target: Any) -> list[Any]:
    """The security context of every pod."""
    return [spec["securityContext"] for spec in pod_specs(render(*values, **target)).values()]


NO_USERS = "podSecurityContext: {runAsUser: none, runAsGroup: none, fsGroup: none}"
WITHOUT_USERS = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


@pytest.mark.parametrize("helm", HELMS)
def test_the_choice_of_users_can_be_left_to_the_cluster(helm: str, tmp_path: Path) -> None:
    keys = ("runAsUser", "runAsGroup", "fsGroup")
    options = tuple(f"--set=podSecurityContext.{key}=none" for key in keys)
    nulls = NO_USERS.replace("none", "null")
    chart = umbrella(tmp_path, f"gpuward: {{{NO_USERS}}}", helm)
    for found in (
        security_contexts(NO_USERS, helm=helm),
        security_contexts(nulls, helm=helm),
        security_contexts(helm=helm, options=options),
        security_contexts(helm=helm, chart=chart),
    ):
        assert found == [WITHOUT_USERS] * len(pod_specs(render()))


def test_the_cluster_can_choose_one_of_the_users_alone() -> None:
    for context in security_contexts("podSecurityContext: {runAsUser: none, runAsGroup: 7}"):
        assert context == {**WITHOUT_USERS, "runAsGroup": 7, "fsGroup": 65532}


def test_values_for_all_pods_apply_to_every_pod() -> None:
    for spec in pod_specs(render(CI_VALUES["everything"])).values():
        assert spec["imagePullSecrets"] == [{"name": "regcred"}]
        assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "system"}
        assert spec["containers"][0]["imagePullPolicy"] == "Always"
