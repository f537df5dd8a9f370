"""Remarks about GpuExceptions in files: why a cluster would not accept them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kubeyaml import Document
from policies.exceptions import GPU_EXCEPTION_API, GPU_EXCEPTION_KIND
from policies.policy import Policy
from reports.results import Remark, Results
from rules.base.json_access import as_object, as_text
from rules.base.json_values import Path
from rules.profile.context import Context
from sources.manifests import File

_LEVELS = {"Ended": "warning", "NotApproved": "note"}  # the others are errors


def check_gpu_exceptions(
    results: Results,
    file: File,
    document: Document,
    objects: Iterable[tuple[Mapping[str, Any], Path]],
    *,
    policy: Policy,
    context: Context,
) -> None:
    """Add remarks about the GpuExceptions among the `objects` of a document to `results`."""
    for raw, path in objects:
        if raw.get("kind") == GPU_EXCEPTION_KIND and raw.get("apiVersion") == GPU_EXCEPTION_API:
            results.gpu_exceptions += 1
            metadata = as_object(raw.get("metadata"))
            namespace = as_text(metadata.get("namespace")) or context.namespace or "default"
            known = {**raw, "metadata": {**metadata, "namespace": namespace}}
            name = f"the GpuException {as_text(metadata.get('name')) or '<none>'}"
            # Without a policy file it is not known what the cluster delegates.
            given = policy if results.policy else None
            for level, place, text in _problems(known, given, context):
                span = file.locate(document, (*path, *place))
                where = (file.source.name, span.line, span.column)
                results.remarks.append(Remark(level, *where, f"{name}: {text}"))


def _problems(
    raw: Mapping[str, Any], policy: Policy | None, context: Context
) -> Iterator[tuple[str, Path, str]]:
    """The level, the path and the text of each problem."""
    from policies.gpu_exceptions import Reason, acceptance, find_problems  # noqa: PLC0415  # few files have one

    own = list(find_problems(raw))
    yield from (("error", path, text) for path, text in own)
    found = acceptance(raw, policy.delegations if policy else (), context.today)
    is_known = policy is not None or found.reason in {Reason.ENDED, Reason.TOO_LARGE}
    if is_known and not own and not found.accepted:
        yield _LEVELS.get(found.reason.value, "error"), ("spec",), f"not accepted: {found.message}"
