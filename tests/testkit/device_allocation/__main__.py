"""Compares `gpuward why` with kube-scheduler's device allocator: `make oracle-devices`."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter

from tests.testkit.control_plane.build import device_allocator
from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.device_allocation.allocators import ask_both
from tests.testkit.device_allocation.random_cases import Cases

_BATCH = 1_000


def main() -> int:
    """Compare random questions; 1 if an answer differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000, help="default: 100,000")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    options = parser.parse_args()
    try:
        program = device_allocator()
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    cases, seen = Cases(options.seed), Counter[str]()
    for done in range(0, options.cases, _BATCH):
        count = min(_BATCH, options.cases - done)
        for answers in ask_both(program, [cases.question() for _ in range(count)]):
            seen[answers.kubernetes] += 1
            seen["unknown"] += not answers.is_known
            if answers.differ:
                seen["different"] += 1
                sys.stdout.write(f"{json.dumps(answers._asdict())}\n")
    sys.stdout.write(
        f"{options.cases:,} cases ({seen['can']:,} can, {seen['error']:,} errors), "
        f"{seen['different']:,} different answers, "
        f"{seen['unknown'] / max(options.cases, 1):.1%} not known\n"
    )
    return 1 if seen["different"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
