"""Whether the webhook answers: every entry's own place is called as an API server would."""

from __future__ import annotations

import datetime
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from urllib.parse import urlsplit

from certs.api import ClusterError, Kind, Object
from certs.publish import Configuration
from certs.webhooks import remedies
from certs.webhooks.call import CallError, Target
from certs.webhooks.removal import OURS

Get = Callable[[Kind, str], Object | None]
"""A webhook configuration; None if there is none of that name. Raises ClusterError."""
Ask = Callable[[Target], tuple[str, datetime.datetime]]
"""What comes of asking there, and when the certificate expires. Raises CallError."""
_AT_ONCE = 8
_PAUSE = 1.0  # seconds, before all is asked again


class Entry(NamedTuple):
    """A webhook of a configuration, as far as it concerns its calls."""

    name: str
    target: Target
    failure_policy: str
    timeout_seconds: int


class Found(NamedTuple):
    """What is to be said of `where`, and what to do if that is not as it should be."""

    where: str
    said: str
    is_well: bool = True
    remedy: str = ""


class Checkup(NamedTuple):
    """What was found, and the entries that were looked at."""

    found: Sequence[Found]
    entries: Sequence[Entry]

    @property
    def is_well(self) -> bool:
        """Whether API servers get their answers."""
        return all(found.is_well for found in self.found)


def check(get: Get, ask: Ask, wanted: Iterable[Configuration]) -> Checkup:
    """Look at each configuration, and ask at each place that one of them names, once."""
    found: list[Found] = []
    entries: list[Entry] = []
    for configuration in wanted:
        read = _read(get, configuration)
        if isinstance(read, Found):
            found.append(read)
        else:
            entries += read
    targets = list(dict.fromkeys(entry.target for entry in entries))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found += pool.map(lambda target: _called(ask, target), targets)
    return Checkup(found, entries)


def patiently(
    ask: Callable[[], Checkup], seconds: float, not_yet: Callable[[Checkup], None]
) -> Checkup:
    """The first checkup that is well, or the last after `seconds`; `not_yet` hears of others."""
    deadline = time.monotonic() + seconds
    while not (checkup := ask()).is_well and time.monotonic() < deadline:
        not_yet(checkup)
        time.sleep(_PAUSE)
    return checkup


def summary(entries: Sequence[Entry]) -> str:
    """How many webhooks there are, and what API servers do when they do not answer."""
    policies = Counter(entry.failure_policy for entry in entries)
    patience = sorted({entry.timeout_seconds for entry in entries})
    counted = " and ".join(f"{policy} for {n}" for policy, n in sorted(policies.items()))
    given = " or ".join(str(seconds) for seconds in patience)
    return f"{len(entries)} webhooks; failurePolicy {counted}; timeoutSeconds {given}"


def _read(get: Get, configuration: Configuration) -> list[Entry] | Found:
    """The entries of a configuration, or why there are none."""
    where = f"{configuration.kind.value}/{configuration.name}"
    try:
        held = get(*configuration)
    except ClusterError as error:
        return Found(where, f"cannot be read: {error}", is_well=False)
    webhooks = (held or {}).get("webhooks") or []
    if not webhooks:
        said = "there is none" if held is None else "holds no webhook"
        return Found(where, said, is_well=False, remedy=remedies.MISSING)
    if foreign := [w["name"] for w in webhooks if not w["name"].endswith(OURS)]:
        said = f"not gpuward's, and not called: it holds the webhook {foreign[0]}"
        return Found(where, said, is_well=False)
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


def _called(ask: Ask, target: Target) -> Found:
    if not target.bundle:
        said = "caBundle is empty, so nobody trusts what answers"
        return Found(target.url, said, is_well=False, remedy=remedies.certificate(target))
    try:
        said, until = ask(target)
    except CallError as error:
        return Found(target.url, str(error), is_well=False, remedy=remedies.after(error, target))
    return Found(target.url, f"{said}; certificate until {until:%Y-%m-%d %H:%M} UTC")
