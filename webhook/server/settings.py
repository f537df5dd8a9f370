"""The settings of the server."""

from __future__ import annotations

from typing import NamedTuple

from webhook.server.limits import Limits


class Settings(NamedTuple):
    """Addresses as HOST:PORT, times in seconds.

    `drain_seconds` is how long the server goes on answering after it is asked to stop.
    `reload_seconds` is the time between two looks at the policy and the certificate.
    `counted_namespaces` are those whose outcomes are counted by namespace. With `log_user_names`
    the log has the names of users, else hashes of them.
    """

    listen: str = ":10250"
    metrics_listen: str = ":8080"
    drain_seconds: float = 15.0
    reload_seconds: float = 2.0
    limits: Limits = Limits()
    counted_namespaces: tuple[str, ...] = ()
    log_user_names: bool = False
