"""One pod at two doors: what the linter says of its file, and what a user reads at admission."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from policies.loading import default_policy
from rules.engine.fixing import FixResult, fix
from rules.finding import Action
from rules.profile.context import Context
from tests.testkit.api_subjects import template_of
from tests.testkit.cases import TODAY
from tests.testkit.complete_manifests import TEMPLATES, completed
from tests.testkit.control_plane.client import Answer
from tests.testkit.dry_runs import RESOURCES, UNREADABLE, DryRuns, objections
from webhook.admission.messages import fix_warnings, limit_warnings, warning

RULES = default_policy().rule_set()
_RULE = re.compile(r"^gpuward \[([^\]]+)\]")


class Told(NamedTuple):
    """What a user is told of one pod, and whether it is refused by us."""

    warnings: frozenset[str]
    causes: frozenset[tuple[str, str]]
    denied: bool

    @property
    def rules(self) -> set[str]:
        """The rules that spoke."""
        found = {_RULE.match(line) for line in self.warnings}
        return {match[1] for match in found if match} | {rule for rule, _ in self.causes}


class Judged(NamedTuple):
    """One pod at both doors."""

    file: Told
    door: Told
    answer: Answer

    @property
    def difference(self) -> str:
        """How the doors differ: in how a thing is spelled, in that the second one is silent."""
        if self.file == self.door:
            return ""
        if self.file.rules == self.door.rules and self.file.denied == self.door.denied:
            return "spelled"
        return "unsaid" if self.door.rules < self.file.rules else "otherwise"


def at_both_doors(admission: DryRuns, manifests: dict[str, Any]) -> dict[str, Judged]:
    """`manifests` as the linter sees them, and the pods made from them at the door."""
    names = {f"pod-{number}": name for number, name in enumerate(manifests)}
    asked = ((n, pod_of(manifests[name])) for n, name in names.items())
    judged = {}
    for short, answer in admission.ask_by_name(asked).items():
        whole = completed(manifests[names[short]], admission.namespace, short)
        file = by_the_file(fixed(whole), answer)
        judged[names[short]] = Judged(file, at_the_door(answer), answer)
    return judged


def fixed(manifest: Any) -> FixResult:
    """What `gpuward lint --fix` makes of `manifest`."""
    return fix(manifest, RULES, Context(TODAY))


def by_the_file(result: FixResult, answer: Answer) -> Told:
    """What the linter's findings amount to at the door.

    What cannot be decoded reaches no webhook. What the API server itself refuses does not reach
    the validating one, and the mutating one speaks only of what makes it refuse.
    """
    if answer.status == UNREADABLE:
        return Told(frozenset(), frozenset(), denied=False)
    reaches_us = not objections(answer) or _is_ours(answer)
    left = result.remaining.findings
    denied = [f for f in left if f.action is Action.DENY and reaches_us]
    spoken = [f for f in left if f.api_refuses or (f.action is Action.WARN and reaches_us)]
    lines = limit_warnings([*fix_warnings(result.fixed, "fixed"), *(warning(f) for f in spoken)])
    return Told(frozenset(lines), frozenset((f.rule, f.message) for f in denied), bool(denied))


def at_the_door(answer: Answer) -> Told:
    """What the API server has passed on of our answers."""
    ours = frozenset(line for line in answer.warnings if line.startswith("gpuward"))
    if not _is_ours(answer):
        return Told(ours, frozenset(), denied=False)
    causes = answer.body["details"]["causes"]
    return Told(ours, frozenset((c["reason"], c["message"]) for c in causes), denied=True)


def _is_ours(answer: Answer) -> bool:
    return bool(objections(answer)) and "denied the request: gpuward" in answer.body["message"]


def pods(manifests: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The pods and built-in workloads; ephemeral containers come through another door."""
    return {
        name: manifest
        for name, manifest in manifests
        if (manifest.get("apiVersion"), manifest["kind"]) in RESOURCES
        and manifest["kind"] != "ResourceQuota"
        and not pod_of(manifest)["spec"].get("ephemeralContainers")
    }


def pod_of(manifest: Any) -> Any:
    """The pod itself, or the one that a controller makes from a workload's template."""
    kind = manifest["kind"]
    if kind == "Pod":
        return manifest
    pod = copy.deepcopy(template_of(manifest, TEMPLATES[kind][0]))
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "owner", "uid": "1"}
    pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    if kind == "DaemonSet":
        # Its controller names the node in the place of whatever was required of nodes.
        node = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
        placing = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
        placing["requiredDuringSchedulingIgnoredDuringExecution"] = {
            "nodeSelectorTerms": [{"matchFields": [node]}]
        }
    return pod
