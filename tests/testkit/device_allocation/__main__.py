"""Compares `gpuward why` with kube-scheduler's device allocators: `make oracle-devices`."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter

from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.device_allocation.allocators import (
    ENABLED,
    KubernetesAllocator,
    allocator_of,
    ask_both,
)

_BATCH = 1_000


def main() -> int:
    """Compare random questions; 1 if an answer differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000, help="default: 100,000")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("--release", choices=ENABLED, help="of Kubernetes; default: each")
    options = parser.parse_args()
    releases = [options.release] if options.release else [*ENABLED]
    try:
        allocators = [allocator_of(release) for release in releases]
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    different = [_compare(each, options.cases, options.seed) for each in allocators]
    return 1 if any(different) else 0


def _compare(allocator: KubernetesAllocator, count: int, seed: int) -> int:
    """Print the answers that differ; how many do."""
    cases, seen = allocator.cases(seed), Counter[str]()
    for done in range(0, count, _BATCH):
        questions = [cases.question() for _ in range(min(_BATCH, count - done))]
        for answers in ask_both(allocator, questions):
            seen[answers.kubernetes] += 1
            seen["unknown"] += not answers.is_known
            if answers.differ:
                seen["different"] += 1
                sys.stdout.write(f"{json.dumps(answers._asdict())}\n")
    sys.stdout.write(
        f"Kubernetes {allocator.release}: {count:,} cases ({seen['can']:,} can, "
        f"{seen['error']:,} errors), {seen['different']:,} different answers, "
        f"{seen['unknown'] / max(count, 1):.1%} not known\n"
    )
    return seen["different"]


if __name__ == "__main__":
    raise SystemExit(main())
