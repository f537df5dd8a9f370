"""The pods of GPU platforms are admitted with all that they need, and pass the linter."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from policies.loading import load_policy
from rules.engine.fixing import check
from rules.finding import Action
from rules.profile.context import Context
from tests.testkit.admission.reviews import Admission, response, review
from tests.testkit.cases import TODAY
from tests.testkit.coverage.table import data
from tests.testkit.platform_agents import PlatformAgent, platform_agents

POLICIES = {"default": "", "strict": data()["strict"]}
EVERY_AGENT = pytest.mark.parametrize("agent", platform_agents(), ids=lambda agent: agent.id)
EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES)
VOID = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}


@cache
def admission(policy: str, profiles: tuple[str, ...]) -> Admission:
    """The webhook in mode deny."""
    return Admission(f"profiles: [{', '.join(profiles)}]\n{POLICIES[policy]}")


def mutated(agent: PlatformAgent, policy: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The pod after the mutating webhook, and what that changed."""
    pod = agent.pod
    circumstances = {"user": agent.user, "namespace": agent.namespace}
    answer = admission(policy, tuple(agent.profiles)).mutate(pod, **circumstances)
    assert answer.allowed, answer
    sent = response(review(pod, **circumstances), answer)
    operations: list[dict[str, Any]] = sent.get("patch", [])
    for operation in operations:
        assert operation["op"] == "add", operation
        *steps, last = (s.replace("~1", "/") for s in operation["path"].split("/")[1:])
        parent: Any = pod
        for step in steps:
            parent = parent[int(step)] if isinstance(parent, list) else parent[step]
        if isinstance(parent, list):
            parent.insert(len(parent) if last == "-" else int(last), operation["value"])
        else:
            assert last not in parent, f"replaces what is there: {operation}"
            parent[last] = operation["value"]
    return pod, operations


@EVERY_POLICY
@EVERY_AGENT
def test_no_pod_is_refused(agent: PlatformAgent, policy: str) -> None:
    pod, _ = mutated(agent, policy)
    decided = admission(policy, tuple(agent.profiles))
    answer = decided.validate(pod, user=agent.user, namespace=agent.namespace)
    assert answer.allowed, answer


@EVERY_POLICY
@EVERY_AGENT
def test_no_pod_loses_anything(agent: PlatformAgent, policy: str) -> None:
    spec, hidden = agent.pod["spec"], set()
    for operation in mutated(agent, policy)[1]:
        path = operation["path"].split("/")[1:]
        if path[0] == "spec":
            assert path[1] in ("containers", "initContainers"), operation
            assert operation["value"] in (VOID, [VOID]), operation
            hidden.add(spec[path[1]][int(path[2])]["name"])
    if agent.entry.get(policy) == "fixed":
        assert hidden >= agent.agents, "the data say that this policy hides the GPUs"
    else:
        assert not hidden & agent.agents


@EVERY_AGENT
def test_the_linter_finds_no_error(agent: PlatformAgent) -> None:
    names = ", ".join(agent.profiles)
    text = f"apiVersion: gpuward.io/v1\nkind: Policy\nprofiles: [{names}]\n"
    rules = load_policy(text, "policy").rule_set()
    findings = check(agent.workload, rules, Context(today=TODAY)).findings
    assert [f for f in findings if f.action is Action.DENY] == []
