"""Compare the findings of a run with the entries of a baseline."""

from __future__ import annotations

import datetime
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from lint.baseline.file import BaselineEntry, read_baseline
from policies.policy import Policy
from reports.entries import fingerprint
from reports.findings import ACTION_BY_LEVEL, LocatedFinding, SuppressedFinding
from reports.formats import affected_objects_text
from reports.results import Remark, Results
from rules.finding import Action
from sources import STANDARD_INPUT
from terminal import printable

PolicyOf: TypeAlias = Callable[[str], Policy]
"""The policy by which a file was evaluated, by the name of the file."""
_MAX_OBJECT_CHARACTERS = 300  # characters; people read it, and tenants choose it


class MatchedFinding(NamedTuple):
    """A finding with its entry, whose `file` is where the finding is now.

    `moved_from` is the file that the baseline names, if that is another one; otherwise empty.
    """

    located: LocatedFinding
    entry: BaselineEntry
    moved_from: str = ""


class BaselineComparison(NamedTuple):
    """The comparison of a run's findings with a baseline.

    - `accepted`: findings that do not count, each with its entry.
    - `expired`: the same for entries that have expired; these findings count.
    - `worse`: the same for entries that accept only a lower level; these findings count.
    - `not_suppressible`: the same for rules that the policy lets no user suppress.
    - `new`: findings without an entry.
    - `stale`: entries without a finding, of files that were evaluated, or that are gone.
    - `unseen`: entries of other files, of which this run says nothing.
    """

    accepted: list[MatchedFinding]
    expired: list[MatchedFinding]
    worse: list[MatchedFinding]
    not_suppressible: list[MatchedFinding]
    new: list[LocatedFinding]
    stale: list[BaselineEntry]
    unseen: list[BaselineEntry]

    @property
    def moved(self) -> list[MatchedFinding]:
        """Findings whose entries name another file."""
        matches = (*self.accepted, *self.expired, *self.worse, *self.not_suppressible)
        return [match for match in matches if match.moved_from]


class BaselinePaths:
    """Names of files as a baseline has them: relative to its folder, with slashes."""

    def __init__(self, baseline: str) -> None:
        self._folder = os.path.realpath(os.path.dirname(baseline))
        self._known: dict[str, str] = {}

    def name_in_baseline(self, name: str) -> str:
        """The file that reports call `name`."""
        if name == STANDARD_INPUT:
            return name
        known = self._known.get(name)
        if known is None:
            folder, base = os.path.split(name)
            path = os.path.relpath(os.path.join(os.path.realpath(folder), base), self._folder)
            known = self._known[name] = printable(path.replace(os.sep, "/"))
        return known

    def exists(self, file: str) -> bool:
        """Return whether there is a file that a baseline calls `file`."""
        return os.path.lexists(os.path.join(self._folder, file))


def new_entry(located: LocatedFinding, paths: BaselinePaths, reason: str) -> BaselineEntry:
    """A new entry for a finding."""
    finding = located.finding
    return BaselineEntry(
        fingerprint=fingerprint(finding.identity),
        file=paths.name_in_baseline(located.file),
        rule=finding.rule,
        level=located.level,
        object=printable(affected_objects_text(located))[:_MAX_OBJECT_CHARACTERS] or STANDARD_INPUT,
        container=printable(finding.container_name)[:_MAX_OBJECT_CHARACTERS],
        reason=reason,
    )


def compare_with_baseline(
    entries: Iterable[BaselineEntry],
    results: Results,
    paths: BaselinePaths,
    policy_of: PolicyOf,
    today: datetime.date,
) -> BaselineComparison:
    """Find the entry of each finding in `results`.

    An entry stands for one finding. That of a file accepts no finding in another file, unless the
    file is gone, or no longer has the finding: then the object has moved.
    """
    found = BaselineComparison([], [], [], [], [], [], [])
    matches, unused = _matches(list(entries), results, paths)
    for located in results.findings:
        match = matches.get(id(located))
        settings = policy_of(located.file).rules.get(located.finding.rule)
        if match is None:
            found.new.append(located)
        elif settings and not settings.suppressible:
            found.not_suppressible.append(match)
        elif match.entry.has_expired(today):
            found.expired.append(match)
        elif located.finding.action > ACTION_BY_LEVEL[match.entry.level]:
            found.worse.append(match)
        else:
            found.accepted.append(match)
    evaluated = _evaluated_files(results, paths)
    for entry in unused:
        is_stale = entry.file in evaluated or not paths.exists(entry.file)
        (found.stale if is_stale else found.unseen).append(entry)
    return found


