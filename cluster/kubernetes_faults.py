"""Faults of Kubernetes about devices, and which versions have them.

Each was looked for in the source of the versions beside it, as the module proxy of Go serves it.
"""

from __future__ import annotations

from typing import NamedTuple

from rules.profile.platforms.records import Version, compare_versions, parse_version


class KubernetesFault(NamedTuple):
    """A fault of Kubernetes.

    - `number`: the pull request that removes it.
    - `effect`: what Kubernetes does.
    - `instead`: what to do until it is upgraded.
    - `first_version`: the oldest version of which it is known.
    - `fixed_versions`: the first version without it, of each series that has one, the newest last.
      Older series without one keep the fault.
    """

    number: int
    effect: str
    instead: str
    first_version: str
    fixed_versions: tuple[str, ...]

    def __str__(self) -> str:
        return f"kubernetes#{self.number}"

    def affects(self, version: Version) -> bool | None:
        """Return whether a version has the fault; None if too little of the version is known."""
        from_first = _compare(version, self.first_version)
        if from_first is None or from_first < 0:
            return None if from_first is None else False
        order = _compare(version, self.fix_for(version))
        return None if order is None else order < 0

    def fix_for(self, version: Version) -> str:
        """The version without the fault to which to upgrade: of the same series if there is one."""
        series = version.numbers[:2]
        same = (text for text in self.fixed_versions if _numbers(text)[:2] == series)
        return next(same, self.fixed_versions[-1])


def _compare(version: Version, text: str) -> int | None:
    other = parse_version(text)
    return None if other is None else compare_versions(version, other)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


CLAIMS_RACE = KubernetesFault(
    136269,
    "kube-scheduler may give one device to two claims when it schedules many pods at once",
    "see whether the driver refuses the second pod, and the row `cards given twice`",
    "1.32.0",
    # pkg/scheduler/framework/plugins/dynamicresources/allocateddevices.go: read in 1.34.3, 1.34.4,
    # 1.35.0, 1.35.1 and 1.37.1; 1.32 and 1.33 by the pull requests 136564 and 136565.
    ("1.32.12", "1.33.8", "1.34.4", "1.35.1", "1.36.0"),
)
SHARED_COUNTERS = KubernetesFault(
    139040,
    "kube-scheduler may give partitions that exclude each other to two pods: it forgets the "
    "counters that devices with several allocations use",
    "let the driver offer partitions, or devices with several allocations, and not both",
    "1.34.0",
    # structured/internal/*/allocator_*.go of k8s.io/dynamic-resource-allocation: read in 0.34.13,
    # 0.35.10, 0.36.1, 0.36.2 and 0.37.0.
    ("1.36.2",),
)
DISTINCT_VALUES = KubernetesFault(
    135022,
    "kube-scheduler may give a claim devices with the same value of an attribute, although its "
    "constraint wants different ones: it compares where the values are stored",
    "select each of these devices by a request of its own, and a selector",
    "1.34.0",
    # structured/internal/experimental/constraint.go of k8s.io/dynamic-resource-allocation: read in
    # 0.34.13, 0.35.0 and 0.35.10.
    ("1.35.0",),
)
DISTINCT_DEVICES = KubernetesFault(
    140600,
    "kube-scheduler may give a claim devices with the same value of an attribute, although its "
    "constraint wants different ones: of a request for several devices it compares the last one",
    "ask for each of these devices by a request of its own",
    "1.34.0",
    # structured/internal/*/constraint.go of k8s.io/dynamic-resource-allocation: read in 0.34.4,
    # 0.34.13, 0.35.10, 0.36.3, 0.36.6, 0.37.0 and 0.37.2.
    ("1.37.0",),
)
RULE_WITHOUT_SELECTOR = KubernetesFault(
    141648,
    "kube-scheduler takes a DeviceTaintRule without deviceSelector to be about every device, "
    "although it is about none",
    "give the rule a deviceSelector, or delete it",
    "1.33.0",
    # resourceslice/tracker/tracker.go of k8s.io/dynamic-resource-allocation: read in 0.33.13,
    # 0.34.13, 0.35.10, 0.36.6, 0.37.0, 0.37.1 and 0.37.2.
    ("1.37.1",),
)
EXTENDED_RESOURCES_STAY = KubernetesFault(
    142289,
    "a taint with the effect NoExecute does not end pods whose devices come from an extended "
    "resource: they keep a device that they should lose",
    "delete these pods yourself",
    "1.37.0",
    # pkg/controller/devicetainteviction/device_taint_eviction.go: read in 1.37.0, 1.37.1 and
    # 1.37.2, for which the pull request 142492 is. Issue 141290 has seen it up to 1.36.3; later
    # releases of 1.36 were not read.
    ("1.37.2",),
)
PLUGIN_RACE = KubernetesFault(
    137534,
    "a kubelet may give one device of a device plugin to two pods that start at the same time",
    "delete one of the pods: it gets another device",
    "1.32.0",
    # pkg/kubelet/cm/devicemanager/manager.go: read in 1.32.11, 1.33.7, 1.34.4, 1.35.1, 1.37.1 and
    # 1.37.2; CHANGELOG-1.38.md.
    ("1.38.0",),
)
FAULTS = (
    *(CLAIMS_RACE, SHARED_COUNTERS, DISTINCT_VALUES, DISTINCT_DEVICES),
    *(RULE_WITHOUT_SELECTOR, EXTENDED_RESOURCES_STAY, PLUGIN_RACE),
)
