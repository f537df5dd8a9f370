"""Reports: one module per format, each with `write(out, results, style)`."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import NamedTuple, TextIO

from reports.findings import LocatedFinding
from reports.results import Results, UnfixedDocument
from sources import STANDARD_INPUT
from terminal import DOCS_URL, printable


class ReportStyle(NamedTuple):
    """Options of the reports.

    `fail_on` is the lowest level that makes the exit status 1. `quiet` leaves out of reports for
    people what is no finding and no failure. `fix_arguments` are those with which `gpuward fix`
    fixes what was found, if any.
    """

    color: bool = False
    hyperlinks: bool = False
    notes: bool = False
    quiet: bool = False
    fail_on: str = "error"
    fix_arguments: tuple[str, ...] | None = None


WriteReport = Callable[[TextIO, Results, ReportStyle], None]


def writer_of(form: str) -> WriteReport:
    """Return the `write` of the module of `form`, one of FORMATS; most runs need one of them."""
    write: WriteReport = import_module(f"reports.formats.{form}").write
    return write


def position_text(located: LocatedFinding) -> str:
    """FILE:LINE:COLUMN; empty for what a program wrote to standard input: users lack its lines.

    It is empty for objects of a cluster, too, or the context if there are several clusters. Reports
    then say where the finding is by its object and its JSON Pointer.
    """
    name = located.file
    if name in {STANDARD_INPUT, ""} and located.finding.object:
        return ""
    if not located.span.line:
        return name
    return f"{name}:{located.span.line}:{located.span.column}"


def line_prefix(file: str, line: int, column: int) -> str:
    """FILE:LINE:COLUMN and a space, to begin a line with; empty if there is no file."""
    if not file:
        return ""
    return f"{file}:{line}:{column}: " if line else f"{file}: "


def affected_objects_text(located: LocatedFinding) -> str:
    """The finding's object, its owner, and how many other objects of the owner have the fault."""
    object_, others = located.finding.object, located.object_count - 1
    if located.owner == object_:
        return f"{object_} and {others} that it owns" if others else str(object_)
    and_others = f" and {others} other{'s'[others == 1 :]}" if others else ""
    return f"{object_}{and_others} of {located.owner}"


def rule_page_url(rule: str) -> str:
    """The address of the page about `rule` in the documentation."""
    return f"{DOCS_URL}/rules/{rule}.md"


def many(count: int, what: str) -> str:
    """The number with the noun `what`, in the plural unless it is 1."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


_MAX_LISTED = 5


def some(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - _MAX_LISTED
    return ", ".join(names[:_MAX_LISTED]) + (f" and {more:,} more" if more > 0 else "")


_COLUMN_GAP = "  "
_MAX_COLUMN_WIDTH = 60


def write_table(out: TextIO, lines: Sequence[tuple[str, ...]]) -> None:
    """Write `lines` in columns.

    A cell wider than `_MAX_COLUMN_WIDTH` pushes the rest of its line to the right.
    """
    cells = [[printable(cell) for cell in line] for line in lines]
    widths = [min(_MAX_COLUMN_WIDTH, max(map(len, column))) for column in zip(*cells, strict=True)]
    for line in cells:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        out.write(_COLUMN_GAP.join(padded).rstrip() + "\n")


def fixed_files(results: Results) -> Iterator[tuple[str, str]]:
    """Each file that has been fixed, with the rules whose findings are gone."""
    rules: dict[str, Counter[str]] = {}
    for fixed in results.fixed:
        rules.setdefault(fixed.file, Counter())[fixed.finding.rule] += 1
    for file, counts in rules.items():
        yield file, ", ".join(f"{rule} ({n})" if n > 1 else rule for rule, n in counts.items())


def why_not_fixed(entry: UnfixedDocument) -> str:
    """The rules whose fixes are missing, and why."""
    return f"{', '.join(entry.rules)}: {entry.reason}"
