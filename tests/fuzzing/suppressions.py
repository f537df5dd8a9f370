"""Comments that suppress rules: a comment moves findings, and text that is no comment does not."""

from __future__ import annotations

from collections import Counter

import yaml

from kubeyaml import Document, YamlError
from lint.suppressions import find_suppressions
from sources.manifests import File
from sources.sources import DISK, Source, source_of
from tests.fuzzing.lint import NAME, lint

_WORD = b"gpuward:"
_OTHER_WORD = b"gpuwarD:"


def check(data: bytes) -> None:
    """Lint a file with its comments and without them."""
    source = source_of(NAME, data, DISK)
    if not isinstance(source, Source) or _WORD not in data:
        return
    _check_comments(source)
    found = lint(source)
    for entry in found.suppressed_findings:
        assert entry.reason
        assert entry.kind == "inSource"
    if not _is_in_scalar(source.text):
        without = source_of(NAME, data.replace(_WORD, _OTHER_WORD), DISK)
        assert isinstance(without, Source)
        plain = lint(without)
        assert not plain.suppressed_findings
        both = [*found.findings, *(entry.located for entry in found.suppressed_findings)]
        identities, before = (
            Counter(one.finding.identity for one in each) for each in (both, plain.findings)
        )
        assert identities == before, "a comment adds or removes a finding"


def _check_comments(source: Source) -> None:
    """No comment is in a scalar, by PyYAML's scanner."""
    file = File(source)
    if "\r" in source.text or "\ufeff" in source.text:
        return
    for document in file.manifests():
        if not isinstance(document, Document):
            continue
        comments = find_suppressions(file, document, document.end).comments
        for start, end in _scalars(source.text[document.start : document.end]):
            for comment in comments:
                offset = comment.start - document.start
                assert not start <= offset < end, "a comment in a text"


def _is_in_scalar(text: str) -> bool:
    """Return whether the word of comments is in a scalar, whose value would change with it."""
    word = _WORD.decode()
    try:
        return any(word in text[start:end] for start, end in _scalars(text))
    except (YamlError, yaml.YAMLError):
        return True


def _scalars(text: str) -> list[tuple[int, int]]:
    """The spans of the scalars in a text, by PyYAML's scanner in Python."""
    try:
        tokens = list(yaml.scan(text))
    except yaml.YAMLError:
        return []
    spans = [
        (token.start_mark.index, token.end_mark.index, token.style)
        for token in tokens
        if isinstance(token, yaml.ScalarToken)
    ]
    return [span[:2] for span in spans if span[2] not in {"|", ">"}]
