"""The page of the findings: namespaces by rules, and each finding with its fix."""

from __future__ import annotations

import difflib
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from cluster.source.objects import Object
from reports.entries import fingerprints
from reports.findings import LEVEL_BY_ACTION, LocatedFinding
from reports.formats import ReportStyle, affected_objects_text
from reports.formats.json import write
from reports.results import Results
from rules.base.json_values import Json, Operation, as_object, as_objects, as_text
from rules.engine.bounds import MAX_STEPS, StepLimit, TooManyStepsError
from rules.engine.fixing import fix
from rules.engine.rule_set import ActiveRule, RuleSet
from rules.finding import Finding
from rules.profile.context import Context

PAGE = 50
"""Findings on one page."""
CLUSTER = "(no namespace)"
_MAX_NAMESPACES, _MAX_RULES = 40, 24  # of the heat map
_LEVELS = tuple(LEVEL_BY_ACTION.values())


class Filter(NamedTuple):
    """The choice of the viewer. `level` is the lowest; `refused`: only what deny refuses."""

    namespace: str = ""
    rule: str = ""
    owner: str = ""
    level: str = ""
    refused: bool = False
    page: int = 1

    @property
    def is_empty(self) -> bool:
        """Return whether it chooses all findings."""
        return not (self.namespace or self.rule or self.owner or self.level)

    def query(self, **changes: str | int) -> dict[str, str]:
        """The query of the address with these changes; only what is not the default."""
        wanted = self._replace(**changes)._asdict()  # type: ignore[arg-type]  # fields by name
        wanted["as"] = "deny" if wanted.pop("refused") else ""
        return {
            name: str(value)
            for name, value in wanted.items()
            if value and not (name == "page" and value == 1)
        }


class Row(NamedTuple):
    """One finding. `objects` is how many objects of its owner have the fault."""

    mark: str
    level: str
    rule: str
    message: str
    help: str
    namespace: str
    owner: str
    where: str
    container: str
    pointer: str
    field: str
    is_fixable: bool
    objects: int


class Cell(NamedTuple):
    """The number of findings of a rule in a namespace, and the highest level of them."""

    rule: str
    number: int
    level: str


class HeatRow(NamedTuple):
    """A namespace of the heat map."""

    namespace: str
    total: int
    cells: tuple[Cell, ...]


class OwnerRow(NamedTuple):
    """The numbers of findings of an owner, by level."""

    namespace: str
    owner: str
    counts: Mapping[str, int]


