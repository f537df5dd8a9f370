"""The table of docs/coverage.md: bypasses of the scheduler, and what stops each.

`python -m tests.testkit.coverage.table` writes the tables into the document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from tests.testkit.admission.reviews import container, pod
from tests.testkit.paths import DATA, DOCS

FILE = DATA / "coverage.yaml"
DOCUMENT = DOCS / "coverage.md"
BEGIN, END = "<!-- tables from tests/data/coverage.yaml -->", "<!-- end of the tables -->"
NOT_STOPPED = "not stopped"
DOORS = {
    "lint": "lint",
    "pods": "Pods",
    "strict": "strict policy",
    "workloads": "workloads",
    "kubernetes": "API server alone",
    "baseline": "with Pod Security",
}


@dataclass(frozen=True)
class Channel:
    """One way to a GPU that the scheduler has not counted, as the data give it."""

    given: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What tests call it."""
        return str(self.given["name"])

    @property
    def rules(self) -> frozenset[str]:
        """The rules of which one speaks of it, if any."""
        return frozenset(self.given.get("rule", "").split())

    @property
    def fixed(self) -> Mapping[str, str]:
        """What becomes of variables where the pod is fixed: `absent`, or a new value."""
        found: Mapping[str, str] = self.given.get("fixed", {})
        return found

    @property
    def user(self) -> str:
        """Who makes the pod; empty for anybody."""
        return str(self.given.get("user", ""))

    @property
    def closing(self) -> list[str]:
        """What closes the gap."""
        found: list[str] = self.given.get("closing", "").split()
        return found

    @property
    def pod(self) -> dict[str, Any]:
        """A pod that takes it."""
        made = pod(container(**self.given.get("container", {})), **self.given.get("spec", {}))
        metadata = {"name": "trainer", "annotations": self.given.get("annotations", {})}
        owners = {"ownerReferences": self.given.get("owners", [])}
        return {**made, "metadata": {**metadata, **owners}}

    @property
    def deployment(self) -> dict[str, Any]:
        """A Deployment of such pods."""
        made = self.pod
        metadata = {"labels": {"app": "a"}, "annotations": made["metadata"]["annotations"]}
        template = {"metadata": metadata, "spec": made["spec"]}
        spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
        whole = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "trainer"}}
        return {**whole, "spec": spec}

    def cell(self, door: str, profile: str | None = None) -> str:
        """What is claimed of a door."""
        claimed = {**self.given["cells"], **self.given.get("under", {}).get(profile, {})}
        if door == "strict":
            door = "strict" if "strict" in claimed else "pods"
        return str(claimed.get(door, NOT_STOPPED))


@cache
def data() -> Any:
    """All that is claimed."""
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


def channels() -> list[Channel]:
    """All channels."""
    return [Channel(given) for given in data()["channels"]]


def profiles() -> dict[str, list[str]]:
    """The estates that are claimed about: the profiles of their policies."""
    found: dict[str, list[str]] = data()["profiles"]
    return found


def strict_policy() -> str:
    """The keys of the policy that is called strict."""
    return str(data()["strict"])


def document(text: str) -> str:
    """The document `text` with the tables that the data make."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + "\n".join([BEGIN, *_tables(), END]) + after


def _tables() -> Iterator[str]:
    for channel in channels():
        if title := channel.given.get("begins"):
            yield from (
                "",
                f"### {title}",
                "",
                _row(["channel", *DOORS.values(), "what closes it"]),
            )
            yield _row(["---"] * (len(DOORS) + 2))
        yield _line(channel, channel.given["what"], None)
        for profile in channel.given.get("under", {}):
            yield _line(channel, f"… under `{profile}`", profile)
    yield from ("", "### Circumstances", "", _row(["circumstance", "seen", "what closes it"]))
    yield _row(["---"] * 3)
    for each in data()["circumstances"]:
        yield _row([each["what"], _shown(each["seen"]), _named(each.get("closing", "").split())])
    yield from ("", "### The strict policy", "", "```yaml")
    yield from ("apiVersion: gpuward.io/v1", "kind: Policy", strict_policy().rstrip(), "```")
    yield from ("", "### What closes it", "", _row(["word", "what it is"]), _row(["---"] * 2))
    yield from (_row([f"*{name}*", text]) for name, text in data()["closings"].items())
    yield ""


def _line(channel: Channel, what: str, profile: str | None) -> str:
    cells = [channel.cell(door, profile) for door in DOORS]
    if profile:
        cells[2] = "not tried"  # the strict policy was tried under the default profile alone
    closing = channel.closing if {"announced", NOT_STOPPED} & {cells[1]} else []
    return _row([what, *map(_shown, cells), _named(closing)])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _shown(cell: str) -> str:
    return f"**{cell}**" if cell == NOT_STOPPED else cell


def _named(closing: Iterable[str]) -> str:
    return ", ".join(f"*{name}*" for name in closing)


if __name__ == "__main__":
    DOCUMENT.write_text(document(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
