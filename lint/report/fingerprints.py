"""Fingerprints, by which other programs recognise a finding that they have seen before."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable

from reports.findings import LocatedFinding


def fingerprints(findings: Iterable[LocatedFinding]) -> list[str]:
    """The fingerprint of each finding, in their order.

    It comes from the finding's identity, so it stays the same when lines move. Findings of the
    same identity, such as those about two versions of one object, are counted: GitLab shows only
    one finding of a fingerprint.
    """
    seen: Counter[str] = Counter()
    found = []
    for located in findings:
        identity = located.finding.identity
        seen[identity] += 1
        number = f"|{seen[identity]}" if seen[identity] > 1 else ""
        found.append(fingerprint(f"{identity}{number}"))
    return found


def fingerprint(identity: str) -> str:
    """The SHA-256 of `identity`, in hexadecimal."""
    return hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()
