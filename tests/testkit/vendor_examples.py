"""The examples by which tests break the statements of vendors' documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tests.testkit.paths import DATA
from tools.vendor_pages import vendors

FOLDER = DATA / "vendors"


class Statement(NamedTuple):
    """A statement of a document, with its vendor."""

    name: str
    vendor: Mapping[str, Any]
    page: Mapping[str, Any]
    content: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.name}: {self.content['says']}"

    def examples(self, key: str) -> Iterator[Example]:
        """Those of its `rules`, `commands` or `clean`."""
        for answer, given in self.content.get(key, {}).items():
            for each in given if isinstance(given, list) else [given]:
                texts = each if isinstance(each, dict) else {each: ""}
                yield from (Example(self, answer, name, text) for name, text in texts.items())


class Example(NamedTuple):
    """A fault against a statement: `name` is a case of a rule, or a file.

    `answer` is the rule or the command, and `text` a part of what it reports.
    """

    statement: Statement
    answer: str
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.statement}: {self.answer}, {self.name}"


def statements() -> list[Statement]:
    """All statements of all documents."""
    return [
        Statement(name, vendor, page, content)
        for name, vendor in vendors().items()
        for page in vendor["pages"]
        for content in page["statements"]
    ]


def examples(key: str) -> list[Example]:
    """All examples of rules, of commands, or those about which a rule is silent."""
    return [example for statement in statements() for example in statement.examples(key)]