def _matches(
    entries: list[BaselineEntry], results: Results, paths: BaselinePaths
) -> tuple[dict[int, MatchedFinding], list[BaselineEntry]]:
    """The match of each finding that has an entry, by the finding's `id()`; and unused entries.

    Of findings with the same fingerprint, the worst get the entries that accept most.
    """
    by_place: dict[tuple[str, str], list[BaselineEntry]] = defaultdict(list)
    for entry in sorted(entries, key=_order_of_use):
        by_place[entry.fingerprint, entry.file].append(entry)
    matches: dict[int, MatchedFinding] = {}
    elsewhere: list[tuple[LocatedFinding, str, str]] = []
    for located in sorted(results.findings, key=lambda one: one.finding.action, reverse=True):
        place = fingerprint(located.finding.identity), paths.name_in_baseline(located.file)
        if by_place.get(place):
            matches[id(located)] = MatchedFinding(located, by_place[place].pop())
        else:
            elsewhere.append((located, *place))
    movable: dict[str, list[BaselineEntry]] = defaultdict(list)
    evaluated = _evaluated_files(results, paths)
    rest = [entry for left in by_place.values() for entry in left]
    for entry in sorted(rest, key=_order_of_use):
        if entry.file in evaluated or not paths.exists(entry.file):
            movable[entry.fingerprint].append(entry)
    used = set()
    for located, mark, file in elsewhere:
        if movable.get(mark):
            entry = movable[mark].pop()
            used.add(id(entry))
            matches[id(located)] = MatchedFinding(located, entry._replace(file=file), entry.file)
    unused = sorted((e for e in rest if id(e) not in used), key=lambda entry: entry.line)
    return matches, unused


def _order_of_use(entry: BaselineEntry) -> tuple[Action, int]:
    """For lists that are used from the end: what accepts most, then what is first in the file."""
    return ACTION_BY_LEVEL[entry.level], -entry.line


def _evaluated_files(results: Results, paths: BaselinePaths) -> Collection[str]:
    """The files of which every finding is known."""
    incomplete = {failed.file for failed in results.not_evaluated}
    incomplete |= {skipped.name for skipped in results.skipped}
    return {paths.name_in_baseline(name) for name in results.file_names if name not in incomplete}


_UPDATE_ADVICE = "run gpuward baseline update"


class Baseline(NamedTuple):
    """The baseline in the file called `name`."""

    name: str
    entries: list[BaselineEntry]

    def drop_accepted(
        self,
        results: Results,
        policy_of: PolicyOf,
        today: datetime.date,
        wanted_rules: Collection[str] | None = None,
    ) -> None:
        """Take the findings that the baseline accepts out of `results`.

        Entries that do not fit their findings become remarks. Only `wanted_rules` were evaluated;
        None stands for all.
        """
        entries = [one for one in self.entries if wanted_rules is None or one.rule in wanted_rules]
        found = compare_with_baseline(entries, results, BaselinePaths(self.name), policy_of, today)
        accepted = {id(match.located) for match in found.accepted}
        results.findings = [one for one in results.findings if id(one) not in accepted]
        results.baselined = len(accepted)
        for match in found.accepted:
            suppressed = SuppressedFinding(match.located, match.entry.reason, "external")
            results.suppressed_findings.append(suppressed)
        for entry, message, level in complaints(found):
            results.remarks.append(Remark(level, self.name, entry.line, 1, message))


def load_baseline(name: str) -> Baseline:
    """The baseline in the file called `name`. Raises UsageError if it is none."""
    return Baseline(name, read_baseline(name)[0])


class Complaint(NamedTuple):
    """An entry that does not fit, what to do about it, and the level of that."""

    entry: BaselineEntry
    message: str
    level: str = "warning"


def complaints(found: BaselineComparison) -> list[Complaint]:
    """Each entry that does not fit its finding, and what to do about it, in the file's order."""
    return sorted(_complaints(found), key=lambda complaint: complaint.entry.line)


def _complaints(found: BaselineComparison) -> Iterator[Complaint]:
    for entry in found.stale:
        yield Complaint(entry, f"{_entry_text(entry)} finds nothing any more: {_UPDATE_ADVICE}")
    for _, entry, old in found.moved:
        was = f"{_entry_text(entry._replace(file=old))} is in {entry.file} now"
        yield Complaint(entry, f"{was}: {_UPDATE_ADVICE}, which keeps reason and expiry", "note")
    for _, entry, _ in found.expired:
        why = f"({entry.reason}) expired on {entry.expires}"
        yield Complaint(entry, f"the entry for {_entry_text(entry)} {why}")
    for located, entry, _ in found.worse:
        got_worse = f"({entry.reason}) got worse: {_level_change(located, entry)}"
        yield Complaint(entry, f"{_entry_text(entry)} {got_worse}")
    for located, entry, _ in found.accepted:
        if located.level != entry.level:
            better = f"got better: {_level_change(located, entry)}: {_UPDATE_ADVICE}"
            yield Complaint(entry, f"{_entry_text(entry)} {better}")
    for _, entry, _ in found.not_suppressible:
        why = f"the policy does not allow a baseline to suppress {entry.rule}: remove the entry"
        yield Complaint(entry, why)


def _level_change(located: LocatedFinding, entry: BaselineEntry) -> str:
    return f"its level is {located.level} now, and the entry accepts {entry.level}"


def _entry_text(entry: BaselineEntry) -> str:
    return f"{entry.rule} in {entry.file}, {entry.object}"
