"""What rules say about accelerators of other makers than NVIDIA, and the table of it.

A case about NVIDIA's cards becomes one about another maker's: each sign of NVIDIA's in its manifest
and its circumstances is replaced by the maker's (`tests/data/makers.yaml`). A rule speaks about a
maker if it reports such a case. Otherwise the data says why the rule does not apply.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import yaml

from kubeyaml import Chunk, read
from rules.catalog.index import CATALOG
from rules.gpu.images import CUDA_TAG_WORDS_BY_IMAGE
from rules.objects.pod import Pod
from tests.testkit.cases import Case, cases
from tests.testkit.paths import DATA

FILE = DATA / "makers.yaml"
FAMILIES = ("bypass", "security", "requests")
YES, MISSING = "yes", "**missing**"
_SIGNS = {
    "resource": re.compile(r"nvidia\.com/gpu(?![\w.-])"),
    "label": re.compile(r"nvidia\.com/gpu\.(present|product|count|memory|family|machine)\b"),
    "variable": re.compile(r"NVIDIA_VISIBLE_(?P<rest>DEVICES)?"),
    "file": re.compile(r"/dev/nvidia(\d+|ctl|-uvm)"),
    "image": re.compile(
        rf"(?<=image: )[\w./-]*({'|'.join(('nvidia/', *CUDA_TAG_WORDS_BY_IMAGE))})[\w./@:-]*"
    ),
}
# No case with such a word left is about another maker alone.
_NVIDIAS = re.compile("nvidia|cuda", re.IGNORECASE)


@cache
def data() -> Mapping[str, Any]:
    """The content of the data file."""
    content: Mapping[str, Any] = yaml.load(FILE.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return content


def rules() -> list[str]:
    """The names of the rules in the table: those about pods, in the families that it is about."""
    found = (rule for rule in CATALOG if rule.subject is Pod and rule.family in FAMILIES)
    return [rule.name for rule in sorted(found, key=lambda rule: (rule.family, rule.name))]


@dataclass(frozen=True)
class MakersCase(Case):
    """A case in which signs of NVIDIA's cards are those of another maker's."""

    signs: tuple[tuple[str, str], ...]

    @cached_property
    def text(self) -> str:
        """The manifest without comments."""
        lines = self.file.read_text(encoding="utf-8").splitlines()
        return self._replaced(
            "\n".join(line.partition(" #")[0] for line in lines if line[:1] != "#")
        )

    @property
    def manifest(self) -> Any:
        """The manifest."""
        document = read(Chunk(self.text))
        assert document is not None
        return document.value

    @property
    def circumstances(self) -> dict[str, Any]:
        """The circumstances, with the maker's signs too."""
        found: dict[str, Any] = yaml.safe_load(
            self._replaced(yaml.safe_dump(super().circumstances))
        )
        return found

    def _replaced(self, text: str) -> str:
        for sign, value in self.signs:
            text = _SIGNS[sign].sub(partial(_replacement, value=value), text)
        return text


def _replacement(found: re.Match[str], value: str) -> str:
    """Return `value` in place of a sign; of a prefix of a variable, the prefix of the maker's."""
    is_prefix = found.groupdict().get("rest", "") is None
    return value.removesuffix("DEVICES") if is_prefix else value


def reports(rule: str, maker: str) -> bool:
    """Return whether `rule` reports a case about the cards of `maker`."""
    return any(case.check(case.manifest).findings for case in _cases_about(rule, maker))


def _cases_about(rule: str, maker: str) -> Iterator[MakersCase]:
    signs: Mapping[str, str] = data()["makers"][maker]
    is_about_two = rule in data()["about_two_makers"]
    subject = data()["about"].get(rule, "")
    choices = [("resource",), ("image",)] if is_about_two else [tuple(signs)]
    for case in cases():
        if case.rule != rule or case.is_clean:
            continue
        unchanged = MakersCase(case.rule, case.file, ())
        before = unchanged.text + str(case.circumstances)
        if subject and not _SIGNS[subject].search(before):
            continue
        if signs["resource"].partition("/")[0] in before and not _NVIDIAS.search(before):
            yield unchanged
        for choice in choices:
            chosen = tuple((sign, signs[sign]) for sign in choice if sign in signs)
            made = MakersCase(case.rule, case.file, chosen)
            after = made.text + str(made.circumstances)
            if after != before and (is_about_two or not _NVIDIAS.search(after)):
                yield made


def reason(rule: str, maker: str) -> str:
    """The word that says why `rule` does not apply to `maker`; empty if it does."""
    subject = data()["about"].get(rule)
    if subject and subject not in data()["makers"][maker]:
        return str(data()["without"][subject])
    found = data()["does_not_apply"].get(rule, "")
    if isinstance(found, str):
        return found
    word: str = found.get(maker, found.get("*", ""))
    return word


def table() -> Iterator[str]:
    """The rows of the table in docs/coverage.md, and the reasons."""
    makers = list(data()["makers"])
    yield _row(["rule", *makers])
    yield _row(["---"] * (len(makers) + 1))
    for rule in rules():
        cells = []
        for maker in makers:
            word = reason(rule, maker)
            cells.append(f"*{word}*" if word else YES if reports(rule, maker) else MISSING)
        yield _row([f"[{rule}](rules/{rule}.md)", *cells])
    yield from ("", _row(["reason", "why the rule does not apply"]), _row(["---"] * 2))
    yield from (_row([f"*{word}*", why]) for word, why in data()["reasons"].items())


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
