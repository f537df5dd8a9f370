"""Add up what the containers of a pod request, as kube-scheduler does."""

from collections.abc import Iterable, Mapping
from typing import Any


def runs_with_others(container: Mapping[str, Any], *, is_init: bool) -> bool:
    """Return whether a container runs beside those that start later, as also sidecars do."""
    return not is_init or container.get("restartPolicy") == "Always"


def amounts_together(containers: Iterable[tuple[bool, Mapping[str, int]]]) -> dict[str, int]:
    """The amounts that the containers of a pod take together, by resource.

    `containers` are in the order in which they start, init containers first: whether each runs with
    others, and its amounts. All that run with others add up; what ends before the next one starts
    counts beside those that were started before it, if that is more.
    Source: Kubernetes, `staging/src/k8s.io/component-helpers/resource/helpers.go`, PodRequests.
    """
    highest: dict[str, int] = {}
    running: dict[str, int] = {}
    for stays, amounts in containers:
        for name, amount in amounts.items():
            total = running.get(name, 0) + amount
            if total > highest.get(name, 0):
                highest[name] = total
            if stays:
                running[name] = total
    return highest
