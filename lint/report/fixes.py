"""What became of fixes, for the reports for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from reports.results import NotFixed, Results


def fixed_files(results: Results) -> Iterator[tuple[str, str]]:
    """Each file that has been fixed, with the rules whose findings are gone."""
    rules: dict[str, Counter[str]] = {}
    for fixed in results.fixed:
        rules.setdefault(fixed.file, Counter())[fixed.finding.rule] += 1
    for file, counts in rules.items():
        yield file, ", ".join(f"{rule} ({n})" if n > 1 else rule for rule, n in counts.items())


def why_not_fixed(entry: NotFixed) -> str:
    """The rules whose fixes are missing, and why."""
    return f"{', '.join(entry.rules)}: {entry.reason}"
