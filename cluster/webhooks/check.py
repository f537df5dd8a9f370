"""Check whether the webhook works: call the target of every entry as an API server does."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from urllib.parse import urlsplit

from cluster.protocols import ClusterError, ConfigurationRef, Object
from cluster.webhooks.comparison import differences
from cluster.webhooks.webhook_client import CallError, Target, Validity
from registration.expectation import Expectation
from registration.hints import (
    MISSING_HINT,
    hint_about_certificate,
    hint_after_error,
    hint_for_changed,
)
from webhook.registration import WEBHOOK_NAME_SUFFIX

Get = Callable[[ConfigurationRef], Object | None]
"""Returns a webhook configuration; None if it does not exist. Raises ClusterError."""
Probe = Callable[[Target], tuple[str, Validity]]
"""Calls a target; returns the outcome in words and its certificate's validity; or CallError."""
_MAX_CONNECTIONS = 8
_RETRY_SECONDS = 1.0


class Entry(NamedTuple):
    """One webhook of a configuration, as far as its calls are concerned."""

    name: str
    target: Target
    failure_policy: str
    timeout_seconds: int


class CheckResult(NamedTuple):
    """The result for `subject`, and if it is not `ok`, a hint what to do."""

    subject: str
    message: str
    ok: bool = True
    hint: str = ""


class CheckReport(NamedTuple):
    """All results, and the entries that were checked."""

    results: Sequence[CheckResult]
    entries: Sequence[Entry]

    @property
    def ok(self) -> bool:
        """Whether the webhook works."""
        return all(result.ok for result in self.results)


def check(
    get: Get, probe: Probe, refs: Iterable[ConfigurationRef], expectation: Expectation | None = None
) -> CheckReport:
    """Read each configuration, and call each target that one of them names once.

    Each configuration is compared with the one in `expectation`, if it is given.
    """
    results: list[CheckResult] = []
    entries: list[Entry] = []
    refs = list(refs)
    for ref in refs:
        try:
            configuration = get(ref)
        except ClusterError as error:
            results.append(CheckResult(_subject(ref), f"cannot be read: {error}", ok=False))
            continue
        if expectation is not None:
            results += _compare(ref, expectation.get(ref), configuration, hint_for_changed(refs))
        entries_or_error = _read_entries(ref, configuration)
        if isinstance(entries_or_error, CheckResult):
            results.append(entries_or_error)
        else:
            entries += entries_or_error
    targets = list(dict.fromkeys(entry.target for entry in entries))
    with ThreadPoolExecutor(_MAX_CONNECTIONS) as pool:
        results += pool.map(lambda target: _check_target(probe, target), targets)
    return CheckReport(results, entries)


def retry_until_ok(
    run: Callable[[], CheckReport], seconds: float, on_failure: Callable[[CheckReport], None]
) -> CheckReport:
    """The first report that is ok, or the last one after `seconds`.

    `on_failure` is called with every other report.
    """
    deadline = time.monotonic() + seconds
    while not (report := run()).ok and time.monotonic() < deadline:
        on_failure(report)
        time.sleep(_RETRY_SECONDS)
    return report


def summary(entries: Sequence[Entry]) -> str:
    """How many webhooks there are, and what API servers do if they do not answer."""
    policies = Counter(entry.failure_policy for entry in entries)
    timeouts = sorted({entry.timeout_seconds for entry in entries})
    failure_policies = " and ".join(f"{policy} for {n}" for policy, n in sorted(policies.items()))
    seconds = " or ".join(str(timeout) for timeout in timeouts)
    return f"{len(entries)} webhooks; failurePolicy {failure_policies}; timeoutSeconds {seconds}"


def _compare(
    ref: ConfigurationRef, expected: Object | None, found: Object | None, hint: str
) -> Iterator[CheckResult]:
    subject = _subject(ref)
    if expected is None:
        yield CheckResult(subject, "it is not in the file of --expected", ok=False)
    elif found is not None:  # that it is missing is reported anyway
        changes = differences(expected, found)
        for change in changes:
            yield CheckResult(subject, change, ok=False, hint=hint)
        if not changes:
            yield CheckResult(subject, "is what this release should have")


def _subject(ref: ConfigurationRef) -> str:
    return f"{ref.kind.value}/{ref.name}"


def _read_entries(ref: ConfigurationRef, configuration: Object | None) -> list[Entry] | CheckResult:
    """The entries of a configuration, or why there are none."""
    subject = _subject(ref)
    webhooks = (configuration or {}).get("webhooks") or []
    if not webhooks:
        message = "it does not exist" if configuration is None else "it contains no webhook"
        return CheckResult(subject, message, ok=False, hint=MISSING_HINT)
    if foreign := [w["name"] for w in webhooks if not w["name"].endswith(WEBHOOK_NAME_SUFFIX)]:
        message = f"not gpuward's, so it is not called: it contains the webhook {foreign[0]}"
        return CheckResult(subject, message, ok=False)
    return [_entry(webhook) for webhook in webhooks]


def _entry(webhook: Object) -> Entry:
    policy, seconds = webhook["failurePolicy"], webhook["timeoutSeconds"]
    return Entry(webhook["name"], _target(webhook["clientConfig"]), policy, seconds)


def _target(client_config: Object) -> Target:
    bundle = client_config.get("caBundle", "")
    if service := client_config.get("service"):
        namespace, name = service["namespace"], service["name"]
        path = service.get("path") or "/"
        return Target(f"{name}.{namespace}.svc", service["port"], path, bundle, (namespace, name))
    url = urlsplit(client_config["url"])
    return Target(url.hostname or "", url.port or 443, url.path or "/", bundle, None)


def _check_target(probe: Probe, target: Target) -> CheckResult:
    if not target.bundle:
        message = "caBundle is empty, so API servers do not trust the webhook"
        return CheckResult(target.url, message, ok=False, hint=hint_about_certificate(target))
    try:
        message, validity = probe(target)
    except CallError as error:
        return CheckResult(target.url, str(error), ok=False, hint=hint_after_error(error, target))
    return CheckResult(
        target.url, f"{message}; certificate until {validity.end:%Y-%m-%d %H:%M} UTC"
    )
