"""The answers of a real container runtime: the data of docs/coverage.md and docs/proof.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import yaml

from tests.testkit.container_runtime.programs import TOOLKITS
from tests.testkit.paths import DATA

FILE = DATA / "executed.yaml"
ANSWERS = DATA / "executed_answers.yaml"
NODE_ANSWERS = DATA / "node_answers.yaml"
MODES = ("cdi", "legacy")
COLUMNS = tuple((version, mode) for version in sorted(TOOLKITS) for mode in MODES)
"""The versions and modes of NVIDIA's container toolkit that are asked, in the order of answers."""


class Answers(NamedTuple):
    """The devices that a container got, in the order of `COLUMNS`."""

    before: tuple[str, ...]
    after: tuple[str, ...] = ()
    """The devices once gpuward has fixed the pod; empty if gpuward fixes nothing."""

    def __str__(self) -> str:
        return summary(self.before)


class Outcome(NamedTuple):
    """The result of a container of a pod on a real node."""

    without: str
    """Without gpuward."""
    deny: str
    """In mode `deny`, or `REFUSED`."""


REFUSED = "refused"
OWN = "its own"
"""The one GPU that a container requests."""


def reasons() -> dict[str, str]:
    """Return the name of the reason why a bypass is not executed, by the name of the bypass."""
    return {
        name: reason
        for reason, entry in data()["unexecuted"].items()
        for name in entry["bypasses"].split()
    }


@cache
def data() -> Any:
    """The content of tests/data/executed.yaml."""
    return yaml.load(FILE.read_text(encoding="utf-8"), yaml.CSafeLoader)


@cache
def recorded() -> Mapping[str, Answers]:
    """The answers in tests/data/executed_answers.yaml, by the name of the bypass or claim."""
    content = yaml.load(ANSWERS.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return {
        name: Answers(tuple(entry["before"]), tuple(entry.get("after", ())))
        for name, entry in content.items()
    }


@cache
def on_a_node() -> Mapping[str, Outcome]:
    """The outcomes in tests/data/node_answers.yaml, by the name of the bypass."""
    content = yaml.load(NODE_ANSWERS.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return {name: Outcome(**entry) for name, entry in content.items()}


def not_on_a_node() -> dict[str, str]:
    """Return why a bypass that the runtime executes is no pod on a node, by the bypass's name."""
    return {
        name: entry["why"]
        for entry in data()["not_on_a_node"].values()
        for name in entry["bypasses"].split()
    }


def summary(answers: tuple[str, ...]) -> str:
    """The answers in a cell of a table: `all`, or `cdi: none, legacy: all`."""
    by_column = dict(zip(COLUMNS, answers, strict=True))
    if len(set(answers)) == 1:
        return answers[0]
    parts = []
    for mode in MODES:
        of_mode = {version: by_column[version, mode] for version, m in COLUMNS if m == mode}
        parts += [f"{mode}{which}: {answer}" for which, answer in _by_version(of_mode)]
    return ", ".join(parts)


def _by_version(answers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the answers of one mode; what only old versions answer comes with their numbers."""
    if len(set(answers.values())) == 1:
        yield "", next(iter(answers.values()))
        return
    for answer in dict.fromkeys(answers.values()):
        yield f" {'/'.join(v for v in answers if answers[v] == answer)}", answer
