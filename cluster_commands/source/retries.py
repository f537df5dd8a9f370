"""Requests that are sent again if the API server does not answer, or not now."""

from __future__ import annotations

import time
from collections.abc import Callable

from cluster.api.connection import Connection
from cluster.api.errors import UnavailableError, UnreachableError
from cluster.source.objects import Object

_ATTEMPTS = 6  # of a request, so that an API server may restart meanwhile
_MAX_WAIT = 60.0  # seconds
_MAX_BYTES = 32 << 20  # of an answer; one object has at most about three


class RetryingConnection:
    """Sends requests to an API server that may be sent twice, as they have the same effect then.

    A request that the API server does not answer, or answers with 429 or 5xx, is sent again: after
    as many seconds as the API server asks for, at most a minute, else after 1, 2, 4, … seconds.
    If the very first request reaches nobody, the address is wrong, and there is no second one.
    `wait` waits so many seconds. Errors of the kind `gives_up_on` are raised at once.
    """

    gives_up_on: type[UnavailableError] | tuple[()] = ()

    def __init__(
        self, connection: Connection, wait: Callable[[float], object] = time.sleep
    ) -> None:
        self._connection = connection
        self._wait = wait
        self._has_answered = False

    def request(
        self, method: str, path: str, body: Object | None = None, sent: str = "application/json"
    ) -> Object:
        """The JSON response. Raises ClusterError, as those of `cluster.api.errors`."""
        for attempt in range(_ATTEMPTS):
            try:
                answer = self._connection.request(method, path, body, sent, _MAX_BYTES)
                self._has_answered = True
                return answer  # noqa: TRY300  # the loop goes on after an error
            except UnavailableError as error:
                is_first = isinstance(error, UnreachableError) and not self._has_answered
                is_final = is_first or isinstance(error, self.gives_up_on)
                if is_final or attempt == _ATTEMPTS - 1:
                    raise
                seconds = error.retry_after if error.retry_after is not None else 2.0**attempt
            self._wait(min(seconds, _MAX_WAIT))
        raise AssertionError("unreachable")

    def get_text(self, path: str) -> str:
        """The text at a path of the API server; asked for once. Raises ClusterError."""
        return self._connection.get_text(path, _MAX_BYTES)
