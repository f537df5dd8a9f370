"""The PodGroup with which kube-scheduler places a pod, where the cluster has such groups.

They are Kubernetes' own, with the feature gate GenericWorkload. Other schedulers have groups of the
same name, which they judge themselves.
Source: Kubernetes, `pkg/scheduler/framework/plugins/gangscheduling/gangscheduling.go` and
`pkg/scheduler/schedule_one_podgroup.go` of 1.37.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cluster.source.objects import Object
from cluster.why.hurdles import Hurdle
from rules.base.json_values import as_object, as_text


class PodGroup(NamedTuple):
    """The group of a pod.

    `raw` is the object, and None if there is none. `pods` are its pods that have not ended, and
    `bound` is how many of them have a node.
    """

    name: str
    raw: Object | None
    pods: int
    bound: int

    @property
    def missing(self) -> int:
        """Return how many of its pods must still find room, all at the same time."""
        return max(self._least - self.bound, 0)

    @property
    def _least(self) -> int:
        gang = as_object(as_object(self._spec.get("schedulingPolicy")).get("gang"))
        least = gang.get("minCount")
        return least if isinstance(least, int) else 0

    @property
    def _spec(self) -> Object:
        return {**as_object((self.raw or {}).get("spec"))}

    @property
    def hurdles(self) -> Iterator[Hurdle]:
        """Yield why kube-scheduler does not look at the pods of the group yet."""
        if self.raw is None:
            yield Hurdle(
                f"kube-scheduler waits for its PodGroup {self.name}, which does not exist",
                "create it, or look at the controller that should",
            )
        elif self.pods < self._least:
            exist = "1 exists" if self.pods == 1 else f"{self.pods:,} exist"
            yield Hurdle(
                f"its PodGroup {self.name} starts with at least {self._least:,} pods, and {exist}",
                "create the others, or lower minCount of the PodGroup",
            )

    @property
    def doubts(self) -> Iterator[str]:
        """Yield the facts about the group that also decide, and are not looked at."""
        if parent := as_text(self._spec.get("parentCompositePodGroupName")):
            yield f"what the CompositePodGroup {parent} of its PodGroup {self.name} needs"
        if self._spec.get("schedulingConstraints"):
            yield f"where the pods of its PodGroup {self.name} may run together"
