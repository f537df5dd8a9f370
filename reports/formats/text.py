"""A report for people: what is wrong, where, why, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TextIO

from reports.findings import LocatedFinding
from reports.formats import (
    ReportStyle,
    affected_objects_text,
    fixed_files,
    line_prefix,
    many,
    position_text,
    rule_page_url,
    why_not_fixed,
)
from reports.results import Results
from terminal import printable, width_of

_COLORS = {"error": "1;31", "warning": "1;33", "note": "1;36", "fixed": "1;32"}
_COLORS |= {"dim": "2", "bold": "1"}
_WRAP_WIDTH = 100
_LEAST_WRAP_WIDTH = 40


def write(out: TextIO, results: Results, style: ReportStyle) -> None:
    """Write `results`, notes only if the style asks for them; the last line sums up."""
    paint = _Painter(style)
    width = int(min(_WRAP_WIDTH, max(_LEAST_WRAP_WIDTH, width_of(out))))
    explained: set[str] = set()
    for located in results.findings:
        if located.level != "note" or style.notes:
            first = located.finding.rule not in explained
            explained.add(located.finding.rule)
            out.write("\n".join(_finding(located, paint, width, explain=first)) + "\n\n")
    write_after_findings(out, results, style)


def write_after_findings(out: TextIO, results: Results, style: ReportStyle) -> None:
    """Write what comes after the findings: remarks, what was not evaluated, and the sums."""
    paint = _Painter(style)
    for remark in results.remarks:
        if remark.is_visible(notes=style.notes):
            where = printable(line_prefix(remark.file, remark.line, remark.column))
            out.write(f"{paint(remark.level, remark.level)}: {where}{printable(remark.message)}\n")
    skipped = [] if style.quiet else results.skipped
    out.writelines(
        f"{paint('dim', 'skipped')}: {printable(f'{passed.name}: {passed.why}')}\n"
        for passed in skipped
    )
    for failed in results.not_evaluated:
        where = printable(line_prefix(failed.file, failed.line, failed.column))
        out.write(f"{paint('error', 'not evaluated')}: {where}{printable(failed.message)}\n")
    _write_fixes(out, results, paint)
    if not style.quiet:
        if style.fix_arguments is not None and (what := _offered_fixes(results, style)):
            command = _fix_command(style.fix_arguments)
            out.write(f"next: {command} shows {what}\n")
        out.write(_summary_line(results, style) + "\n")


def _fix_command(arguments: Sequence[str]) -> str:
    import shlex  # noqa: PLC0415  # most files have no findings

    command = shlex.join(["gpuward", "fix", "--diff", *arguments])
    if len(command) > _WRAP_WIDTH - 20 or "`" in command or printable(command) != command:
        return "gpuward fix --diff, with the same arguments,"
    return f"`{command}`"


def _offered_fixes(results: Results, style: ReportStyle) -> str:
    """Return how many of the findings that the report has can be fixed; empty if none can."""
    shown = [f.finding for f in results.findings if f.level != "note" or style.notes]
    safe = sum(finding.fixable for finding in shown)
    # A policy may forbid some of them.
    unsafe = sum(bool(finding.fix) and not finding.fixable for finding in shown)
    # Nor can each be written: a value may have an anchor.
    more = f"{unsafe} more" if safe else _fixes(unsafe)
    parts = [_fixes(safe)] if safe else []
    parts += [f"{more} with --unsafe-fixes"] if unsafe else []
    return f"up to {', and '.join(parts)}" if parts else ""


def _fixes(count: int) -> str:
    return "1 fix" if count == 1 else f"{count} fixes"


def _write_fixes(out: TextIO, results: Results, paint: _Painter) -> None:
    out.writelines(
        f"{paint('fixed', 'fixed')}: {printable(f'{file}: {rules}')}\n"
        for file, rules in fixed_files(results)
    )
    for entry in results.not_fixed:
        where = printable(line_prefix(entry.file, entry.line, entry.column))
        why = printable(why_not_fixed(entry))
        out.write(f"{paint('warning', 'not fixed')}: {where}{why}\n")
        out.writelines(f"  by hand: {printable(edit)}\n" for edit in entry.edits_by_hand)
    for failed in results.not_written:
        where = printable(line_prefix(failed.file, failed.line, failed.column))
        out.write(f"{paint('error', 'not written')}: {where}{printable(failed.message)}\n")


class _Painter:
    """Colours and hyperlinks, or none."""

    def __init__(self, style: ReportStyle) -> None:
        self._style = style

    def __call__(self, color: str, text: str) -> str:
        return f"\x1b[{_COLORS[color]}m{text}\x1b[0m" if self._style.color else text

    def link(self, address: str, text: str) -> str:
        """`text` that leads to `address`, by the control sequence OSC 8."""
        if not self._style.hyperlinks:
            return text
        return f"\x1b]8;;{address}\x1b\\{text}\x1b]8;;\x1b\\"


def _finding(
    located: LocatedFinding, paint: _Painter, width: int, *, explain: bool
) -> Iterator[str]:
    finding, span = located.finding, located.span
    rule = paint.link(rule_page_url(finding.rule), finding.rule)
    head = paint(located.level, f"{located.level}[{rule}]")
    yield f"{head}: {paint('bold', printable(finding.message))}"
    holder = affected_objects_text(located) + (
        f", {finding.container}" if finding.container else ""
    )
    where = position_text(located)
    if (
        not (where and located.span.line) or located.rendered_by
    ):  # the place may be that of a template, or of its parent
        holder = f"{holder}: {located.pointer_in_object}"
    gutter = " " * len(_line_number(span.line))
    yield printable(f"{gutter}--> {f'{where}   {holder}' if where else holder}")
    yield from _excerpt(located, gutter, paint)
    if located.rendered_by:
        command = printable(located.rendered_by)
        yield f"{gutter} = rendered: line {located.rendered_line} of `{command}`"
    if explain:
        why = located.rule.documentation.get("Why it matters", "").split("\n\n")[0]
        yield from _wrap(gutter, "why", " ".join(why.split()), width)
    if finding.help or finding.fixable:
        fix = f" [fixable: {finding.fix}]" if finding.fixable else ""
        yield from _wrap(gutter, "help", printable(finding.help) + fix, width)
    if explain:
        yield f"{gutter} = more: gpuward explain {finding.rule}"


def _excerpt(located: LocatedFinding, gutter: str, paint: _Painter) -> Iterator[str]:
    excerpt = located.excerpt
    yield f"{gutter} |"
    yield f"{_line_number(located.span.line)} | {_with_one_column_characters(excerpt.text)}"
    yield f"{gutter} | {' ' * excerpt.start}{paint(located.level, '^' * excerpt.width)}"


def _line_number(line: int) -> str:
    return str(line) if line else " "  # of an object in a cluster


def _with_one_column_characters(text: str) -> str:
    """`text` with every character one column wide, so that the caret is at the right column."""
    return "".join(c if c.isprintable() else " " for c in text)


def _wrap(gutter: str, label: str, text: str, width: int) -> Iterator[str]:
    import textwrap  # noqa: PLC0415  # most files have no findings

    first = f"{gutter} = {label}: "
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
    yield from lines


def _summary_line(results: Results, style: ReportStyle) -> str:
    shown_notes = sum(1 for remark in results.remarks if remark.is_always_shown)
    hidden = results.count("note") > shown_notes and not style.notes
    fixable_notes = sum(f.finding.fixable for f in results.findings if f.level == "note")
    of_notes = f" ({fixable_notes} of them notes)" if fixable_notes and not style.notes else ""
    parts = [
        *([many(results.file_count, "file")] if results.is_of_files else []),
        *([many(results.renderings, "rendering")] if results.renderings else []),
        many(results.objects, "object"),
        many(results.pods, "pod"),
        many(results.count("error"), "error"),
        many(results.count("warning"), "warning"),
        many(results.count("note"), "note") + (" (--notes shows them)" if hidden else ""),
        f"{results.fixable_count} fixable{of_notes}",
        f"{results.suppressed} suppressed",
    ]
    if results.fixed:
        parts.insert(-1, f"{len(results.fixed)} fixed")
    if results.components:
        parts.insert(3, f"{results.components} of them components, not evaluated")
    if results.baselined:
        parts.append(f"{results.baselined} in the baseline")
    if results.excepted:
        parts.append(f"{results.excepted} excepted")
    if results.skipped:
        parts.append(results.skipped_text)
    if results.not_evaluated:
        parts.append(f"{len(results.not_evaluated)} not evaluated")
    policy = f"policy {printable(results.policy)}: " if results.policy else ""
    return f"{policy}{', '.join(parts)}, {results.seconds:.2f} s"
