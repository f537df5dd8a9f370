"""The option `--baseline`: findings that the baseline lists do not count."""

from __future__ import annotations

import datetime
from typing import NamedTuple

from lint.baseline.file import Entry, read_baseline
from lint.baseline.matching import Comparison, Paths, compare
from lint.findings import LocatedFinding, SuppressedFinding
from lint.results import Remark, Results
from rules.policy import Policy

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
        for located, entry in found.accepted:
            suppressed = SuppressedFinding(located, entry.reason, "external")
            results.suppressed_findings.append(suppressed)
        for entry, message in complaints(found):
            results.remarks.append(Remark("warning", self.name, entry.line, 1, message))


def load(name: str) -> Baseline:
    """The baseline in the file called `name`. Raises UsageError if it is none."""
    return Baseline(name, read_baseline(name)[0])


def complaints(found: Comparison) -> list[tuple[Entry, str]]:
    """Each entry that does not fit its finding, and what to do about it, in the file's order."""
    said = [(entry, f"{_named(entry)} finds nothing any more: {_UPDATE}") for entry in found.stale]
    said += [
        (entry, f"the entry for {_named(entry)} ({entry.reason}) expired on {entry.expires}")
        for _, entry in found.expired
    ]
    said += [
        (entry, f"{_named(entry)} ({entry.reason}) got worse: {_levels(located, entry)}")
        for located, entry in found.worse
    ]
    said += [
        (entry, f"{_named(entry)} got better: {_levels(located, entry)}: {_UPDATE}")
        for located, entry in found.accepted
        if located.level != entry.level
    ]
    said += [
        (entry, f"the policy does not allow a baseline to suppress {entry.rule}: remove the entry")
        for _, entry in found.not_suppressible
    ]
    return sorted(said, key=lambda item: item[0].line)


def _levels(located: LocatedFinding, entry: Entry) -> str:
    return f"its level is {located.level} now, and the entry accepts {entry.level}"


def _named(entry: Entry) -> str:
    return f"{entry.rule} in {entry.file}, {entry.object}"
