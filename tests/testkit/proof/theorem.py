"""The proof: no pod of the model that is admitted gets a device in silence.

    python -m tests.testkit.proof.theorem [--features 2]

enumerates all pods with so many features, asks the toolkits, prints the numbers, and fails if a pod
gets a device that no row of docs/coverage.md explains.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.testkit.proof.model import FEATURES, Feature
from tests.testkit.proof.states import (
    POLICIES,
    Decision,
    Features,
    Leak,
    Proof,
    decide,
    features_of,
)
from tests.testkit.proof.toolkits import SETTINGS, toolkits


class Fault(NamedTuple):
    """A planted fault: a rule that is blind to pods with a feature."""

    rule: str
    feature: Feature


class Result(NamedTuple):
    """What the proof says of all pods of a policy."""

    decided: Mapping[Features, Decision]
    unexplained: list[Leak]
    """The pods that get a device in silence, smaller ones first."""

    @property
    def admitted(self) -> int:
        """The number of pods that are admitted, as they are or fixed."""
        return sum(bool(decision.asked) for decision in self.decided.values())


def prove(proof: Proof, policy: str, size: int) -> Result:
    """Decide about all pods of up to `size` features, and compare what the admitted ones get."""
    decided = {
        chosen: decide(chosen, policy)
        for number in range(size + 1)
        for chosen in features_of(number)
    }
    proof.learn(decided.values())
    return Result(decided, list(proof.unexplained(decided, policy, decided.__getitem__)))


def noticed_faults(
    proof: Proof, decided: Mapping[Features, Decision], policy: str
) -> dict[str, set[Feature]]:
    """Return the faults that the proof notices: the features to which a rule must not be blind.

    A rule that is blind to a feature reports nothing in pods that have it.
    """
    faulty = {
        (rule, chosen): decide(chosen, policy, without=rule)
        for chosen, decision in decided.items()
        for rule in sorted(decision.rules)
    }
    changed = {
        key: decision
        for key, decision in faulty.items()
        if decision.asked and decision.asked != decided[key[1]].asked
    }
    proof.learn(changed.values())
    noticed: dict[str, set[Feature]] = {}
    for (rule, chosen), decision in changed.items():
        if any(proof.unexplained({chosen: decision}, policy, decided.__getitem__)):
            noticed.setdefault(rule, set()).update(chosen)
    return noticed


def _report(size: int, folder: Path) -> Iterator[str]:
    with toolkits(folder) as asked:
        proof = Proof(asked)
        yield f"{len(FEATURES)} features, pods of up to {size}, {2 * len(SETTINGS)} kinds of nodes"
        for policy in POLICIES:
            began = time.monotonic()
            result = prove(proof, policy, size)
            states = result.admitted * 2 * len(SETTINGS)
            yield (
                f"{policy} policy: {len(result.decided):,} pods, {result.admitted:,} admitted, "
                f"{states:,} states, {len(result.unexplained)} unexplained, "
                f"{time.monotonic() - began:.0f} s"
            )
            for leak in result.unexplained:
                yield f"  unexplained: {' and '.join(map(str, leak.features))}: {set(leak.kinds)}"
        yield f"{proof.asked:,} containers, {proof.answers:,} answers of the toolkits"


def main() -> int:
    """Run from the command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description="Prove that no device is given in silence.")
    parser.add_argument("--features", type=int, default=2, help="the most features of a pod")
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for line in _report(options.features, Path(folder)):
            failed |= line.startswith("  unexplained")
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
