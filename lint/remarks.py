"""Remarks about a document, or about the policy: what no rule reports."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from kubeyaml import Document
from lint.suppressions import Suppressions, comments_in_no_object
from policies.policy import GPU_EXCEPTION_API, GPU_EXCEPTION_KIND, Policy
from reports.results import Remark, Results
from rules.base.json_values import Path, as_object, as_text, display, find_value
from rules.engine.evaluation import EvaluationResult
from rules.engine.rule_set import PolicyException
from rules.objects.object_ref import BUILT_IN_GROUPS, group_of
from rules.profile.context import Context
from rules.profile.profile import Profile
from sources.manifests import File


def key_and_comment_remarks(
    file: File, document: Document, comments: Suppressions, rules: frozenset[str]
) -> Iterator[Remark]:
    """Keys that are there twice, and comments that do not suppress what they name.

    `rules` are the names of all rules.
    """
    name = file.source.name
    for duplicate in document.duplicates:
        line, column = file.position(duplicate.key_start)
        key = str(duplicate.path[-1])
        message = (
            f"the key {key!r} is here twice: kubectl takes only this one, and kustomize refuses "
            "the file"
        )
        yield Remark("warning", name, line, column, message)

    def line_of(path: Path) -> int:
        return file.span_of_path(document, path).line

    for comment, message in comments.comment_faults(rules, line_of):
        line, column = file.position(comment.start)
        yield Remark("warning", name, line, column, message)


def misplaced_comment_remarks(file: File, handled: Collection[int]) -> Iterator[Remark]:
    """The comments that suppress nothing because of where they stand.

    The comments in the lines `handled` are in objects.
    """
    for offset, message in comments_in_no_object(file, handled):
        line, column = file.position(offset)
        yield Remark("warning", file.source.name, line, column, message)


def unread_remarks(
    file: File,
    document: Document,
    objects: Iterable[tuple[Mapping[str, Any], Path]],
    result: EvaluationResult,
    profile: Profile,
) -> Iterator[Remark]:
    """Yield remarks about fields that tell of GPUs in a document where gpuward finds no pod.

    `objects` are those of the document.
    """
    if all(group_of(raw) in BUILT_IN_GROUPS for raw, _ in objects):
        return
    from lint.gpu_fields_outside_pods import gpu_fields_outside_pods  # noqa: PLC0415  # few files need it

    why = (
        "where gpuward finds no pod: the pods that its controller makes are evaluated only at "
        "admission"
    )
    fields = gpu_fields_outside_pods(document.value, profile, result.pod_paths)
    yield from _remarks_about_fields(file, document, fields, why)


def misplaced_field_remarks(
    file: File, document: Document, result: EvaluationResult
) -> Iterator[Remark]:
    """Yield a remark about each pod whose own security context has a field of containers."""
    field = ("securityContext", "privileged")
    message = (
        "privileged is no field of a pod's own securityContext: kubectl refuses it, and for other "
        "clients no container is privileged; write it in the securityContext of a container, or "
        "remove it"
    )
    for path in result.pod_paths:
        spec = find_value(document.value, path)
        if "containers" in as_object(spec) and find_value(spec, field) is True:
            span = file.span_of_path(document, (*path, *field))
            yield Remark("warning", file.source.name, span.line, span.column, message)


def values_remarks(
    file: File, profile: Profile, uses_values: Callable[[str], bool] | None
) -> Iterator[Remark]:
    """Yield remarks about fields that tell of GPUs in a file of a chart's values.

    It yields none if a rendering has used the values.
    """
    if not file.has_values:
        return
    from lint.gpu_fields_outside_pods import gpu_fields_in_values  # noqa: PLC0415  # few files need it

    why = "in the values of a chart: lint the chart with --render, and with these --values"
    if uses_values:
        if uses_values(file.source.name):
            return
        why = "in values that no rendering here uses: lint their chart with these --values"
    for document in file.values():
        yield from _remarks_about_fields(
            file, document, gpu_fields_in_values(document.value, profile), why
        )


# One of them is in every file that `other_file_remarks` reads.
_WORDS_ABOUT_GPUS = ("_VISIBLE_", "runtimeClassName", "/dev/", "cdi", "nri.io")
_SERVICES_FIELD = "services"


def other_file_remarks(
    file: File, profile: Profile, uses_values: Callable[[str], bool] | None
) -> Iterator[Remark]:
    """Yield remarks about fields that tell of GPUs in a file that is no manifest.

    It may have the values of a chart under another name, or settings of another program. Files of
    docker compose and of CI systems are read with `--also`.
    """
    name, is_read = file.source.name, file.source.is_rendering or file.has_values
    is_read = is_read or not file.may_have_other_documents
    if is_read or (uses_values and uses_values(name)):
        return
    if not any(word in file.source.text for word in _WORDS_ABOUT_GPUS):
        return
    from lint.gpu_fields_outside_pods import gpu_settings  # noqa: PLC0415  # few files need it
    from sources.container_files.kinds import container_file_kind  # noqa: PLC0415  # likewise
    from sources.embedded_manifests import objects_of_other_programs  # noqa: PLC0415  # likewise

    if container_file_kind(name):
        return
    why = "in a file that is no manifest: lint what is made of it, as charts by --render --values"
    for document in file.other_documents():
        if _SERVICES_FIELD not in as_object(document.value):
            read_paths = [path for path, _ in objects_of_other_programs(document.value)]
            fields = gpu_settings(document.value, profile, read_paths)
            yield from _remarks_about_fields(file, document, fields, why)


def _remarks_about_fields(
    file: File, document: Document, fields: Iterable[tuple[Path, str]], why: str
) -> list[Remark]:
    spans = ((file.span_of_path(document, path), name) for path, name in fields)
    return [
        Remark(
            "note",
            file.source.name,
            span.line,
            span.column,
            f"{name} is {why}",
            is_always_shown=True,
        )
        for span, name in sorted((span, display(name)) for span, name in spans)
    ]


def component_remarks(file: File, document: Document, result: EvaluationResult) -> Iterator[Remark]:
    """The components of the GPU platform, for which rules are not run."""
    for path, rules in result.excused:
        span = file.span_of_path(document, path)
        what = f"does not run {', '.join(rules)}" if rules else "runs no rule"
        message = f"gpuward {what} for this pod, because it is a component of the GPU platform"
        yield Remark("note", file.source.name, span.line, span.column, message)


def exception_remarks(
    exceptions: Iterable[PolicyException],
    file: str,
    used: Collection[PolicyException],
    today: datetime.date,
    reported: set[PolicyException],
) -> Iterator[Remark]:
    """Those of the `exceptions`, which `file` has, that expired or are not in `used`.

    Each is added to `reported`, and those that are there already are left out.
    """
    for exception in exceptions:
        if exception in reported:
            continue
        reported.add(exception)
        if exception.has_expired(today):
            level, what = "warning", f"expired on {exception.expires}"
        elif exception not in used:
            level, what = "note", "accepted nothing in these files"
        else:
            continue
        message = f"the exception to {', '.join(exception.rules)} ({exception.reason}) {what}"
        yield Remark(level, file, 1, 1, message)


_LEVEL_BY_REASON = {"Ended": "warning", "NotApproved": "note"}  # the others are errors


def add_gpu_exception_remarks(
    results: Results,
    file: File,
    document: Document,
    objects: Iterable[tuple[Mapping[str, Any], Path]],
    *,
    policy: Policy | None,
    context: Context,
) -> None:
    """Add remarks about the GpuExceptions among the `objects` of a document to `results`.

    `policy` is None if it is not known what the cluster allows.
    """
    for raw, path in objects:
        if raw.get("kind") == GPU_EXCEPTION_KIND and raw.get("apiVersion") == GPU_EXCEPTION_API:
            results.gpu_exceptions += 1
            metadata = as_object(raw.get("metadata"))
            namespace = as_text(metadata.get("namespace")) or context.namespace or "default"
            known = {**raw, "metadata": {**metadata, "namespace": namespace}}
            name = f"the GpuException {as_text(metadata.get('name')) or '<none>'}"
            for level, place, text in _gpu_exception_problems(known, policy, context):
                span = file.span_of_path(document, (*path, *place))
                results.remarks.append(
                    Remark(level, file.source.name, span.line, span.column, f"{name}: {text}")
                )


def _gpu_exception_problems(
    raw: Mapping[str, Any], policy: Policy | None, context: Context
) -> Iterator[tuple[str, Path, str]]:
    """The level, the path and the text of each problem."""
    from policies.gpu_exceptions import AcceptanceReason, acceptance, find_gpu_exception_problems  # noqa: PLC0415  # few files have one

    own = list(find_gpu_exception_problems(raw))
    yield from (("error", path, text) for path, text in own)
    found = acceptance(raw, policy.gpu_exception_limits if policy else (), context.today)
    is_known = policy is not None or found.reason in {
        AcceptanceReason.ENDED,
        AcceptanceReason.TOO_LARGE,
    }
    if is_known and not own and not found.is_accepted:
        yield (
            _LEVEL_BY_REASON.get(found.reason.value, "error"),
            ("spec",),
            f"not accepted: {found.message}",
        )
