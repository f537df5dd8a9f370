"""Watch the policy file: report when the webhook cannot use it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import structlog

from cluster.api.connection import Connection
from cluster.api.events import EventSource
from cluster.protocols import ClusterError
from policies.loading import PolicyError
from policies.policy_files import parse_policy, read_policy_file

_REMIND_SECONDS = 1800.0  # below the hour for which API servers keep an event
_REASON, _ACTION = "PolicyRefused", "LoadPolicy"
_log = structlog.get_logger("gpuward.policy")


class PolicyWatch:
    """Loads the policy in the file `path` at each `check()` that finds another content.

    `send_event` creates a Kubernetes Event with a text; it may raise ClusterError. A policy that
    cannot be used is reported at the second check that finds it, because half of a file may be
    wrong, and again every half hour.
    """

    def __init__(
        self,
        path: str,
        send_event: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._send_event = send_event
        self._monotonic = monotonic
        self._content = b""
        self._error = ""
        self._is_seen = False
        self._is_refused = False  # as the log says
        self._reported_at = -math.inf

    def check(self) -> None:
        """Read the file once, and report if it cannot be used. Never raises."""
        try:
            self._check()
        except Exception:  # noqa: BLE001  # a bug here must not stop the certificate controller
            _log.exception("policy not checked")

    def _check(self) -> None:
        before, self._error = self._error, self._load()
        if self._error != before:
            if self._is_refused and not self._error:
                self._is_refused = False
                _log.info("policy restored")
            self._reported_at = -math.inf
        elif self._error and self._monotonic() - self._reported_at >= _REMIND_SECONDS:
            self._reported_at = self._monotonic()
            self._report()

    def _load(self) -> str:
        """Why the policy in the file cannot be used; empty if it can."""
        try:
            content = read_policy_file(self._path)
        except PolicyError as error:
            self._is_seen = False
            return str(error)
        if self._is_seen and content == self._content:
            return self._error
        self._content, self._is_seen = content, True
        try:
            parse_policy(content, self._path).rule_set()
        except PolicyError as error:
            return str(error)
        return ""

    def _report(self) -> None:
        self._is_refused = True
        _log.error("policy refused", error=self._error)
        try:
            self._send_event(f"the webhook cannot use the policy: {self._error}")
        except ClusterError as error:
            _log.warning("event not created", error=str(error))


def make_policy_watch(connection: Connection, path: str) -> PolicyWatch:
    """A watch over the policy in the file `path`; outside of pods, it sends no events."""
    source = EventSource.this_pod()
    if source is None:
        return PolicyWatch(path, lambda _: None)
    return PolicyWatch(path, lambda text: source.warn(connection, _REASON, _ACTION, text))
