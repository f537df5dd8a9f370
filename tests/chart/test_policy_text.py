"""The policy as text: `--set-file policyText=gpuward.yaml`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from policies.loading import PolicyError, load_policy
from tests.testkit.chart.rendering import (
    HELMS,
    Manifest,
    of_kind,
    render,
    render_error,
)

HEADER = "apiVersion: gpuward.io/v1\nkind: Policy\n"
OWN_PROFILE = """profiles:
  - name: own
    extends: [nvidia]
    resources: {x.example.com/gpu: {vendor: x}}
    taints: [{resources: [x.example.com/gpu], key: example.com/own-taint}]
"""


def as_values(text: str) -> str:
    return yaml.safe_dump({"policyText": text})


def policy_files(objects: list[Manifest]) -> list[str]:
    """The policy of each ConfigMap that has one."""
    data = [m["data"] for m in of_kind(objects, "ConfigMap")]
    return [files["gpuward.yaml"] for files in data if "gpuward.yaml" in files]


def without_policies(objects: list[Manifest]) -> list[Manifest]:
    return [
        m for m in objects if m["kind"] != "ConfigMap" or "-policy" not in m["metadata"]["name"]
    ]


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize(
    "text",
    [
        HEADER,
        HEADER.replace("\n", "\r\n"),
        f"# A comment\n\n  \n{HEADER}rules: {{absurd-count: {{action: off}}}}   \n",
        HEADER + "exceptions: []  # {{ .Values.mode }} 'quotes' \" \\ \t\n\n\n",
        json.dumps({"apiVersion": "gpuward.io/v1", "kind": "Policy", "profiles": ["gke"]}),
    ],
)
def test_the_pods_get_the_text_unchanged(text: str, helm: str) -> None:
    assert policy_files(render(as_values(text), helm=helm)) == [text] * 3


def test_a_file_needs_no_other_program(tmp_path: Path) -> None:
    file = tmp_path / "gpuward.yaml"
    file.write_text(HEADER + OWN_PROFILE, encoding="utf-8")
    option = f"--set-file=policyText={file}"
    assert policy_files(render(options=(option,))) == [HEADER + OWN_PROFILE] * 3


@pytest.mark.parametrize(
    "content", ["", OWN_PROFILE, "profiles: [gke]\n", "voidEveryContainer: on"]
)
def test_everything_else_is_rendered_as_with_the_same_policy_in_the_values(content: str) -> None:
    text = render(as_values(HEADER + content))
    values = render(yaml.safe_dump({"policy": yaml.safe_load(HEADER + content)}))
    assert without_policies(text) == without_policies(values)


def test_the_match_conditions_know_the_profiles_in_the_text() -> None:
    (condition,) = {
        entry["matchConditions"][0]["expression"]
        for configuration in of_kind(
            render(as_values(HEADER + OWN_PROFILE)), "ValidatingWebhookConfiguration"
        )
        for entry in configuration["webhooks"]
    }
    assert "example.com/own-taint" in condition


@pytest.mark.parametrize(
    "content",
    [
        *("profiles: [null]", "profiles: [[]]", "profiles: [3]", "rules: 3", "rules: [x]"),
        *("rules: {x: }", "voidEveryContainer: {}", "profiles: [{alternativeVariables: 3}]"),
        *("profiles: [{taints: [null]}]", "profiles: [{taints: {}}]", "profiles: [{taints: [{}]}]"),
        *("profiles: [{fractions: {a: b}}]", "profiles: [{schedulers: [null]}]"),
        *("profiles: [{schedulers: [{annotations: x}]}]", "profiles: [{visibleDevices: [1]}]"),
        *("profiles: [{nodeLabels: []}]", "profiles: [{runtimeClasses: a}]"),
    ],
)
def test_mistakes_that_only_gpuward_sees_are_left_to_the_hook(content: str) -> None:
    assert policy_files(render(as_values(HEADER + content))) == [HEADER + content] * 3
    with pytest.raises(PolicyError):
        load_policy(HEADER + content, "gpuward.yaml")


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"policyText": HEADER, "policy": {"catalog": "0.1"}}, "policyText and policy are both"),
        ({"policyText": HEADER, "profiles": ["gke"]}, "profiles and those of policyText differ"),
        ({"policyText": "a: b: c"}, "policyText is not a policy in YAML"),
        ({"policyText": "apiVersion: v1\nkind: ConfigMap\ndata: {}\n"}, "kind should be Policy"),
        ({"extraArgs": ["--profile=gke"]}, "use profiles instead of --profile"),
        ({"extraArgs": ["--policy=/x"]}, "use policy or policyText instead of --policy=/x"),
        ({"extraArgs": ["--fallback-p=/x"]}, "use policy or policyText instead of --fallback-p"),
        ({"extraArgs": ["--gpu-exceptions=/x"]}, "use policy or policyText instead of --gpu-ex"),
        ({"policyText": "- a"}, "policyText is not a policy in YAML"),
        ({"policyText": HEADER + "profiles: gke"}, "policyText: profiles should be a list"),
        ({"policyText": HEADER + "profiles:"}, "policyText: profiles should be a list"),
        ({"policyText": HEADER + "profiles: [nvidia, hami]"}, "describe the same resource"),
    ],
)
def test_mistakes_that_helm_sees_are_refused(
    values: dict[str, object], message: str, helm: str
) -> None:
    assert message in render_error(yaml.safe_dump(values), helm=helm)
