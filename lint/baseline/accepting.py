"""The option `--baseline`: findings that the baseline lists do not count."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import NamedTuple

from lint.baseline.file import Entry, read_baseline
from lint.baseline.matching import Comparison, Paths, compare
from policies.policy import Policy
from reports.findings import LocatedFinding, SuppressedFinding
from reports.results import Remark, Results

_UPDATE = "run gpuward baseline update"


class Baseline(NamedTuple):
    """The baseline in the file called `name`."""

    name: str
    entries: list[Entry]

    def accept(self, results: Results, policy: Policy, today: datetime.date) -> None:
        """Take the findings that the baseline accepts out of `results`.

        Entries that do not fit their findings become remarks.
        """
        found = compare(self.entries, results, Paths(self.name), policy, today)
        accepted = {id(match.located) for match in found.accepted}
        results.findings = [one for one in results.findings if id(one) not in accepted]
        results.baselined = len(accepted)
        for match in found.accepted:
            suppressed = SuppressedFinding(match.located, match.entry.reason, "external")
            results.suppressed_findings.append(suppressed)
        for entry, message, level in complaints(found):
            results.remarks.append(Remark(level, self.name, entry.line, 1, message))


def load(name: str) -> Baseline:
    """The baseline in the file called `name`. Raises UsageError if it is none."""
    return Baseline(name, read_baseline(name)[0])


class Complaint(NamedTuple):
    """An entry that does not fit, what to do about it, and the level of that."""

    entry: Entry
    message: str
    level: str = "warning"


def complaints(found: Comparison) -> list[Complaint]:
    """Each entry that does not fit its finding, and what to do about it, in the file's order."""
    return sorted(_complaints(found), key=lambda complaint: complaint.entry.line)


def _complaints(found: Comparison) -> Iterator[Complaint]:
    for entry in found.stale:
        yield Complaint(entry, f"{_named(entry)} finds nothing any more: {_UPDATE}")
    for _, entry, old in found.moved:
        was = f"{_named(entry._replace(file=old))} is in {entry.file} now"
        yield Complaint(entry, f"{was}: {_UPDATE}, which keeps reason and expiry", "note")
    for _, entry, _ in found.expired:
        why = f"({entry.reason}) expired on {entry.expires}"
        yield Complaint(entry, f"the entry for {_named(entry)} {why}")
    for located, entry, _ in found.worse:
        got_worse = f"({entry.reason}) got worse: {_levels(located, entry)}"
        yield Complaint(entry, f"{_named(entry)} {got_worse}")
    for located, entry, _ in found.accepted:
        if located.level != entry.level:
            better = f"{_named(entry)} got better: {_levels(located, entry)}: {_UPDATE}"
            yield Complaint(entry, better)
    for _, entry, _ in found.not_suppressible:
        why = f"the policy does not allow a baseline to suppress {entry.rule}: remove the entry"
        yield Complaint(entry, why)


def _levels(located: LocatedFinding, entry: Entry) -> str:
    return f"its level is {located.level} now, and the entry accepts {entry.level}"


def _named(entry: Entry) -> str:
    return f"{entry.rule} in {entry.file}, {entry.object}"
