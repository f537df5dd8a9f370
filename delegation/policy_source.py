"""The policy that the controller goes by: that of the webhook."""

from __future__ import annotations

import structlog

from policies.loading import PolicyError
from policies.policy import Policy
from policies.policy_files import load_policy_file

_log = structlog.get_logger("gpuward.exceptions")


class PolicySource:
    """The policy in the file `path`; if it cannot be used, the last one, or else the fallback.

    The webhook does the same, so both go by the same policy.
    """

    def __init__(self, path: str, fallback: str | None = None) -> None:
        self._path = path
        self._fallback = fallback
        self._last: Policy | None = None
        self._error = ""

    def load(self) -> Policy:
        """The policy as it is now. PolicyError if there is none that can be used."""
        try:
            self._last = load_policy_file(self._path, [])
        except PolicyError as error:
            if str(error) != self._error:
                self._error = str(error)
                _log.error("policy refused", error=self._error)
            if self._last is None and self._fallback is None:
                raise
            return self._last or load_policy_file(self._fallback, [])
        self._error = ""
        return self._last
