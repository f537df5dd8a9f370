"""The utilisation of the cards of pods, as Prometheus has it from NVIDIA's dcgm-exporter.

The exporter says of each card how many percent of the time a kernel ran on it, and which pod has
the card: `DCGM_FI_DEV_GPU_UTIL`. Of a card that several pods share, it is what all of them did.
Where Prometheus does not honor the labels of the exporter, it calls those of the pod `exported_pod`
and `exported_namespace`.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit

from rules.base.json_values import as_object, as_objects, as_text

METRIC = "DCGM_FI_DEV_GPU_UTIL"
PERIODS = ("1h", "1d")
"""The last hour and the last day, as Prometheus writes them."""
_LABELS = "namespace, pod, exported_namespace, exported_pod"
NOT_YET = "it is being asked; look again in a moment"
_SECONDS = 5.0  # for one answer
_MAX_BYTES = 16 << 20
_KEPT_SECONDS = 60.0  # after which it is asked again
_SHOWN_SECONDS = 300.0  # so old may be what pages show while it is asked again


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
        self._is_reading = False
        self._known: tuple[float, Utilisation] | None = None
        self._tls = ssl.create_default_context()

    def utilisation(self) -> Utilisation:
        """Return what was read last, in the last minutes, without a wait.

        If that is older than a minute, a thread reads it again.
        """
        with self._lock:
            age = math.inf if self._known is None else self._monotonic() - self._known[0]
            if age > _KEPT_SECONDS and not self._is_reading:
                threading.Thread(target=self._read_again, name="prometheus", daemon=True).start()
                self._is_reading = True
            if self._known is None or age > _SHOWN_SECONDS:
                return Utilisation({}, f"{self._url.address}: {NOT_YET}")
            return self._known[1]

    def _read_again(self) -> None:
        try:
            found = self._read()
            with self._lock:
                self._known = self._monotonic(), found
        finally:
            with self._lock:
                self._is_reading = False

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
        parts = urlsplit(self._url.address)
        headers = {"Accept": "application/json"}
        if self._url.authorization:
            headers["Authorization"] = self._url.authorization
        with self._connected(parts.scheme, parts.hostname or "", parts.port) as connection:
            path = f"{parts.path}/api/v1/query?{urlencode({'query': query})}"
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            if answer.status != http.HTTPStatus.OK:
                raise ValueError(f"it answers with status {answer.status}")
            content = answer.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise ValueError(f"the answer has more than {_MAX_BYTES >> 20} MiB")
        document = as_object(json.loads(content))
        if document.get("status") != "success":
            raise ValueError("it does not answer as Prometheus does")
        return document

    @contextlib.contextmanager
    def _connected(
        self, scheme: str, host: str, port: int | None
    ) -> Iterator[http.client.HTTPConnection]:
        """Connect, and end the connection when its time is over. Raises ValueError then.

        The timeout of a socket is for one piece of an answer, of which there may be many. TLS takes
        the socket over, so its end is by a second descriptor.
        """
        port = port or (443 if scheme == "https" else 80)
        connection = http.client.HTTPConnection(host, port)
        is_late = threading.Event()
        raw = socket.create_connection((host, port), timeout=_SECONDS)
        with raw, raw.dup() as same, contextlib.closing(connection):

            def end() -> None:
                is_late.set()
                with contextlib.suppress(OSError):  # the other side may have ended it
                    same.shutdown(socket.SHUT_RDWR)

            timer = threading.Timer(_SECONDS, end)
            timer.start()
            try:
                is_https = scheme == "https"
                connection.sock = (
                    self._tls.wrap_socket(raw, server_hostname=host) if is_https else raw
                )
                yield connection
            except (OSError, http.client.HTTPException):
                if not is_late.is_set():
                    raise
            finally:
                timer.cancel()
                timer.join()
            if is_late.is_set():
                raise ValueError(f"no whole answer within {_SECONDS:g} seconds")


def _words(error: Exception) -> str:
    """Say what happened, without anything that the other side has written."""
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
