"""A pod does not say which resource claim it means, in a way that Kubernetes knows.

What it does
------------
Finds entries of `spec.resourceClaims` with the block `source`, which Kubernetes 1.31 replaced by
fields of the entry itself, entries that name both a claim and a template or neither of them, and
two entries with one name.

Why it matters
--------------
The API server refuses the pod. A Deployment or a Job is refused as well, because its template is
checked in the same way. Many examples on the web have the block `source`.

Fix safety
----------
The fix moves the fields of the block `source` into the entry, and changes none.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
- Kubernetes, `pkg/apis/core/validation/validation.go`
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import Path, as_object, as_text, display, put, remove
from rules.base.traits import RESOURCE_CLAIMS_OF_POD
from rules.gpu.claims import CLAIM_NAME_FIELD, CLAIMS_FIELD, TEMPLATE_NAME_FIELD, declared_claims
from rules.objects.container import POD_SPEC
from rules.rule import Action, Context, Finding, Findings, Fix, Pod, define_rule

_NAME_FIELDS = (CLAIM_NAME_FIELD, TEMPLATE_NAME_FIELD)
_SOURCE_FIELD = "source"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each entry of the pod that Kubernetes cannot follow."""
    if pod.layout is not POD_SPEC or pod.is_partial:
        return
    entries = declared_claims(pod)
    last = {as_text(entry.get("name")): index for index, entry in entries}
    for index, entry in entries:
        path: Path = (*pod.path, CLAIMS_FIELD, index)
        name = as_text(entry.get("name"))
        shown = f"the resource claim {display(name)} of the pod" if name else "a claim of the pod"
        given = [field for field in _NAME_FIELDS if entry.get(field)]
        if _SOURCE_FIELD in entry:
            yield _finding(
                (*path, _SOURCE_FIELD),
                name,
                f"{shown} has the block {_SOURCE_FIELD}, which Kubernetes knows no longer",
                f"write its fields beside the name, without {_SOURCE_FIELD}",
                _fix_by_moving_up(path, entry),
            )
        elif not given:
            advice = f"write {TEMPLATE_NAME_FIELD} or {CLAIM_NAME_FIELD}"
            yield _finding(path, name, f"{shown} names neither a claim nor a template", advice)
        elif len(given) > 1:
            advice = f"remove {CLAIM_NAME_FIELD} or {TEMPLATE_NAME_FIELD}"
            yield _finding(path, name, f"{shown} names both a claim and a template", advice)
        elif name and last[name] != index:
            advice = "give each a name of its own"
            yield _finding((*path, "name"), f"{name}.twice", f"{shown} is there twice", advice)


def _fix_by_moving_up(path: Path, entry: Mapping[str, Any]) -> Fix | None:
    source = as_object(entry.get(_SOURCE_FIELD))
    moved = {field: source[field] for field in _NAME_FIELDS if source.get(field)}
    if len(moved) != 1 or not entry.keys().isdisjoint(_NAME_FIELDS):
        return None
    edits = [put((*path, field), value) for field, value in moved.items()]
    return Fix(
        "write its fields beside the name", (*edits, remove((*path, _SOURCE_FIELD))), safe=True
    )


def _finding(path: Path, key: str, fault: str, advice: str, fix: Fix | None = None) -> Finding:
    return Finding(
        path=path,
        key=f"{CLAIMS_FIELD}.{key}",
        message=f"{fault}: the API server refuses it",
        help=advice,
        fix=fix,
        api_refuses=True,
    )


in_process = "API servers refuse such pods and templates before they ask policies"


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(RESOURCE_CLAIMS_OF_POD,))
