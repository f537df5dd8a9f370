"""Compares what the linter reports about an object with what the user reads at admission."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from policies.loading import default_policy
from rules.base.traits import GPU_WORKLOAD, NODE_AGENT
from rules.engine.fixing import FixResult, fix
from rules.finding import Action
from rules.profile.context import Context
from tests.testkit.api_subjects import pod_from_template
from tests.testkit.cases import TODAY
from tests.testkit.complete_manifests import TEMPLATES, complete_manifest
from tests.testkit.control_plane.client import Response
from tests.testkit.dry_runs import RESOURCES, UNREADABLE, DryRuns, refusal_causes
from webhook.admission.messages import fix_warnings, limit_warnings, warning_text
from webhook.admission.request import NAMESPACE_LIMIT_KINDS

RULES = default_policy().rule_set()
# What is wrong with a workload as a whole, its user reads when creating the workload.
_OF_WORKLOADS = frozenset(
    active.rule.name
    for active in RULES.rules
    if any(entry in (GPU_WORKLOAD, NODE_AGENT) for entry in active.rule.needs)
)
_RULE = re.compile(r"^gpuward \[([^\]]+)\]")


class Report(NamedTuple):
    """The report of gpuward about one pod, and whether it refuses the pod."""

    warnings: frozenset[str]
    causes: frozenset[tuple[str, str]]
    denied: bool

    @property
    def rules(self) -> set[str]:
        """The rules with a finding."""
        found = {_RULE.match(line) for line in self.warnings}
        return {match[1] for match in found if match} | {rule for rule, _ in self.causes}


class Comparison(NamedTuple):
    """The report of the linter and that of the webhook about one pod."""

    linter: Report
    webhook: Report
    answer: Response

    @property
    def difference(self) -> str:
        """Return how the reports differ: `spelled`, `unsaid` by the webhook, or `otherwise`."""
        if self.linter == self.webhook:
            return ""
        if self.linter.rules == self.webhook.rules and self.linter.denied == self.webhook.denied:
            return "spelled"
        return "unsaid" if self.webhook.rules < self.linter.rules else "otherwise"


def compare(admission: DryRuns, manifests: dict[str, Any]) -> dict[str, Comparison]:
    """The report about each of `manifests`, and the webhook's about it, or about its pod."""
    names = {f"pod-{number}": name for number, name in enumerate(manifests)}
    sent = ((n, pod_of(manifests[name])) for n, name in names.items())
    comparisons = {}
    for short, answer in admission.submit_by_name(sent).items():
        complete = complete_manifest(manifests[names[short]], admission.namespace, short)
        linter = linter_report(fix_result(complete), answer)
        comparisons[names[short]] = Comparison(linter, webhook_report(answer), answer)
    return comparisons


def fix_result(manifest: Any) -> FixResult:
    """Return what `gpuward lint --fix` makes of `manifest`."""
    return fix(manifest, RULES, Context(TODAY))


def linter_report(result: FixResult, answer: Response) -> Report:
    """The linter's findings, as far as the webhook can report them.

    An object that cannot be decoded reaches no webhook. An object that the API server itself
    refuses does not reach the validating webhook, and the mutating webhook warns only about the
    reason for that refusal.
    """
    if answer.status == UNREADABLE:
        return Report(frozenset(), frozenset(), denied=False)
    reaches_webhook = not refusal_causes(answer) or _is_refused_by_gpuward(answer)
    remaining = [f for f in result.remaining.findings if f.rule not in _OF_WORKLOADS]
    denied = [f for f in remaining if f.action is Action.DENY and reaches_webhook]
    warned = [
        f for f in remaining if f.api_refuses or (f.action is Action.WARN and reaches_webhook)
    ]
    lines = limit_warnings(
        [*fix_warnings(result.fixed, "fixed"), *(warning_text(f) for f in warned)]
    )
    return Report(frozenset(lines), frozenset((f.rule, f.message) for f in denied), bool(denied))


def webhook_report(answer: Response) -> Report:
    """Return what the API server has passed on to the user from gpuward's decisions."""
    lines = frozenset(line for line in answer.warnings if line.startswith("gpuward"))
    if not _is_refused_by_gpuward(answer):
        return Report(lines, frozenset(), denied=False)
    causes = answer.body["details"]["causes"]
    return Report(lines, frozenset((c["reason"], c["message"]) for c in causes), denied=True)


def _is_refused_by_gpuward(answer: Response) -> bool:
    return bool(refusal_causes(answer)) and "denied the request: gpuward" in answer.body["message"]


def pods(manifests: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The pods and built-in workloads, without those that have ephemeral containers.

    Ephemeral containers are added through a subresource.
    """
    return {
        name: manifest
        for name, manifest in manifests
        if (manifest.get("apiVersion"), manifest["kind"]) in RESOURCES
        and manifest["kind"] not in NAMESPACE_LIMIT_KINDS
        and not pod_of(manifest)["spec"].get("ephemeralContainers")
    }


def limits_of_namespaces(manifests: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The ResourceQuotas and LimitRanges."""
    return {
        name: manifest for name, manifest in manifests if manifest["kind"] in NAMESPACE_LIMIT_KINDS
    }


def pod_of(manifest: Any) -> Any:
    """The pod that a controller creates from a workload's template; other objects themselves."""
    kind = manifest["kind"]
    if kind not in TEMPLATES:
        return manifest
    pod = copy.deepcopy(pod_from_template(manifest, TEMPLATES[kind][0]))
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "owner", "uid": "1"}
    pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    if kind == "DaemonSet":
        # The controller replaces the required node affinity by the name of the node.
        node = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
        node_affinity = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
        node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
            "nodeSelectorTerms": [{"matchFields": [node]}]
        }
    return pod
