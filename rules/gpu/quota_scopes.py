"""Which pods the scopes of quotas count."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import NamedTuple

from rules.base.json_values import display
from rules.inventory.inventory import QuotaScope

PRIORITY_CLASS = "PriorityClass"
MOST_CLASSES = 20
"""More priority classes are not compared: then fewer pods are found, and none that is counted."""
# No class has this name: names are lower case.
_OTHER = "OTHER"


class PodChoices(NamedTuple):
    """What scopes ask about a pod; None if it does not matter.

    - `has_deadline`: `activeDeadlineSeconds` of the pod.
    - `is_best_effort`: no container requests or limits CPU or memory.
    - `crosses_namespaces`: a pod affinity that names namespaces.
    - `priority_class`: its name; empty if it has none.
    """

    has_deadline: bool | None
    is_best_effort: bool | None
    crosses_namespaces: bool | None
    priority_class: str | None

    def describe(self, classes: Sequence[str]) -> str:
        """The choices in words, such as "with activeDeadlineSeconds"."""
        return " and ".join(self._words(classes))

    def _words(self, classes: Sequence[str]) -> Iterator[str]:
        if self.has_deadline is not None:
            yield f"{'with' if self.has_deadline else 'without'} activeDeadlineSeconds"
        if self.is_best_effort is not None:
            yield f"{'without' if self.is_best_effort else 'with'} requests for CPU or memory"
        if self.crosses_namespaces is not None:
            preposition = "with" if self.crosses_namespaces else "without"
            yield f"{preposition} an affinity to pods of other namespaces"
        if self.priority_class == _OTHER:
            yield f"with a priority class other than {', '.join(map(display, classes[:3]))}"
        elif self.priority_class is not None:
            known = f"with the priority class {display(self.priority_class)}"
            yield known if self.priority_class else "without a priority class"


class UncountedPods(NamedTuple):
    """Pods that no quota counts: the choices that make a pod one of them, and their words.

    Without any choice, no pod is counted.
    """

    choices: PodChoices
    words: str


def uncounted_pods(quotas: Iterable[tuple[QuotaScope, ...]]) -> UncountedPods | None:
    """The fewest choices by which no quota with one of these scopes counts a pod; None if none do.

    Choices of a priority class come last: a cluster can restrict who may choose which.
    """
    scopes = list(quotas)
    named = {
        value
        for each in scopes
        for scope in each
        if scope.name == PRIORITY_CLASS
        for value in scope.values
    }
    classes = sorted(named)[:MOST_CLASSES]
    values = ((False, True), (False, True), (False, True), (_OTHER, "", *classes))
    missed = [
        pod
        for pod in map(PodChoices._make, product(*values))
        if not any(all(_meets(pod, scope) for scope in each) for each in scopes)
    ]
    if not missed:
        return None
    fields = range(len(values))
    subsets = [kept for size in range(len(values) + 1) for kept in combinations(fields, size)]
    for kept in sorted(subsets, key=lambda kept: (fields[-1] in kept, len(kept))):
        others = 1
        for field in fields:
            others *= 1 if field in kept else len(values[field])
        seen = Counter(tuple(pod[field] for field in kept) for pod in missed)
        for chosen, count in seen.items():
            if count == others:
                by_field = dict(zip(kept, chosen, strict=True))
                choices = PodChoices._make(by_field.get(field) for field in fields)
                return UncountedPods(choices, choices.describe(classes))
    return None


def _meets(pod: PodChoices, scope: QuotaScope) -> bool:
    """Whether the API server finds that the pod meets the scope."""
    if scope.name == PRIORITY_CLASS:
        return _meets_class(pod.priority_class or "", scope)
    met = {
        "Terminating": pod.has_deadline,
        "NotTerminating": not pod.has_deadline,
        "BestEffort": pod.is_best_effort,
        "NotBestEffort": not pod.is_best_effort,
        "CrossNamespacePodAffinity": pod.crosses_namespaces,
        "VolumeAttributesClass": False,  # of volumes, and never of a pod
    }
    return bool(met.get(scope.name, True))  # the API server refuses other scopes


def _meets_class(name: str, scope: QuotaScope) -> bool:
    met = {
        "Exists": bool(name),
        "DoesNotExist": not name,
        "In": name in scope.values,
        "NotIn": name not in scope.values,
    }
    return met.get(scope.operator, True)
