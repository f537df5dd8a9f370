"""The tables of docs/coverage.md, from the data in tests/data/coverage.yaml.

A bypass is a way in which a container gets access to a GPU that the scheduler has not counted.
`make docs` writes the tables into the document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from tests.testkit.admission.reviews import container, pod
from tests.testkit.container_runtime import answers
from tests.testkit.coverage import makers
from tests.testkit.paths import DATA, DOCS

FILE = DATA / "coverage.yaml"
DOCUMENT = DOCS / "coverage.md"
BEGIN, END = "<!-- tables from tests/data/coverage.yaml -->", "<!-- end of the tables -->"
NOT_STOPPED = "not stopped"
_OTHER_MAKERS = (
    "What rules of the families `bypass`, `requests` and `security` say about accelerators of",
    "other makers. *yes*: a case of the rule is reported in which all signs of NVIDIA's cards",
    "are replaced by the maker's (`tests/data/makers.yaml`).",
)
_STRICT = "The column *strict policy* is about this policy, not about the bundle `strict`:"
# The key of each column in the data, and its title in the document.
COLUMNS = {
    "lint": "lint",
    "pods": "Pods",
    "strict": "strict policy",
    "exclusion": "off GPU nodes",
    "workloads": "workloads",
    "kubernetes": "API server alone",
    "baseline": "with Pod Security",
}
_ON_A_NODE = "on a node"


@dataclass(frozen=True)
class Bypass:
    """One row of the tables: a pod that uses a bypass, and the outcome in each column."""

    entry: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The id of its tests."""
        return str(self.entry["name"])

    @property
    def rules(self) -> frozenset[str]:
        """The rules that may report it. If anything is reported, at least one of them reports."""
        return frozenset(self.entry.get("rule", "").split())

    @property
    def fixed(self) -> Mapping[str, str]:
        """The variables of a fixed pod: `absent`, or the new value."""
        variables: Mapping[str, str] = self.entry.get("fixed", {})
        return variables

    @property
    def user(self) -> str:
        """The user who creates the pod; empty if that makes no difference."""
        return str(self.entry.get("user", ""))

    @property
    def mitigations(self) -> list[str]:
        """The names of the mitigations."""
        names: list[str] = self.entry.get("mitigations", "").split()
        return names

    @property
    def remains(self) -> str:
        """The name of the reason why it is not stopped off GPU nodes either; empty if it is."""
        return str(self.entry.get("remains", ""))

    @property
    def pod(self) -> dict[str, Any]:
        """A pod that uses the bypass."""
        manifest = pod(container(**self.entry.get("container", {})), **self.entry.get("spec", {}))
        metadata = {
            "name": "trainer",
            "annotations": self.entry.get("annotations", {}),
            "labels": self.entry.get("labels", {}),
            "ownerReferences": self.entry.get("owners", []),
        }
        return {**manifest, "metadata": metadata}

    @property
    def deployment(self) -> dict[str, Any]:
        """A Deployment of such pods."""
        own = self.pod
        labels = {"subject": "a", **own["metadata"]["labels"]}
        metadata = {"labels": labels, "annotations": own["metadata"]["annotations"]}
        template = {"metadata": metadata, "spec": own["spec"]}
        spec = {"selector": {"matchLabels": {"subject": "a"}}, "template": template}
        manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "trainer"}}
        return {**manifest, "spec": spec}

    def cell(self, column: str, profile: str | None = None) -> str:
        """The outcome that the table states for a column."""
        cells = {**self.entry["cells"], **self.entry.get("with_profile", {}).get(profile, {})}
        if column in ("strict", "exclusion"):
            column = column if column in cells else "pods"
        return str(cells.get(column, NOT_STOPPED))


@cache
def data() -> Any:
    """The content of tests/data/coverage.yaml."""
    return yaml.load(FILE.read_text(encoding="utf-8"), yaml.CSafeLoader)


def bypasses() -> list[Bypass]:
    """All bypasses."""
    return [Bypass(entry) for entry in data()["bypasses"]]


def profiles() -> dict[str, list[str]]:
    """The platforms with which every bypass is tested: the profiles of their policies."""
    platforms: dict[str, list[str]] = data()["profiles"]
    return platforms


def strict_policy() -> str:
    """The keys of the strict policy."""
    return str(data()["strict"])


def document(text: str) -> str:
    """The document `text` with its tables generated anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + "\n".join([BEGIN, *_tables(), END]) + after


def _tables() -> Iterator[str]:
    for bypass in bypasses():
        if title := bypass.entry.get("section"):
            titles = ["bypass", *COLUMNS.values(), _ON_A_NODE, "mitigation"]
            yield from ("", f"## {title}", "", _row(titles), _row(["---"] * len(titles)))
        yield _bypass_row(bypass, bypass.entry["description"], None)
        for profile in bypass.entry.get("with_profile", {}):
            yield _bypass_row(bypass, f"the same with the profile `{profile}`", profile)
    yield from ("", "## Circumstances", "", _row(["circumstance", "outcome", "mitigation"]))
    yield _row(["---"] * 3)
    for entry in data()["circumstances"]:
        mitigations = entry.get("mitigations", "").split()
        yield _row([entry["description"], _emphasized(entry["outcome"]), _joined(mitigations)])
    yield from ("", "## Other makers", "", *_OTHER_MAKERS, "", *makers.table())
    yield from ("", "## The strict policy", "", _STRICT, "", "```yaml")
    yield from ("apiVersion: gpuward.io/v1", "kind: Policy", strict_policy().rstrip(), "```")
    yield from ("", "## Mitigations", "", _row(["mitigation", "what to do"]), _row(["---"] * 2))
    yield from (_row([f"*{name}*", text]) for name, text in data()["mitigations"].items())
    yield from ("", "## Not kept off", "", _row(["reason", "why"]), _row(["---"] * 2))
    yield from (_row([f"*{name}*", text]) for name, text in data()["remaining"].items())
    yield from ("", "## Not executed", "", _row(["reason", "why"]), _row(["---"] * 2))
    for name, entry in answers.data()["unexecuted"].items():
        yield _row([f"*{name}*", entry["why"]])
    yield ""


def _bypass_row(bypass: Bypass, description: str, profile: str | None) -> str:
    cells = {column: bypass.cell(column, profile) for column in COLUMNS}
    needs_mitigation = cells["pods"] in ("announced", NOT_STOPPED)
    if profile:
        # These two are tested with their own profile only.
        cells["strict"] = cells["exclusion"] = "not tested"
    names = bypass.mitigations if needs_mitigation else []
    outcomes = {column: _emphasized(cell) for column, cell in cells.items()}
    if bypass.remains and not profile:
        outcomes["exclusion"] += f": *{bypass.remains}*"
    return _row([description, *outcomes.values(), _on_a_node(bypass), _joined(names)])


def _on_a_node(bypass: Bypass) -> str:
    """Return what the container gets, or the reason why that was not executed."""
    if found := answers.recorded().get(bypass.name):
        return str(found)
    if on_a_node := answers.on_a_node().get(bypass.name):
        return on_a_node.without
    return f"*{answers.reasons()[bypass.name]}*"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _emphasized(cell: str) -> str:
    return f"**{cell}**" if cell == NOT_STOPPED else cell


def _joined(mitigations: Iterable[str]) -> str:
    return ", ".join(f"*{name}*" for name in mitigations)
