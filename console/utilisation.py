"""The utilisation of the cards of pods, as Prometheus has it from NVIDIA's dcgm-exporter.

The exporter says of each card how many percent of the time a kernel ran on it, and which pod has
the card: `DCGM_FI_DEV_GPU_UTIL`. Of a card that several pods share, it is what all of them did.
Where Prometheus does not honor the labels of the exporter, it calls those of the pod `exported_pod`
and `exported_namespace`.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import http.client
import json
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit

from rules.base.json_values import as_object, as_objects, as_text

METRIC = "DCGM_FI_DEV_GPU_UTIL"
_LABELS = "namespace, pod, exported_namespace, exported_pod"
NOT_YET = "it is being asked; look again in a moment"
_SECONDS = 5.0  # for one answer
_MAX_BYTES = 32 << 20
_HOUR = 3_600
_KEPT_SECONDS = 60.0  # after which it is asked again
_SHOWN_SECONDS = 300.0  # so old may be what pages show while it is asked again
_Hours: TypeAlias = dict[float, list[float]]
"""The sum and the number of a pod's samples, by when their hour began."""


class PodUtilisation(NamedTuple):
    """The percentages of the last hour and the last day, as averages of a pod's cards.

    Of a pod that has them for less than a day, `day` is about its own whole hours. None where
    Prometheus has no sample.
    """

    hour: float | None
    day: float | None


class _Recorded(NamedTuple):
    """The samples of each pod in the 24 hours before `end`, or `why` they are not known."""

    sums: Mapping[tuple[str, str], _Hours] = {}
    end: int = 0
    why: str = ""


class Utilisation(NamedTuple):
    """The utilisation of the cards of pods, by namespace and name, or `why` it is not known."""

    by_pod: Mapping[tuple[str, str], PodUtilisation]
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
    if "@" in parts.path:  # what comes before it may be a part of a password
        raise UrlError("write / and @ in a user or a password as %2F and %40")
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
        self._known: tuple[float, _Recorded] | None = None
        self._tls = ssl.create_default_context()

    def utilisation(self, since: Mapping[tuple[str, str], str]) -> Utilisation:
        """Return how busy cards of pods were, by what was read in the last minutes: it never waits.

        `since` is when each of the pods got its cards; empty if that is not known. Hours that began
        before it are left out: another pod of this name may have had cards then.
        """
        recorded = self._recorded()
        by_pod = {}
        for pod in since.keys() & recorded.sums.keys():
            hours, start = recorded.sums[pod], _seconds(since[pod])
            by_pod[pod] = PodUtilisation(
                _average(hours, max(start, recorded.end - _HOUR)), _average(hours, start)
            )
        return Utilisation(by_pod, recorded.why)

    def _recorded(self) -> _Recorded:
        """Return what was read last. If that is older than a minute, a thread reads it again."""
        with self._lock:
            age = math.inf if self._known is None else self._monotonic() - self._known[0]
            if age > _KEPT_SECONDS and not self._is_reading:
                threading.Thread(target=self._read_again, name="prometheus", daemon=True).start()
                self._is_reading = True
            if self._known is None or age > _SHOWN_SECONDS:
                return _Recorded(why=f"{self._url.address}: {NOT_YET}")
            return self._known[1]

    def _read_again(self) -> None:
        try:
            found = self._read()
            with self._lock:
                self._known = self._monotonic(), found
        finally:
            with self._lock:
                self._is_reading = False

    def _read(self) -> _Recorded:
        end = int(time.time())
        try:
            sums = self._sums(end)
        except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
            return _Recorded(why=f"{self._url.address}: {_words(error)}")
        if not sums:
            return _Recorded(why=f"{self._url.address} has no {METRIC} with a pod")
        return _Recorded(sums, end)

    def _sums(self, end: int) -> dict[tuple[str, str], _Hours]:
        """The samples of each pod in the 24 hours before `end`.

        A pod with several cards, or whose exporter was restarted, has several series, which are not
        equally long: so their samples are added here, and no averages of Prometheus are used.
        """
        of_hour = ("sum", "count")
        query = " or ".join(
            f"label_replace(sum by ({_LABELS}) ({of}_over_time({METRIC}[1h])), "
            f'"of", "{of}", "", "")'
            for of in of_hour
        )
        asked = {"query": query, "start": end - 23 * _HOUR, "end": end, "step": _HOUR}
        found: dict[tuple[str, str], _Hours] = {}
        for _, series in as_objects(as_object(self._get(asked).get("data")).get("result")):
            labels = as_object(series.get("metric"))
            pod, of = _pod_of(labels), as_text(labels.get("of"))
            values = series.get("values")
            if not (all(pod) and of in of_hour and isinstance(values, list)):
                continue
            hours = found.setdefault(pod, {})
            for ended, value in filter(None, map(_sample_of, values)):
                both = hours.setdefault(ended - _HOUR, [0.0, 0.0])
                both[of_hour.index(of)] += value
        return found

    def _get(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        parts = urlsplit(self._url.address)
        headers = {"Accept": "application/json"}
        if self._url.authorization:
            headers["Authorization"] = self._url.authorization
        with self._connected(parts.scheme, parts.hostname or "", parts.port) as connection:
            path = f"{parts.path}/api/v1/query_range?{urlencode(asked)}"
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
        """Connect, and end the connection when its time is over. Raises TimeoutError then.

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
                raise TimeoutError


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


def _sample_of(sample: Any) -> tuple[float, float] | None:
    """The time and the number of a sample, NaN if it has none; None if it has no time."""
    try:
        at, text = sample
        ended = float(at)
    except (TypeError, ValueError, OverflowError):
        return None
    try:
        return ended, float(as_text(text))
    except ValueError:
        return ended, math.nan


def _seconds(text: str) -> float:
    """The time in `text`, in seconds since 1970; 0 if it is none."""
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return 0


def _average(hours: _Hours, start: float) -> float | None:
    """The average of the samples since `start`; None if there are none, or it is no percentage."""
    wanted = [both for began, both in hours.items() if began >= start]
    count = sum(count for _, count in wanted)
    average = sum(total for total, _ in wanted) / count if count else math.nan
    return average if 0 <= average <= 100 else None  # noqa: PLR2004  # percent
