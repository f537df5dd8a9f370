"""Compares `gpuward why` with the filters of kube-scheduler: `make oracle-scheduler`.

With --remedies it tries what `gpuward why` says would change its answer: `make oracle-remedies`.
"""

from __future__ import annotations

import argparse
import json
import sys
from math import inf
from random import Random
from time import monotonic

from tests.testkit.control_plane.build import scheduler_filters
from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.scheduling.filters import differences
from tests.testkit.scheduling.random_clusters import random_scenario
from tests.testkit.scheduling.remedies import broken_promises

_BATCH = 1_000


def main() -> int:
    """Compare random scenarios; 1 if an answer differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000, help="default: 100,000")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("--minutes", type=float, default=inf, help="stop after so many")
    parser.add_argument("--remedies", action="store_true", help="try the remedies")
    options = parser.parse_args()
    try:
        program = scheduler_filters()
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    random = Random(options.seed)  # noqa: S311  # not a secret
    done = found = 0
    compare = broken_promises if options.remedies else differences
    end = monotonic() + 60 * options.minutes
    while done < options.cases and monotonic() < end:
        count = min(_BATCH, options.cases - done)
        for different in compare(program, [random_scenario(random) for _ in range(count)]):
            found += 1
            sys.stdout.write(f"{json.dumps(different._asdict(), default=sorted)}\n")
        done += count
    what = "remedies that do not help" if options.remedies else "different answers"
    sys.stdout.write(f"{done:,} cases, {found:,} {what}\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
