"""The linter: any bytes end in findings, in a clear error or in nothing, and so do their fixes."""

from __future__ import annotations

import io
from typing import Any

from kubeyaml import YamlError, read, split
from lint.evaluation import FixTask
from lint.fix.fixer import FixedText, Fixer, select_fixes
from lint.linter import Linter
from policies.loading import load_policy
from reports.formats import ReportStyle, writer_of
from reports.results import Results
from rules.profile.context import Context
from sources.policy_file import OnePolicy
from sources.sources import DISK, SkippedSource, Source, UnreadableSource, source_of
from tests.fuzzing.mutation import mutate_yaml
from tests.testkit.cases import TODAY

mutate = mutate_yaml
NAME = "fuzzed/input.yaml"
POLICY = load_policy(
    "apiVersion: gpuward.io/v1\nkind: Policy\n"
    "profiles: [nvidia, dra, amd, intel, ascend, volcano, koordinator, others, tencent]\n",
    "policy",
)
_RULES = select_fixes(POLICY.rule_set(), (), unsafe=True)
# What the linter says of its own faults.
FAULTS = ("please report it",)
# Whose text a fix must leave as it is.
_UNTOUCHED_FIELDS = {"image", "command", "args", "name", "serviceAccountName", "apiVersion", "kind"}


def check(data: bytes) -> None:
    """Lint the bytes of a file, and fix it."""
    source = source_of(NAME, data, DISK)
    if not isinstance(source, Source):
        assert isinstance(source, SkippedSource | UnreadableSource)
        assert source.why
        return
    lint(source)
    text, results = fixed(source)
    assert bool(results.fixed) == (text != source.text)
    again, results_again = fixed(source._replace(text=text))
    assert again == text, "a second fix changes the text"
    assert not results_again.fixed
    assert [f.finding.identity for f in results_again.findings] == [
        f.finding.identity for f in results.findings
    ]
    if text != source.text:
        _check_values(source.text, text)


def lint(source: Source) -> Results:
    """The results for `source`, whose places are in the text."""
    linter = Linter(OnePolicy(POLICY, "", _RULES), Context(TODAY))
    linter.evaluate([source])
    linter.finish()
    results = linter.results
    refuse_faults(results)
    lines = source.text.count("\n") + 1
    for found in results.findings:
        assert 1 <= found.span.line <= lines
        assert found.span.column >= 1
        assert 0 <= found.span.start <= found.span.end
        assert "\n" not in found.finding.message
    places = [(one.line, one.message) for one in results.remarks]
    places += [(one.line, one.message) for one in results.not_evaluated]
    for line, message in places:
        assert 0 <= line <= lines
        assert message
    writer_of("text")(io.StringIO(), results, ReportStyle(notes=True))
    return results


def fixed(source: Source) -> tuple[str, Results]:
    """The text of `source` with its fixes, and the results."""
    texts: list[str] = []

    def deliver(text: FixedText) -> bool:
        texts.append(text.new if text.is_changed else source.text)
        return True

    linter = Linter(OnePolicy(POLICY, "", _RULES), Context(TODAY), FixTask(fixer=Fixer(deliver)))
    linter.evaluate([source])
    refuse_faults(linter.results)
    return (texts or [source.text])[-1], linter.results


def refuse_faults(results: Results) -> None:
    """Fail if the linter says that it or a rule has failed."""
    for item in results.not_evaluated:
        assert not any(words in item.message for words in FAULTS), item.message


def _check_values(old: str, new: str) -> None:
    """The documents of `new` are those of `old`, but for what fixes may change."""
    before, after = (_values(text) for text in (old, new))
    assert len(before) == len(after)
    for one, other in zip(before, after, strict=True):
        assert _untouched(one) == _untouched(other), "a fix changes another field"


def _values(text: str) -> list[Any]:
    """The values of the documents; None for those that cannot be read."""
    values: list[Any] = []
    for chunk in split(text):
        try:
            document = read(chunk)
        except YamlError:
            values.append(None)
        else:
            values.append(document.value if document else None)
    return values


def _untouched(value: Any) -> list[Any]:
    """The texts in containers that no fix may change, in their order."""
    found, waiting = [], [value]
    for node in waiting:
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            if "image" in node:
                found.append([(key, node[key]) for key in sorted(_UNTOUCHED_FIELDS & node.keys())])
            waiting += node.values()
    return found
