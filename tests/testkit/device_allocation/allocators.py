"""kube-scheduler's own device allocator, and what `gpuward why` says of the same node."""

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


class Answers(NamedTuple):
    """A question, and both answers: what Kubernetes says is `can`, `cannot` or `error`."""

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
        return self.is_known and self.kubernetes not in self.gpuward.split(", or ")


def ask_both(program: Path, questions: Sequence[Mapping[str, Any]]) -> Iterator[Answers]:
    """Both answers to each question."""
    asked = "\n".join(map(json.dumps, questions))
    done = subprocess.run([program], input=asked, capture_output=True, text=True, check=True)
    for question, line in zip(questions, done.stdout.splitlines(), strict=True):
        said, _, details = line.partition("\t")
        assert said in {"can", "cannot", "error"}, line
        yield Answers(question, said, details, ask_gpuward(question))


def ask_gpuward(question: Mapping[str, Any]) -> str:
    """Return gpuward's answer about the node."""
    allocator = DeviceAllocator(question["slices"], question["classes"], question["others"])
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
