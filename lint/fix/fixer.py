"""Fix the documents of a file in its text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from lint.evaluation import EvaluatedDocument, Evaluator, Item
from lint.fix.by_hand import edits_by_hand
from lint.fix.documents import NotFixedError, fix_document
from reports.findings import reported
from reports.results import FixedFinding, InputNotEvaluated, NotFixed, Results
from sources.manifests import File
from sources.sources import Source


class FixedText(NamedTuple):
    """The text of a file before and after its fixes, cut where documents begin and end."""

    source: Source
    pieces: list[tuple[str, str]]

    @property
    def new(self) -> str:
        """The whole new text."""
        return "".join(new for _, new in self.pieces)

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to write."""
        return any(old != new for old, new in self.pieces)


class WriteError(Exception):
    """A file that could not be written; the message says why."""


Deliver: TypeAlias = Callable[[FixedText], bool]
"""Takes the text of a file, changed or not, and says whether the file has it now.

May raise WriteError.
"""


class _Outcome(NamedTuple):
    """A document before and after its fixes, and where it is in the new text."""

    before: Item
    after: Item
    shift: int
    lines: int
    fixed: tuple[FixedFinding, ...] = ()


class Fixer:
    """Fixes files one after the other, and gives their new texts to `deliver`."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver

    def fix_file(
        self, file: File, evaluator: Evaluator, results: Results
    ) -> Iterator[tuple[File, Item]]:
        """Fix what can be fixed in `file`; then yield what remains, with the file as it is now."""
        editing = _FileEditing(file, evaluator)
        for item in evaluator.evaluate_file(file):
            editing.add(item)
        text = editing.text
        is_delivered = self._is_delivered(text, results)
        for refused, lines in editing.not_fixed:
            line = refused.line + lines * is_delivered
            results.not_fixed.append(refused._replace(line=line))
        if not is_delivered:
            yield from ((file, outcome.before) for outcome in editing.outcomes)
            return
        new_file = File(file.source._replace(text=text.new)) if text.is_changed else file
        for outcome in editing.outcomes:
            results.fixed.extend(outcome.fixed)
            yield new_file.shifted(outcome.shift), _moved(outcome.after, outcome.lines)

    def _is_delivered(self, text: FixedText, results: Results) -> bool:
        try:
            return self._deliver(text)
        except WriteError as error:
            results.not_written.append(InputNotEvaluated(text.source.name, 0, 0, str(error)))
            return False


def _moved(item: Item, lines: int) -> Item:
    """`item` with its line in the new text; the offsets of documents are shifted with the file."""
    return item if isinstance(item, EvaluatedDocument) else item._replace(line=item.line + lines)


class _FileEditing:
    """The new text of one file, as far as its documents have been fixed."""

    def __init__(self, file: File, evaluator: Evaluator) -> None:
        self.outcomes: list[_Outcome] = []
        # Each with how many lines it moves down when the file is written.
        self.not_fixed: list[tuple[NotFixed, int]] = []
        self._file = file
        self._evaluator = evaluator
        self._pieces: list[tuple[str, str]] = []
        self._copied = 0
        self._shift = self._lines = 0

    @property
    def text(self) -> FixedText:
        """The text before and after all fixes."""
        rest = self._file.source.text[self._copied :]
        return FixedText(self._file.source, [*self._pieces, (rest, rest)])

    def add(self, item: Item) -> None:
        """Fix the next document of the file, if it can be fixed."""
        outcome = _Outcome(item, item, self._shift, self._lines)
        if isinstance(item, EvaluatedDocument) and any(f.fixable for f in item.result.findings):
            outcome = self._fixed(item) or outcome
        self.outcomes.append(outcome)

    def _fixed(self, item: EvaluatedDocument) -> _Outcome | None:
        try:
            fixed = fix_document(self._file, self._evaluator, item)
        except NotFixedError as error:
            self._refuse(item, error)
            return None
        if fixed is None:
            return None
        document, text = item.document, self._file.source.text
        old = text[document.start : document.end]
        start, lines = document.start + self._shift, document.line - 1 + self._lines
        gap = text[self._copied : document.start]
        self._pieces += [(gap, gap), (old, fixed.text)]
        self._copied = document.end
        self._shift += len(fixed.text) - len(old)
        self._lines += fixed.text.count("\n") - old.count("\n")
        name = self._file.source.name
        findings = tuple(FixedFinding(name, reported(finding)) for finding in fixed.fixed)
        return _Outcome(item, fixed.after, start, lines, findings)

    def _refuse(self, item: EvaluatedDocument, error: NotFixedError) -> None:
        span = self._file.locate(item.document, error.path)
        rules = sorted({finding.rule for finding in item.result.findings if finding.fixable})
        by_hand = tuple(edits_by_hand(error.operations))
        where = (self._file.source.name, span.line, span.column)
        refused = NotFixed(*where, tuple(rules), error.reason, by_hand)
        self.not_fixed.append((refused, self._lines))