class FindingsPage(NamedTuple):
    """All that the page says. `left_out` are rules and namespaces that the heat map lacks.

    `hidden` are the findings that the filter leaves out, and `hidden_owners` who has only those.
    """

    counts: Mapping[str, int]
    rules: tuple[str, ...]
    heat: tuple[HeatRow, ...]
    left_out: int
    owners: tuple[OwnerRow, ...]
    rows: tuple[Row, ...]
    matching: int
    filter: Filter
    first: int
    remarks: tuple[tuple[str, str], ...]
    not_evaluated: tuple[str, ...]
    hidden: int
    hidden_owners: int

    @property
    def pages(self) -> int:
        """Return how many pages of findings there are."""
        return -(-self.matching // PAGE)


def findings_page(results: Results, wanted: Filter, *, most: int = PAGE) -> FindingsPage:
    """The page about the results of an audit, with at most so many findings."""
    rows = _rows(results)
    chosen = [row for row in rows if _fits(row, wanted)]
    chosen.sort(key=lambda row: (_LEVELS.index(row.level), row.namespace, row.owner, row.rule))
    first = (wanted.page - 1) * most
    names, heat, left_out = _heat([row for row in rows if row.level != "note" or wanted.level])
    return FindingsPage(
        Counter(row.level for row in rows),
        names,
        heat,
        left_out,
        tuple(_owners(chosen)),
        tuple(chosen[first : first + most]),
        len(chosen),
        wanted,
        first,
        tuple((r.level, r.message) for r in results.remarks if r.level != "note"),
        tuple(failed.message for failed in results.not_evaluated),
        hidden=len(rows) - len(chosen),
        hidden_owners=_count_owners(rows) - _count_owners(chosen),
    )


def _count_owners(rows: Iterable[Row]) -> int:
    return len({(row.namespace, row.owner) for row in rows})


def chosen_rows(results: Results, wanted: Filter) -> list[Row]:
    """All findings that fit the filter, in the order of the audit."""
    return [row for row in _rows(results) if _fits(row, wanted)]


def _rows(results: Results) -> list[Row]:
    return [*map(_row, results.findings, fingerprints(results.findings))]


def document(results: Results, wanted: Filter) -> Any:
    """Return the content of the page as `gpuward audit --output json` writes it."""
    shown = Results()
    shown.findings = [found for mark, found in by_mark(results) if _fits(_row(found, mark), wanted)]
    shown.remarks, shown.not_evaluated = results.remarks, results.not_evaluated
    shown.objects, shown.pods, shown.policy = results.objects, results.pods, results.policy
    out = io.StringIO()
    write(out, shown, ReportStyle())
    return json.loads(out.getvalue())


def find(results: Results, mark: str) -> LocatedFinding | None:
    """The finding with this fingerprint; None if there is none."""
    return next((found for own, found in by_mark(results) if own == mark), None)


def by_mark(results: Results) -> Iterator[tuple[str, LocatedFinding]]:
    """Each finding by its fingerprint."""
    return zip(fingerprints(results.findings), results.findings, strict=True)


def row_of(located: LocatedFinding, mark: str) -> Row:
    """Return the row of one finding."""
    return _row(located, mark)


def _row(located: LocatedFinding, mark: str) -> Row:
    finding = located.finding
    owner = located.owner or finding.object
    return Row(
        mark,
        located.level,
        finding.rule,
        finding.message,
        finding.help,
        (finding.object.namespace if finding.object else "") or CLUSTER,
        f"{owner.kind} {owner.name}" if owner else "",
        affected_objects_text(located),
        finding.container,
        located.pointer_in_object,
        located.excerpt.text,
        finding.fixable,
        located.object_count,
    )


def _fits(row: Row, wanted: Filter) -> bool:
    lowest = wanted.level or "warning"
    return (
        wanted.namespace in {"", row.namespace}
        and wanted.rule in {"", row.rule}
        and wanted.owner in {"", row.owner}
        and _LEVELS.index(row.level) <= _LEVELS.index(lowest)
    )


def _heat(rows: Iterable[Row]) -> tuple[tuple[str, ...], tuple[HeatRow, ...], int]:
    """The rules and namespaces with the most findings, and how many are left out."""
    counts: Counter[tuple[str, str]] = Counter()
    worst: dict[tuple[str, str], str] = {}
    for row in rows:
        place = row.namespace, row.rule
        counts[place] += 1
        worst[place] = min(worst.get(place, "note"), row.level, key=_LEVELS.index)
    by_rule: Counter[str] = Counter()
    by_namespace: Counter[str] = Counter()
    for (namespace, rule), count in counts.items():
        by_rule[rule] += count
        by_namespace[namespace] += count
    names = tuple(sorted(sorted(by_rule), key=by_rule.__getitem__, reverse=True)[:_MAX_RULES])
    order = sorted(sorted(by_namespace), key=by_namespace.__getitem__, reverse=True)
    heat = tuple(
        HeatRow(
            namespace,
            by_namespace[namespace],
            tuple(
                Cell(rule, counts[namespace, rule], worst.get((namespace, rule), ""))
                for rule in names
            ),
        )
        for namespace in order[:_MAX_NAMESPACES]
    )
    return names, heat, len(by_rule) - len(names) + len(order) - len(heat)


def _owners(rows: Iterable[Row]) -> Iterator[OwnerRow]:
    """The owners with the most errors first, of which a page can show some."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        found.setdefault((row.namespace, row.owner), Counter())[row.level] += 1
    for (namespace, owner), counts in sorted(
        found.items(), key=lambda item: (*(-item[1][level] for level in _LEVELS), item[0])
    )[:_MAX_NAMESPACES]:
        yield OwnerRow(namespace, owner, counts)


# The fix of one finding, as a diff of its object.

HIDDEN_VALUE = "(not shown)"
_CONTEXT = 3  # lines around a change
_MAX_LINES = 400


class FixPreview(NamedTuple):
    """The lines of a diff, each with its sign; `why` says why there is none."""

    title: str
    lines: tuple[tuple[str, str], ...]
    why: str = ""


def fix_preview(
    raw: Object, located: LocatedFinding, rules: RuleSet, context: Context
) -> FixPreview:
    """Return the changes that the fix of a finding alone would make in its object `raw`."""
    finding = located.finding
    if not finding.fixable:
        return FixPreview("", (), "this finding has no fix that is made by itself")

    def is_suppressed(other: Finding, _active: ActiveRule) -> bool:
        return other.identity != finding.identity

    try:
        done = fix(raw, rules, context, is_suppressed, steps=StepLimit(MAX_STEPS))
    except TooManyStepsError:
        return FixPreview("", (), "the fixes take too many steps for the size of the object")
    if not done.operations:
        return FixPreview("", (), "the fix needs that of another finding")
    touched = frozenset(map(_place, done.operations))
    before, after = (_yaml(_redacted(value, touched)) for value in (raw, done.manifest))
    lines = difflib.unified_diff(before, after, lineterm="", n=_CONTEXT)
    shown = tuple((line[0], line[1:]) for line in [*lines][2:_MAX_LINES])
    return FixPreview(finding.fix, shown)


def _place(operation: Operation) -> str:
    return str(operation["path"])


def _redacted(raw: Json, touched: frozenset[str]) -> Any:
    """An object without its status, and without the values of variables that no fix changes.

    A page is for more readers than a manifest: the values of variables are often passwords.
    """
    kept = {name: value for name, value in as_object(raw).items() if name != "status"}
    metadata = dict(as_object(kept.get("metadata")))
    annotations = dict(as_object(metadata.get("annotations")))
    if annotations.pop("kubectl.kubernetes.io/last-applied-configuration", None):
        metadata["annotations"] = annotations
    kept["metadata"] = metadata
    return _without_values(kept, "", touched)


def _without_values(value: Any, place: str, touched: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {
            key: _variables(inner, f"{place}/env", touched)
            if key == "env"
            else _without_values(inner, f"{place}/{_escaped(str(key))}", touched)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_without_values(inner, f"{place}/{n}", touched) for n, inner in enumerate(value)]
    return value


def _variables(env: Any, place: str, touched: frozenset[str]) -> Any:
    if not isinstance(env, list):
        return HIDDEN_VALUE
    found = dict(as_objects(env))
    return [
        {**found[n], "value": HIDDEN_VALUE}
        if "value" in found.get(n, ())
        and not any(path.startswith(f"{place}/{n}") for path in touched)
        and not _is_about_gpus(as_text(found[n].get("name")))
        else variable
        for n, variable in enumerate(env)
    ]


def _is_about_gpus(name: str) -> bool:
    return name.endswith("_VISIBLE_DEVICES") or name == "NVIDIA_DRIVER_CAPABILITIES"


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _yaml(value: Any) -> list[str]:
    text: str = yaml.dump(
        value, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=10_000
    )
    return text.splitlines()
