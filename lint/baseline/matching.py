"""Compare the findings of a run with the entries of a baseline."""

from __future__ import annotations

import datetime
import os
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple

from lint.baseline.file import Entry
from lint.report import affected
from lint.report.fingerprints import fingerprint
from policies.policy import Policy
from reports.findings import ACTIONS, LocatedFinding
from reports.results import Results
from rules.finding import Action
from sources.sources import STANDARD_INPUT
from terminal import printable

_MAX_OBJECT = 300  # characters; people read it, and tenants choose it


class Match(NamedTuple):
    """A finding with its entry, whose `file` is where the finding is now.

    `moved_from` is the file that the baseline names, if that is another one; otherwise empty.
    """

    located: LocatedFinding
    entry: Entry
    moved_from: str = ""


class Comparison(NamedTuple):
    """What a baseline says about the findings of a run.

    - `accepted`: findings that do not count, each with its entry.
    - `expired`: the same for entries that have expired; these findings count.
    - `worse`: the same for entries that accept only a lower level; these findings count.
    - `not_suppressible`: the same for rules that the policy does not let anybody suppress.
    - `new`: findings without an entry.
    - `stale`: entries without a finding, of files that were evaluated, or that are gone.
    - `unseen`: entries of other files, of which this run says nothing.
    """

    accepted: list[Match]
    expired: list[Match]
    worse: list[Match]
    not_suppressible: list[Match]
    new: list[LocatedFinding]
    stale: list[Entry]
    unseen: list[Entry]

    @property
    def moved(self) -> list[Match]:
        """Findings whose entries name another file."""
        matches = (*self.accepted, *self.expired, *self.worse, *self.not_suppressible)
        return [match for match in matches if match.moved_from]


class Paths:
    """Names of files as a baseline has them: relative to its folder, with slashes."""

    def __init__(self, baseline: str) -> None:
        self._folder = os.path.realpath(os.path.dirname(baseline))
        self._known: dict[str, str] = {}

    def of(self, name: str) -> str:
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
        """Whether there is a file that a baseline calls `file`."""
        return os.path.lexists(os.path.join(self._folder, file))


def entry_of(located: LocatedFinding, paths: Paths, reason: str) -> Entry:
    """A new entry for a finding."""
    finding = located.finding
    return Entry(
        fingerprint=fingerprint(finding.identity),
        file=paths.of(located.file),
        rule=finding.rule,
        level=located.level,
        object=printable(affected(located))[:_MAX_OBJECT] or STANDARD_INPUT,
        container=printable(finding.container_name)[:_MAX_OBJECT],
        reason=reason,
    )


def compare(
    entries: Iterable[Entry],
    results: Results,
    paths: Paths,
    policy: Policy,
    today: datetime.date,
) -> Comparison:
    """Find the entry of each finding in `results`.

    An entry stands for one finding. That of a file accepts no finding in another file, unless the
    file is gone, or no longer has the finding: then the object has moved.
    """
    found = Comparison([], [], [], [], [], [], [])
    matches, unused = _matches(list(entries), results, paths)
    for located in results.findings:
        match = matches.get(id(located))
        settings = policy.rules.get(located.finding.rule)
        if match is None:
            found.new.append(located)
        elif settings and not settings.suppressible:
            found.not_suppressible.append(match)
        elif match.entry.has_expired(today):
            found.expired.append(match)
        elif located.finding.action > ACTIONS[match.entry.level]:
            found.worse.append(match)
        else:
            found.accepted.append(match)
    evaluated = _evaluated_files(results, paths)
    for entry in unused:
        is_stale = entry.file in evaluated or not paths.exists(entry.file)
        (found.stale if is_stale else found.unseen).append(entry)
    return found


def _matches(
    entries: list[Entry], results: Results, paths: Paths
) -> tuple[dict[int, Match], list[Entry]]:
    """The match of each finding that has an entry, by the finding's `id()`; and unused entries.

    Of findings with the same fingerprint, the worst get the entries that accept most.
    """
    by_place: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in sorted(entries, key=_use_order):
        by_place[entry.fingerprint, entry.file].append(entry)
    matches: dict[int, Match] = {}
    elsewhere: list[tuple[LocatedFinding, str, str]] = []
    for located in sorted(results.findings, key=lambda one: one.finding.action, reverse=True):
        place = fingerprint(located.finding.identity), paths.of(located.file)
        if by_place.get(place):
            matches[id(located)] = Match(located, by_place[place].pop())
        else:
            elsewhere.append((located, *place))
    movable: dict[str, list[Entry]] = defaultdict(list)
    evaluated = _evaluated_files(results, paths)
    rest = [entry for left in by_place.values() for entry in left]
    for entry in sorted(rest, key=_use_order):
        if entry.file in evaluated or not paths.exists(entry.file):
            movable[entry.fingerprint].append(entry)
    used = set()
    for located, mark, file in elsewhere:
        if movable.get(mark):
            entry = movable[mark].pop()
            used.add(id(entry))
            matches[id(located)] = Match(located, entry._replace(file=file), entry.file)
    unused = sorted((e for e in rest if id(e) not in used), key=lambda entry: entry.line)
    return matches, unused


def _use_order(entry: Entry) -> tuple[Action, int]:
    """For lists that are used from the end: what accepts most, then what is first in the file."""
    return ACTIONS[entry.level], -entry.line


def _evaluated_files(results: Results, paths: Paths) -> Collection[str]:
    """The files of which every finding is known."""
    incomplete = {failed.file for failed in results.not_evaluated}
    incomplete |= {skipped.file for skipped in results.skipped}
    return {paths.of(name) for name in results.file_names if name not in incomplete}
