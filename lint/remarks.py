"""Remarks about a document, or about the policy: what no rule reports."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator

from kubeyaml import Document
from lint.suppressions import Suppressions
from policies.policy import Policy
from reports.results import Remark
from rules.base.json_access import display
from rules.policy_exception import PolicyException
from rules.profile.profile import Profile
from rules.workloads.unread_requests import unread_gpu_requests
from sources.manifests import File


def remarks(
    file: File, document: Document, comments: Suppressions, rules: frozenset[str]
) -> Iterator[Remark]:
    """Keys that are there twice, and comments that do not suppress what they name.

    `rules` are the names of all rules.
    """
    name = file.source.name
    for duplicate in document.duplicates:
        line, column = file.position(duplicate.key_start)
        message = f"the key {str(duplicate.path[-1])!r} is here twice: only this one counts"
        yield Remark("warning", name, line, column, message)
    for comment, message in comments.faults(rules):
        line, column = file.position(comment.start)
        yield Remark("warning", name, line, column, message)


def unread_requests(file: File, document: Document, profile: Profile) -> Iterator[Remark]:
    """Requests for GPUs in a document in which gpuward finds no pod."""
    for path, resource in unread_gpu_requests(document.value, profile):
        span = file.locate(document, path)
        message = (
            f"{display(resource)} is in a kind in which gpuward finds no pod: "
            "the pods that its controller makes are evaluated only at admission"
        )
        yield Remark("note", file.source.name, span.line, span.column, message)


def exception_remarks(
    policy: Policy, file: str, used: Collection[PolicyException], today: datetime.date
) -> Iterator[Remark]:
    """The exceptions of `policy`, which `file` has, that expired or are not in `used`."""
    for exception in policy.exceptions:
        if exception.expired(today):
            level, what = "warning", f"expired on {exception.expires}"
        elif exception not in used:
            level, what = "note", "accepted nothing in these files"
        else:
            continue
        message = f"the exception to {', '.join(exception.rules)} ({exception.reason}) {what}"
        yield Remark(level, file, 1, 1, message)
