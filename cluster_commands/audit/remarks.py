"""What an audit says about pods together, besides the findings in each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from cluster.audit.evaluation import Evaluated
from cluster.audit.facts import Facts
from lint.report import many
from reports.findings import RULES
from reports.results import Remark
from rules.base.json_access import as_object, as_text
from rules.finding import Action
from rules.gpu.devices import pod_requests_gpu
from rules.objects.pod import Pod
from rules.profile.profile import Profile
from rules.workloads.discovery import find_subjects

_BYPASS = "bypass"  # the family of rules about ways to GPUs
_NAMED = 5  # pods in a remark


class PodRemarks:
    """Collects running pods that can use GPUs without a request, and pods that admission refuses.

    If the nodes with GPUs are not known, every node counts as one.
    """

    def __init__(self, profile: Profile, facts: Facts) -> None:
        self._profile = profile
        self._facts = facts
        self._unrequested: dict[str, _Names] = defaultdict(_Names)
        self._refused: dict[str, _Names] = defaultdict(_Names)

    def add(self, evaluated: Evaluated) -> None:
        """Add the object, if it is such a pod."""
        errors = [f for f in evaluated.findings if f.action is Action.DENY]
        if not errors or evaluated.raw.get("kind") != "Pod":
            return
        metadata = as_object(evaluated.raw.get("metadata"))
        namespace = as_text(metadata.get("namespace"))
        is_denied = self._facts.mode_of(namespace) == Action.DENY.word
        if is_denied and not self._facts.is_excluded(namespace):
            self._refused[namespace].add(str(evaluated.ref))
        if any(RULES[f.rule].family == _BYPASS for f in errors):
            self._add_unrequested(evaluated)

    def _add_unrequested(self, evaluated: Evaluated) -> None:
        raw, nodes = evaluated.raw, self._facts.gpu_nodes
        node = as_text(as_object(raw.get("spec")).get("nodeName"))
        is_running = as_object(raw.get("status")).get("phase") == "Running"
        if is_running and (nodes is None or node in nodes) and not _requests(raw, self._profile):
            self._unrequested[node].add(str(evaluated.ref))

    @property
    def unrequested(self) -> int:
        """How many running pods can use GPUs that nobody requested."""
        return sum(names.count for names in self._unrequested.values())

    @property
    def refused(self) -> int:
        """How many pods the modes of their namespaces would refuse now."""
        return sum(names.count for names in self._refused.values())

    def remarks(self) -> Iterator[Remark]:
        """A warning for each node, and for each namespace."""
        for node, pods in sorted(self._unrequested.items()):
            what = f"{many(pods.count, 'running pod')} can use GPUs that nobody requested"
            yield Remark("warning", "", 0, 0, f"node {node}: {what}: {pods}")
        for namespace, pods in sorted(self._refused.items()):
            what = f"{many(pods.count, 'pod')} would be refused now: created before the namespace"
            what += " was in mode deny, or while admission did not answer"
            yield Remark("warning", "", 0, 0, f"namespace {namespace}: {what}: {pods}")


class _Names:
    """Names of pods: how many, and some of them."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[str] = []

    def add(self, name: str) -> None:
        self.count += 1
        if self.count <= _NAMED:
            self._first.append(name)

    def __str__(self) -> str:
        more = self.count - len(self._first)
        return ", ".join(self._first) + (f" and {more} more" if more else "")


def _requests(raw: Mapping[str, object], profile: Profile) -> bool:
    subjects = find_subjects({**raw}, profile)
    return any(isinstance(pod, Pod) and pod_requests_gpu(pod) for pod in subjects)
