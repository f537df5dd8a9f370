"""The utilisation of the cards of pods, as Prometheus has it from NVIDIA's dcgm-exporter.

The exporter says of each card how many percent of the time a kernel ran on it, and which pod has
the card: `DCGM_FI_DEV_GPU_UTIL`. Of a card that several pods share, it is what all of them did.
Where Prometheus does not honor the labels of the exporter, it calls those of the pod `exported_pod`
and `exported_namespace`.
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit

from rules.base.json_values import as_object, as_objects, as_text

METRIC = "DCGM_FI_DEV_GPU_UTIL"
PERIODS = ("1h", "1d")
"""The last hour and the last day, as Prometheus writes them."""
_LABELS = "namespace, pod, exported_namespace, exported_pod"
_SECONDS = 5.0  # for one answer
_MAX_BYTES = 16 << 20
_KEPT_SECONDS = 60.0


class Busy(NamedTuple):
    """The percentages of the last hour and the last day, as averages of a pod's cards.

    None where Prometheus has no sample.
    """

    hour: float | None
    day: float | None


class Utilisation(NamedTuple):
    """The utilisation of the cards of pods, by namespace and name, or `why` it is not known."""

    by_pod: Mapping[tuple[str, str], Busy]
    why: str = ""


class PrometheusUrl(NamedTuple):
    """The address of a Prometheus, without the name and the password of a user."""

    address: str
    authorization: str = ""

    def __repr__(self) -> str:
        return f"PrometheusUrl({self.address!r})"


class UrlError(ValueError):
    """An address is none of a Prometheus; the message does not repeat it."""


def parse_url(text: str) -> PrometheusUrl:
    """The address in `text`, whose user and password become a header. Raises UrlError."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise UrlError("it is no URL") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UrlError("expected a URL that begins with http:// or https://")
    if parts.query or parts.fragment:
        raise UrlError("leave what follows ? and # out of the URL")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = host if port is None else f"{host}:{port}"
    address = urlunsplit((parts.scheme, place, quote(parts.path.rstrip("/"), safe="/%"), "", ""))
    if parts.username is None:
        return PrometheusUrl(address)
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return PrometheusUrl(address, f"Basic {base64.b64encode(user.encode()).decode()}")


class Prometheus:
    """Asks a Prometheus how busy cards were, at most once a minute. Threads may share it."""

    def __init__(
        self, url: PrometheusUrl, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._url, self._monotonic = url, monotonic
        self._lock = threading.Lock()
        self._known: tuple[float, Utilisation] | None = None
        https = urllib.request.HTTPSHandler(context=ssl.create_default_context())
        # Proxies of the environment are for other hosts, and an answer from elsewhere is none.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), https, _NoRedirects()
        )

    def utilisation(self) -> Utilisation:
        """Return what Prometheus knows now, or what it knew less than a minute ago."""
        with self._lock:
            now = self._monotonic()
            if self._known is None or now - self._known[0] > _KEPT_SECONDS:
                self._known = now, self._read()
            return self._known[1]

    def _read(self) -> Utilisation:
        try:
            hour, day = (self._averages(period) for period in PERIODS)
        except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
            return Utilisation({}, f"{self._url.address}: {_words(error)}")
        if not day:
            return Utilisation({}, f"{self._url.address} has no {METRIC} with a pod")
        pods = {**day, **hour}
        return Utilisation({pod: Busy(hour.get(pod), day.get(pod)) for pod in pods})

    def _averages(self, period: str) -> dict[tuple[str, str], float]:
        query = f"avg by ({_LABELS}) (avg_over_time({METRIC}[{period}]))"
        found: dict[tuple[str, str], float] = {}
        for _, series in as_objects(as_object(self._get(query).get("data")).get("result")):
            pod = _pod_of(as_object(series.get("metric")))
            value = _value_of(series.get("value"))
            if all(pod) and value is not None:
                found[pod] = value
        return found

    def _get(self, query: str) -> Mapping[str, Any]:
        request = urllib.request.Request(  # noqa: S310  # http or https: see parse_url
            f"{self._url.address}/api/v1/query?{urlencode({'query': query})}",
            headers={"Accept": "application/json"},
        )
        if self._url.authorization:
            request.add_unredirected_header("Authorization", self._url.authorization)
        with self._opener.open(request, timeout=_SECONDS) as answer:
            content = _read_all(answer, self._monotonic)
        document = as_object(json.loads(content))
        if document.get("status") != "success":
            raise ValueError("it does not answer as Prometheus does")
        return document


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: Any, **_named: Any) -> None:
        """Follow none: urllib then raises the answer as an error."""


def _read_all(answer: Any, monotonic: Callable[[], float]) -> bytes:
    """The body of an answer. Raises ValueError if it is too long, or takes too long."""
    end = monotonic() + _SECONDS
    parts: list[bytes] = []
    size = 0
    while part := answer.read1(1 << 16):
        size += len(part)
        if size > _MAX_BYTES:
            raise ValueError(f"the answer has more than {_MAX_BYTES >> 20} MiB")
        if monotonic() > end:
            raise ValueError(f"no whole answer within {_SECONDS:g} seconds")
        parts.append(part)
    return b"".join(parts)


def _words(error: Exception) -> str:
    """Say what happened, without anything that the other side has written."""
    if isinstance(error, urllib.error.HTTPError):
        return f"it answers with status {error.code}"
    if isinstance(error, urllib.error.URLError):
        reason = error.reason
        return "no answer in time" if isinstance(reason, TimeoutError) else f"{reason}"
    if isinstance(
        error,
        json.JSONDecodeError | UnicodeDecodeError | RecursionError | http.client.HTTPException,
    ):
        return "it does not answer as Prometheus does"
    return "no answer in time" if isinstance(error, TimeoutError) else str(error)


def _pod_of(labels: Mapping[str, Any]) -> tuple[str, str]:
    exported = as_text(labels.get("exported_namespace")), as_text(labels.get("exported_pod"))
    return (
        exported
        if all(exported)
        else (as_text(labels.get("namespace")), as_text(labels.get("pod")))
    )


def _value_of(sample: Any) -> float | None:
    """The number of a sample, which is a time and a text; None if it is no percentage."""
    if not (isinstance(sample, list) and len(sample) == 2):  # noqa: PLR2004  # a time and a text
        return None
    try:
        value = float(sample[1])
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) and 0 <= value <= 100 else None  # noqa: PLR2004  # percent
