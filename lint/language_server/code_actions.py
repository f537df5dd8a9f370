"""Actions that an editor offers for the findings at the cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from lsprotocol.types import (
    CodeAction,
    CodeActionKind,
    CodeActionParams,
    Diagnostic,
    Range,
    WorkspaceEdit,
)

from lint.fix.changes import TextEdit
from lint.language_server.analysis import Analysis, FoundHere
from lint.language_server.diagnostics import range_of
from lint.language_server.positions import Positions
from lint.language_server.suppression import suppression

FIX_ALL = "source.fixAll.gpuward"
# Each fix takes as long as that of a whole manifest.
_MAX_FINDINGS = 20
# Editors ask at every move of the cursor. Fixes of longer texts are made only on demand.
_MAX_CHARACTERS = 200_000

MakeEdit = Callable[[Sequence[TextEdit]], WorkspaceEdit]


def code_actions(
    analysis: Analysis, positions: Positions, params: CodeActionParams, make_edit: MakeEdit
) -> list[CodeAction]:
    """The actions for the findings on the lines of a range, and that which fixes all."""
    wanted = [_text(kind) for kind in params.context.only or ()]
    actions: list[CodeAction] = []
    if _wants(wanted, CodeActionKind.QuickFix):
        here = islice(_found_on(analysis, positions, params.range), _MAX_FINDINGS)
        for one in here:
            actions += _quick_fixes(analysis, one, _shown(one, params, positions), make_edit)
    is_short = len(analysis.text) <= _MAX_CHARACTERS
    if _wants(wanted, FIX_ALL) and (wanted or is_short) and (edits := analysis.fix_all()):
        title = "gpuward: make all safe fixes in this file"
        actions.append(CodeAction(title, FIX_ALL, edit=make_edit(edits)))
    return actions


def _wants(wanted: Sequence[str], kind: str) -> bool:
    """Whether an editor that asks for these kinds, or for all if there are none, takes `kind`."""
    name = _text(kind)
    return not wanted or any(name == one or name.startswith(f"{one}.") for one in wanted)


def _text(kind: CodeActionKind | str) -> str:
    return kind.value if isinstance(kind, CodeActionKind) else kind


def _found_on(analysis: Analysis, positions: Positions, lines: Range) -> Iterator[FoundHere]:
    for found in analysis.found:
        place = range_of(found, positions)
        if place.start.line <= lines.end.line and lines.start.line <= place.end.line:
            yield found


def _shown(found: FoundHere, params: CodeActionParams, positions: Positions) -> list[Diagnostic]:
    """The diagnostics of the finding, among those that the editor has at the cursor."""
    place, rule = range_of(found, positions), found.finding.rule
    return [d for d in params.context.diagnostics if d.code == rule and d.range == place]


def _quick_fixes(
    analysis: Analysis, found: FoundHere, diagnostics: list[Diagnostic], make_edit: MakeEdit
) -> Iterator[CodeAction]:
    rule, fix = found.finding.rule, found.finding.fix
    if fix and (edits := analysis.fix(found)):
        review = "" if fix.safe else " (review: this takes something away, or decides it)"
        yield CodeAction(
            f"{rule}: {fix.title}{review}",
            CodeActionKind.QuickFix,
            diagnostics=diagnostics,
            is_preferred=fix.safe or None,
            edit=make_edit(edits),
        )
    if edit := suppression(analysis, found):
        yield CodeAction(
            f"{rule}: add a comment that suppresses it; write the reason behind it",
            CodeActionKind.QuickFix,
            diagnostics=diagnostics,
            edit=make_edit([edit]),
        )
