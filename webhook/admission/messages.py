"""The texts for users: warnings within the API server's limits, and one message for each denial.

The API server drops a warning that contains a control character. Once the warnings of all webhooks
together exceed 4,096 bytes, it cuts each of them to 256 bytes (seen).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rules.base.json_values import Path, display
from rules.engine.evaluation import RuleFailure
from rules.finding import Finding
from webhook.admission.decision import NO_TEXTS

FIX_MISSING_MESSAGE = (
    "gpuward's fix is missing: another webhook changed the pod after it, or a call failed"
)
NOT_FIXABLE_MESSAGE = "gpuward fixes this in new pods only: delete the pod, and create it anew"
MAX_WARNING_BYTES = 1000  # bytes
MAX_WARNINGS_BYTES = 3500  # bytes, of all warnings together
MAX_LISTED_FINDINGS = 20  # findings in a denial
MAX_LISTED_CONTAINERS = 4  # containers in a warning


def warning_text(finding: Finding, verb: str = "") -> str:
    """A finding as a warning; `verb` says what would happen to the object."""
    return f"gpuward [{finding.rule}] {verb}{message_with_help(finding)}"


def message_with_help(finding: Finding) -> str:
    """A finding and what to do about it."""
    return f"{finding.message}; {finding.help}" if finding.help else finding.message


def fix_warnings(findings: Iterable[Finding], verb: str) -> list[str]:
    """One warning for each rule and kind of fix; `verb` says whether it is made."""
    groups: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        title = finding.fix.title if finding.fix else ""
        groups.setdefault((finding.rule, title), []).append(finding.container_name)
    return [
        f"gpuward [{rule}] {verb}{_in_containers_words(names)}: {title}"
        for (rule, title), names in groups.items()
    ]


def _in_containers_words(names: Sequence[str]) -> str:
    unique = [name for name in dict.fromkeys(names) if name]
    if not unique:
        return ""
    listed = ", ".join(display(name) for name in unique[:MAX_LISTED_CONTAINERS])
    more = len(unique) - MAX_LISTED_CONTAINERS
    kind = "container" if len(unique) == 1 else "containers"
    return f" in {kind} {listed}" + (f" and {more} more" if more > 0 else "")


def failure_warning(failure: RuleFailure) -> str:
    """The warning about a rule that failed. The error is only logged: it may quote the object."""
    return f"gpuward [{failure.rule}] failed on this object, which is a bug in gpuward"


def limit_warnings(warnings: Iterable[str]) -> list[str]:
    """`warnings` within the API server's limits: each once, on one line, shortened if need be."""
    lines = list(dict.fromkeys(_sanitize(warning, MAX_WARNING_BYTES) for warning in warnings))
    kept: list[str] = []
    free = MAX_WARNINGS_BYTES
    for line in lines:
        free -= len(line.encode())
        if free < 0:
            more = len(lines) - len(kept)
            return [*kept, f"gpuward: {more} more; `gpuward lint` shows everything"]
        kept.append(line)
    return kept


def denial_message(
    findings: Sequence[Finding],
    failures: Sequence[RuleFailure] = (),
    verbs: Mapping[str, str] = NO_TEXTS,
) -> str:
    """One message with every reason why an object is refused, the first of `findings` first.

    Events of other programs show only its first line. `verbs` says, by the identity of a finding,
    what would happen to the object otherwise.
    """
    lines = [
        f"[{finding.rule}] {verbs.get(finding.identity, '')}{message_with_help(finding)}"
        for finding in findings
    ]
    lines += [f"[{f.rule}] failed, and the policy says onRuleError: deny" for f in failures]
    others = len(lines) - 1
    if not others:
        return _sanitize(f"gpuward {lines[0]}", MAX_WARNING_BYTES)
    ending = f"; and {others} more {'fault' if others == 1 else 'faults'}:"
    first = _sanitize(f"gpuward {lines[0]}", MAX_WARNING_BYTES - len(ending)) + ending
    kept = [f"- {_sanitize(line, MAX_WARNING_BYTES)}" for line in lines[1:MAX_LISTED_FINDINGS]]
    more = others - len(kept)
    if more:
        kept.append(f"- and {more} more; `gpuward lint` shows everything")
    return "\n".join((first, *kept))


def contact_line(contact: str, docs_url: str) -> str:
    """Return whom to ask and where to read, as a site says it; empty if it says neither."""
    parts = (contact and f"contact: {contact}", docs_url and f"docs: {docs_url}")
    return _sanitize("; ".join(filter(None, parts)), MAX_WARNING_BYTES)


def add_line(message: str, line: str) -> str:
    """`message` that ends with `line`: on a line of its own if it has several."""
    separator = "\n" if "\n" in message else "; "
    return f"{message}{separator}{line}"


def status_causes(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """The reasons for programs: `status.details.causes`."""
    return [
        {
            "reason": finding.rule,
            "message": _sanitize(finding.message, MAX_WARNING_BYTES),
            "field": field_path(finding.path),
        }
        for finding in findings[:MAX_LISTED_FINDINGS]
    ]


def field_path(path: Path) -> str:
    """`path` as Kubernetes writes it: spec.containers[0].resources.limits[nvidia.com/gpu]."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.isidentifier():
            text += f".{step}" if text else step
        else:
            text += f"[{_sanitize(step, 100)}]"
    return text


def _sanitize(text: str, limit: int) -> str:
    """`text` without characters that the API server refuses, at most `limit` bytes long."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else "?" for c in text)
    if len(text) > limit or len(text.encode()) > limit:
        text = text.encode()[: limit - 3].decode(errors="ignore") + "…"
    return text
