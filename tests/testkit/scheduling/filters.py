"""kube-scheduler's own filters, and what `gpuward why` says of the same cluster."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from cluster.accounting.account import PodLedger
from cluster.accounting.pod_requests import effective_requests
from cluster.source.objects import Object, name_of
from cluster.why.explanation import Explanation, explain
from cluster.why.nodes import read_node
from cluster.why.placed.pods import PlacedPods
from cluster.why.volumes.known import KnownVolumes
from policies.loading import default_policy
from rules.base.json_values import as_object
from rules.profile.profile import Profile
from tests.testkit.scheduling.random_clusters import Scenario

Refusals: TypeAlias = Mapping[str, frozenset[str]]
"""The reasons of kube-scheduler for each node that it refuses."""
_NOT_NAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
_CONFLICT = frozenset({"pod affinity terms conflict"})

AT_ALL = frozenset({"the pod itself"})
"""The reason of each node if a pod can have none, as its claim does not exist."""
_ABOUT_CLAIMS = re.compile(
    r"persistentvolumeclaim .*|pod has unbound immediate PersistentVolumeClaims|persistentvolume .*"
    r"|waiting for ephemeral volume controller to create .*|PVC .* was not created for pod .*"
)


def ask_kube_scheduler(program: Path, scenarios: Iterable[Scenario]) -> list[Refusals]:
    """The answer of kube-scheduler's filters to each scenario."""
    asked = "\n".join(json.dumps(one._asdict()) for one in scenarios)
    done = subprocess.run([program], input=asked, capture_output=True, text=True, check=True)
    return [*map(_refusals, map(json.loads, done.stdout.splitlines()))]


def _refusals(answer: Mapping[str, Any]) -> Refusals:
    return {node: _reasons(refusal["reasons"] or [_NOT_NAMED]) for node, refusal in answer.items()}


def _reasons(reasons: Sequence[str]) -> frozenset[str]:
    is_about_claim = any(map(_ABOUT_CLAIMS.fullmatch, reasons))
    return AT_ALL if is_about_claim else frozenset(reasons)


class Difference(NamedTuple):
    """A scenario, and what both say about it; `unknown` is what `gpuward why` does not know."""

    scenario: Scenario
    kube_scheduler: Refusals
    gpuward: Refusals
    unknown: tuple[str, ...]


def differences(program: Path, scenarios: Sequence[Scenario]) -> Iterator[Difference]:
    """The scenarios about which `gpuward why` says something else, or is not sure."""
    for scenario, expected in zip(scenarios, ask_kube_scheduler(program, scenarios), strict=True):
        found, unknown = ask_gpuward(scenario)
        if found != expected or unknown:
            yield Difference(scenario, expected, found, unknown)


def ask_gpuward(scenario: Scenario) -> tuple[Refusals, tuple[str, ...]]:
    """Return why `gpuward why` refuses each node that it refuses, and what it does not know."""
    found = explain_scenario(scenario)
    refusals = {name: frozenset(group.messages) for group in found.groups for name in group.names}
    # Of what concerns all nodes, kube-scheduler only says the first.
    if found.hurdles and set(refusals.values()) != {_CONFLICT}:
        refusals = dict.fromkeys(map(name_of, scenario.nodes), AT_ALL)
    return refusals, found.unchecked


def explain_scenario(scenario: Scenario) -> Explanation:
    """What `gpuward why` says of the pod."""
    namespaces = {name_of(one): as_object(one["metadata"]["labels"]) for one in scenario.namespaces}
    ledger, placed = PodLedger(_profile(), {}), PlacedPods(namespaces.get)
    for pod in scenario.pods:
        counted = ledger.add(pod)
        assert counted is not None
        placed.add(pod, counted.requests)
    for pod in scenario.nominated:
        placed.nominate(pod, effective_requests(pod))
    nodes = [read_node(raw, ledger.loads.get(name_of(raw))) for raw in scenario.nodes]
    return explain(scenario.pod, nodes, placed=placed, volumes=_volumes_of(scenario))


@cache
def _profile() -> Profile:
    return default_policy().profile


def _volumes_of(scenario: Scenario) -> KnownVolumes:
    def by_name(objects: Iterable[dict[str, Any]]) -> Mapping[str, Object]:
        return {name_of(raw): raw for raw in objects}

    return KnownVolumes(
        lambda home: by_name(c for c in scenario.claims if c["metadata"]["namespace"] == home),
        lambda: by_name(scenario.volumes),
        lambda: by_name(scenario.classes),
        lambda: by_name(scenario.drivers),
        lambda: by_name(scenario.csi_nodes),
        lambda node: by_name(a for a in scenario.attachments if a["spec"]["nodeName"] == node),
        lambda: by_name(scenario.capacities),
    )
