"""kube-scheduler's own device allocators, and what `gpuward why` says of the same node."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cluster.why.devices.allocator import Allocation, DeviceAllocator
from cluster.why.devices.requests import read_claim
from cluster.why.node_affinity import selects
from cluster.why.nodes import read_node
from rules.engine.bounds import StepLimit
from rules.profile.platforms.records import Version, parse_version
from tests.testkit.control_plane.build import device_allocator
from tests.testkit.device_allocation.random_cases import Cases

_BY_DEFAULT = ("AdminAccess", "PrioritizedList", "DeviceStatus")
_NEWER = ("PartitionableDevices", "DeviceTaints", "ConsumableCapacity")
_SINCE_1_36 = ("AdminAccess", "PrioritizedList", "DeviceBindingAndStatus", *_NEWER)
ENABLED = {
    "1.34": _BY_DEFAULT,
    "1.36": _SINCE_1_36,
    "1.37": (*_SINCE_1_36, "FractionalCapacityRange"),
}
"""The features that the allocator of a release has by default, by the names of its fields.

Source: Kubernetes, `pkg/features/kube_features.go` of 1.34.4, 1.36.3 and 1.37.2.
"""


class KubernetesAllocator(NamedTuple):
    """The allocator of a release of Kubernetes, with the features that are enabled."""

    program: Path
    release: str
    enabled: tuple[str, ...]

    def cases(self, seed: int) -> Cases:
        """Return a source of questions with the fields that this release has by default."""
        return Cases(seed, has_newer_fields="ConsumableCapacity" in self.enabled)


def allocator_of(release: str) -> KubernetesAllocator:
    """Return the allocator of a release, with the features that it has by default.

    Raises BuildError.
    """
    return KubernetesAllocator(device_allocator(release), release, ENABLED[release])


class Answers(NamedTuple):
    """A question, and both answers: Kubernetes says `can`, `cannot`, `error`, or `slow`."""

    question: Mapping[str, Any]
    kubernetes: str
    details: str
    gpuward: str
    """`can`, `cannot`, `error`, or what would have to be known; maybe `cannot, or error`."""

    @property
    def is_known(self) -> bool:
        """Return whether gpuward has an answer."""
        return self.gpuward.partition(",")[0] in {"can", "cannot", "error"}

    @property
    def differ(self) -> bool:
        """Return whether gpuward has another answer."""
        if self.kubernetes == "slow":
            return False
        return self.is_known and self.kubernetes not in self.gpuward.split(", or ")


def ask_both(
    allocator: KubernetesAllocator,
    questions: Sequence[Mapping[str, Any]],
    *,
    is_version_known: bool = True,
) -> Iterator[Answers]:
    """Both answers to each question; gpuward may know the release of Kubernetes."""
    asked = "\n".join(map(json.dumps, questions))
    command = [str(allocator.program), *allocator.enabled]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)
    version = parse_version(f"v{allocator.release}.9") if is_version_known else None
    for question, line in zip(questions, done.stdout.splitlines(), strict=True):
        said, _, details = line.partition("\t")
        assert said in {"can", "cannot", "error", "slow"}, line
        yield Answers(question, said, details, ask_gpuward(question, version))


def ask_gpuward(question: Mapping[str, Any], version: Version | None) -> str:
    """Return gpuward's answer about the node, in a cluster of a version."""
    allocator = DeviceAllocator(
        question["slices"], question["classes"], question["others"], version=version
    )
    claims = [
        read_claim(f"claim {raw['metadata']['name']}", raw["spec"]) for raw in question["claims"]
    ]
    if allocator.missing_classes(claims):
        return "error"
    node = read_node(question["node"], None)
    found = allocator.allocate(
        claims, node.name, lambda selector: selects(selector, node), StepLimit()
    )
    if found.allocation is Allocation.CANNOT:
        return "error" if found.is_fatal else f"cannot{', or error' if found.may_end else ''}"
    return found.unknown or found.allocation.value
