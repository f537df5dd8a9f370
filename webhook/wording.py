"""What users read: warnings within the API server's limits, and one message a denial.

An API server drops a warning that holds a control character, and cuts every warning to 256
bytes once all of them together, other webhooks' included, exceed 4,096 (seen).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rules.base.json_access import display
from rules.base.json_patch import Path
from rules.engine.result import RuleFailure
from rules.finding import Finding

UNMENDED = "gpuward's fix is missing: another webhook changed the pod after it, or a call failed"
MAX_WARNING = 1000
MAX_WARNINGS = 3500
MAX_LISTED = 20
MAX_NAMED = 4


def warned(finding: Finding, verb: str = "") -> str:
    """A finding as a warning; `verb` says what would become of the object."""
    return f"gpuward [{finding.rule}] {verb}{told(finding)}"


def told(finding: Finding) -> str:
    """A finding and its remedy, standing alone."""
    return f"{finding.message}; {finding.help}" if finding.help else finding.message


def mended(findings: Iterable[Finding], verb: str) -> list[str]:
    """What was or would be fixed: one warning for each rule and kind of fix."""
    groups: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        title = finding.fix.title if finding.fix else ""
        groups.setdefault((finding.rule, title), []).append(finding.container_name)
    return [
        f"gpuward [{rule}] {verb}{_within(names)}: {title}"
        for (rule, title), names in groups.items()
    ]


def _within(names: Sequence[str]) -> str:
    unique = [name for name in dict.fromkeys(names) if name]
    if not unique:
        return ""
    listed = ", ".join(display(name) for name in unique[:MAX_NAMED])
    more = len(unique) - MAX_NAMED
    kind = "container" if len(unique) == 1 else "containers"
    return f" in {kind} {listed}" + (f" and {more} more" if more > 0 else "")


def broken(failure: RuleFailure) -> str:
    """The warning about a rule of ours that failed; what it stumbled on is for our own log."""
    return f"gpuward [{failure.rule}] failed and did not judge this object: a fault of gpuward"


def fitting(warnings: Iterable[str]) -> list[str]:
    """`warnings` as the API server takes them: each once, on one line, not too many in all."""
    lines = list(dict.fromkeys(_clean(warning, MAX_WARNING) for warning in warnings))
    kept: list[str] = []
    left = MAX_WARNINGS
    for line in lines:
        left -= len(line.encode())
        if left < 0:
            more = len(lines) - len(kept)
            return [*kept, f"gpuward: {more} more; `gpuward lint` shows everything"]
        kept.append(line)
    return kept


def denial(findings: Sequence[Finding], failures: Sequence[RuleFailure] = ()) -> str:
    """One message with every reason why an object is refused."""
    lines = [f"[{finding.rule}] {told(finding)}" for finding in findings]
    lines += [f"[{f.rule}] failed, and the policy says onRuleError: deny" for f in failures]
    if len(lines) == 1:
        return _clean(f"gpuward {lines[0]}", MAX_WARNING)
    kept = [f"- {_clean(line, MAX_WARNING)}" for line in lines[:MAX_LISTED]]
    more = len(lines) - len(kept)
    if more:
        kept.append(f"- and {more} more; `gpuward lint` shows everything")
    return "\n".join((f"gpuward found {len(lines)} faults", *kept))


def causes(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """The same for programs: `status.details.causes`."""
    return [
        {
            "reason": finding.rule,
            "message": _clean(finding.message, MAX_WARNING),
            "field": field_path(finding.path),
        }
        for finding in findings[:MAX_LISTED]
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
            text += f"[{_clean(step, 100)}]"
    return text


def _clean(text: str, limit: int) -> str:
    """`as_text` without what the API server would drop it for, cut at a whole character."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else "?" for c in text)
    if len(text) > limit or len(text.encode()) > limit:
        text = text.encode()[: limit - 3].decode(errors="ignore") + "…"
    return text
