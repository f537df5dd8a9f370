"""The exception that the help of a finding in an agent's pod names accepts that agent alone."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import yaml

from policies.loading import load_policy
from rules.engine.fixing import check
from rules.profile.context import Context
from tests.testkit.cases import TODAY

HEADER = "apiVersion: gpuward.io/v1\nkind: Policy\n"
EXCEPTION = re.compile(r"or write the exception (\{.*\})")
IMAGE = "nvcr.io/nvidia/k8s/dcgm-exporter:3.3.0-3.2.0-ubuntu22.04"
DIGEST = "sha256:" + "0" * 64
AGENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "exporter", "namespace": "gmp-public"},
    "spec": {
        "template": {
            "spec": {
                "serviceAccountName": "exporter",
                "nodeSelector": {"nvidia.com/gpu.present": "true"},
                "containers": [
                    {"name": "a", "image": IMAGE, "securityContext": {"privileged": True}}
                ],
            }
        }
    },
}


def with_image(image: str) -> dict[str, Any]:
    agent = copy.deepcopy(AGENT)
    agent["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return agent


def helps(agent: dict[str, Any], policy: str = "") -> list[str]:
    """The help of each finding of the rule privileged-gpu."""
    rules = load_policy(HEADER + policy, "p").rule_set()
    found = check(agent, rules, Context(TODAY)).findings
    return [finding.help for finding in found if finding.rule == "privileged-gpu"]


def policy_of(help_text: str) -> str:
    """A policy with the exception that the text names."""
    advised = EXCEPTION.search(help_text)
    assert advised, help_text
    exception = yaml.safe_load(advised[1])
    exception["reason"] = "the exporter of the platform"
    text: str = yaml.safe_dump({"exceptions": [exception]})
    return text


@pytest.mark.parametrize(
    ("image", "newer", "other"),
    [
        (IMAGE, "nvcr.io/nvidia/k8s/dcgm-exporter:4", "example.com/k8s/dcgm-exporter:4"),
        (f"a.io:5000/b@{DIGEST}", f"a.io:5000/b@{DIGEST[:-1]}1", f"a.io:5000/bc@{DIGEST}"),
        ("a.io/b", "a.io/b", "a.io/c"),
    ],
)
def test_the_exception_accepts_the_agent_alone(image: str, newer: str, other: str) -> None:
    (advice,) = helps(with_image(image))
    policy = policy_of(advice)
    assert helps(with_image(image), policy) == []
    assert helps(with_image(newer), policy) == []
    assert len(helps(with_image(other), policy)) == 1
    elsewhere = with_image(image)
    elsewhere["metadata"]["namespace"] = "team"
    assert len(helps(elsewhere, policy)) == 1
    somebody = with_image(image)
    somebody["spec"]["template"]["spec"]["serviceAccountName"] = "default"
    assert len(helps(somebody, policy)) == 1


@pytest.mark.parametrize("image", ["", "a.io/*", "{{ image }}", "a" * 200])
def test_an_image_that_no_pattern_names_is_in_no_exception(image: str) -> None:
    assert all("or write the exception" not in advice for advice in helps(with_image(image)))
