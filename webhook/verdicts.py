"""One word a rule about one object: for the log, the metrics and the API server's audit log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rules.finding import Action, Finding

_DENIED = {Action.DENY: "denied", Action.WARN: "warned", Action.AUDIT: "audited"}
_SPARED = {**_DENIED, Action.DENY: "would-be-denied"}
# What becomes of findings in pods and quotas, by mode …
OF_PODS: Mapping[Action, Mapping[Action, str]] = {
    Action.DENY: _DENIED,
    Action.WARN: _SPARED,
    Action.AUDIT: {**_SPARED, Action.WARN: "would-be-warned"},
}
# … in what makes pods, which is only spoken of …
OF_WORKLOADS: Mapping[Action, Mapping[Action, str]] = {
    Action.DENY: {**_DENIED, Action.DENY: "warned"},
    Action.WARN: {**_DENIED, Action.DENY: "warned"},
    Action.AUDIT: {**_DENIED, Action.DENY: "would-be-warned", Action.WARN: "would-be-warned"},
}
# … and in what the API server refuses next, as it has been explained.
EXPLAINED = dict.fromkeys(Action, "explained")
FIXED, WOULD_BE_FIXED, EXCEPTED, UNJUDGED = "fixed", "would-be-fixed", "excepted", "unjudged"
MENDING = (FIXED, WOULD_BE_FIXED)
WORDS = frozenset(
    {FIXED, WOULD_BE_FIXED, EXCEPTED, UNJUDGED, "explained", "would-be-warned", *_SPARED.values()}
) | {"denied"}


def verdicts(
    found: Iterable[Finding],
    words: Mapping[Action, str],
    fixed: Iterable[Finding] = (),
    excepted: Iterable[str] = (),
    *,
    patched: bool = False,
) -> dict[str, str]:
    """Each rule that had something to say, with the strongest that came of it."""
    strongest: dict[str, Action] = {}
    for finding in found:
        strongest[finding.rule] = max(finding.action, strongest.get(finding.rule, Action.OFF))
    mended = FIXED if patched else WOULD_BE_FIXED
    return {
        **dict.fromkeys(excepted, EXCEPTED),
        **{rule: words[action] for rule, action in strongest.items()},
        **{finding.rule: mended for finding in fixed},
    }


def doomed_of(findings: Iterable[Finding]) -> list[Finding]:
    """Those that are ours to explain now, because the API server refuses the object next."""
    return [finding for finding in findings if finding.api_refuses]
