"""How busy cards were: what the page says of what a Prometheus knows, and of what it does not."""

from __future__ import annotations

import datetime
import http.server
import json
import logging
import re
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from console import utilisation
from console.cli import main
from console.utilisation import (
    METRIC,
    NOT_YET,
    PodUtilisation,
    Prometheus,
    PrometheusUrl,
    UrlError,
    Utilisation,
    parse_url,
)
from console.view import View
from tests.console.test_pages import JSON, Member, Outline, text_of
from tests.testkit.console.server import demo_state
from tests.testkit.control_plane.build import prometheus as prometheus_programs
from tests.testkit.control_plane.processes import free_port
from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.skipping import skip_missing

WORD = "s3cr3t"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus with a day of metrics as dcgm-exporter writes them."""
    try:
        programs = prometheus_programs()
    except BuildError as error:
        skip_missing(str(error))
    folder = tmp_path_factory.mktemp("prometheus")
    recorded = folder / "metrics.txt"
    recorded.write_text(_recorded(int(time.time())), encoding="utf-8")
    data = folder / "data"
    backfill = (str(programs["promtool"]), "tsdb", "create-blocks-from", "openmetrics")
    subprocess.run((*backfill, str(recorded), str(data)), check=True, stdout=subprocess.DEVNULL)
    (folder / "config.yml").write_text("{}", encoding="utf-8")
    port = free_port()
    options = [f"--config.file={folder}/config.yml", f"--storage.tsdb.path={data}"]
    command = [str(programs["prometheus"]), *options, f"--web.listen-address=127.0.0.1:{port}"]
    log = folder / "log.txt"
    with log.open("w") as out, subprocess.Popen(command, stderr=out) as process:
        address = f"http://127.0.0.1:{port}"
        _wait_for(f"{address}/-/ready", log)
        yield address
        process.terminate()


def _recorded(now: int) -> str:
    """A day of samples, one a minute; what ran in the last hour differs from the hours before.

    The labels are those of dcgm-exporter 4.5, scraped with `honor_labels` and without.
    """
    card = 'gpu="{0}",UUID="GPU-{0}",device="nvidia{0}",modelName="NVIDIA L40S",Hostname="l40s-1"'
    exported = 'exported_namespace="{0}",exported_pod="{1}",namespace="gpu",pod="dcgm-exporter-1"'
    series = [
        # One pod with two cards: 40 and 20 in the last hour, 10 before on both.
        (card.format(0) + ',namespace="vision",pod="serve-7d9f-0",container="main"', 10, 40),
        (card.format(1) + ',namespace="vision",pod="serve-7d9f-0",container="main"', 10, 20),
        (card.format(2) + "," + exported.format("vision", "serve-7d9f-3"), 90, 90),
        (card.format(3) + "," + exported.format("training", "pretrain-0"), 0, 0),
        (card.format(4), 0, 0),  # a card that no pod has
    ]
    lines = [
        "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).",
        "# TYPE DCGM_FI_DEV_GPU_UTIL gauge",
    ]
    for labels, before, last in series:
        for minute in range(24 * 60 - 2, -1, -1):
            value = last if minute < 60 else before
            lines.append(f"{METRIC}{{{labels}}} {value} {now - minute * 60}")
    return "\n".join([*lines, "# EOF", ""])


def _wait_for(address: str, log: Path) -> None:
    for _ in range(900):
        try:
            with urlopen(address, timeout=30) as answer:  # noqa: S310  # our own
                if answer.status == 200:
                    return
        except (URLError, ConnectionError):
            time.sleep(0.1)
    pytest.fail(log.read_text())


async def test_how_busy_cards_were_is_beside_them(prometheus: str) -> None:
    state = demo_state()
    state.prometheus = asked(prometheus)
    node = Outline(await text_of(state, "/nodes/l40s-1")).text
    assert re.search(r"serve-7d9f-0\s*deployment/serve.*?(29|30|31) %\s*1[01] %", node, re.DOTALL)
    assert re.search(r"serve-7d9f-3\s*deployment/serve.*?90 %\s*90 %", node, re.DOTALL)
    assert re.search(r"serve-7d9f-6\s*deployment/serve.*?not known\s*not known", node, re.DOTALL)
    page = Outline(await text_of(state, "/")).text
    wasted = page[page.index("Who wastes GPUs") : page.index("Without a GPU")]
    order = re.findall(r"pretrain-0|serve-7d9f-\d", wasted)
    assert order == ["pretrain-0", "serve-7d9f-0", "serve-7d9f-3"]
    assert "--prometheus" not in page
    assert "dcgm-exporter-1" not in page
    document = json.loads(await text_of(state, "/", headers=JSON))["utilisation"]
    assert document["whyNot"] is None
    assert {"namespace": "training", "name": "pretrain-0", "hour": 0, "day": 0} in document["pods"]
    vision = Outline(await text_of(state, "/?namespace=vision")).text
    assert "pretrain-0" not in vision


def test_a_viewer_does_not_see_how_busy_the_cards_of_others_were(prometheus: str) -> None:
    state = demo_state()
    state.prometheus = asked(prometheus)
    member = Member("vision")
    view = View(state, member)
    usage = view.usage()[0]
    member.visible = pytest.fail  # type: ignore[assignment]  # no further question to the API server
    known = view.utilisation(usage)
    assert known is not None
    assert {namespace for namespace, _ in known.by_pod} == {"vision"}


async def test_without_a_prometheus_the_page_says_how_to_add_one() -> None:
    state = demo_state()
    for path in ("/", "/nodes/l40s-1"):
        page = Outline(await text_of(state, path)).text
        assert "--prometheus URL" in page
        assert " %" not in page
    assert "utilisation" not in json.loads(await text_of(state, "/", headers=JSON))


def known_of(prometheus: Prometheus, since: str = "") -> Utilisation:
    """Return what it knows of some pods when it has asked."""
    for _ in range(500):
        found = prometheus.utilisation({("ml", name): since for name in ("train", *"0123456")})
        if NOT_YET not in found.why:
            return found
        time.sleep(0.02)
    pytest.fail("it is still being asked")


def asked(url: str) -> Prometheus:
    """A Prometheus that has been asked."""
    prometheus = Prometheus(parse_url(url))
    known_of(prometheus)
    return prometheus


Handler = Callable[[http.server.BaseHTTPRequestHandler], None]


@contextmanager
def answering(handle: Handler) -> Iterator[str]:
    """A server whose answers `handle` writes; yields its host and port."""

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            handle(self)

        def log_message(self, *_arguments: Any) -> None:
            """Log nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def writing(body: bytes, status: int = 200, **headers: str) -> Handler:
    def handle(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.end_headers()
        try:
            request.wfile.write(body)
        except ConnectionError:
            return

    return handle


def series(labels: dict[str, str], value: Any, count: Any = "1", ago: int = 0) -> list[Any]:
    """The sum and the number of the samples of an hour that has ended `ago` hours ago."""
    at = time.time() + 1 - ago * 3600
    of = {"sum": value, "count": count}
    return [{"metric": {**labels, "of": key}, "values": [[at, of[key]]]} for key in of]


def result(*found: Any) -> bytes:
    return json.dumps({"status": "success", "data": {"result": [*chain(*found)]}}).encode()


@pytest.mark.parametrize(
    ("handle", "why"),
    [
        (writing(b"no json"), "it does not answer as Prometheus does"),
        (writing(b"[" * 100_000), "it does not answer as Prometheus does"),
        (writing(b"{}"), "it does not answer as Prometheus does"),
        (writing(b"<script>", 401), "it answers with status 401"),
        (writing(b"", 302, Location="http://localhost:1/"), "it answers with status 302"),
        (writing(b" " * 300_000), "the answer has more than 0 MiB"),
        (writing(result()), "has no DCGM_FI_DEV_GPU_UTIL with a pod"),
    ],
    ids=["text", "deep", "other", "refused", "elsewhere", "long", "nothing"],
)
async def test_what_is_no_answer_is_said_and_the_page_is_there(
    handle: Handler, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(utilisation, "_MAX_BYTES", 200_000)
    caplog.set_level(logging.DEBUG)
    with answering(handle) as place:
        state = demo_state()
        state.prometheus = asked(f"http://user:{WORD}@{place}/prefix/")
        page = await text_of(state, "/")
        node = await text_of(state, "/nodes/l40s-1")
    assert f"http://{place}/prefix" in page
    assert why in page
    assert why in node
    assert WORD not in page + node + caplog.text + repr(state.prometheus.__dict__["_url"])
    assert "l40s-1" in page


@contextmanager
def dripping(beginning: bytes) -> Iterator[str]:
    """A server that sends `beginning`, and then a byte each moment; yields its host and port."""
    ended = threading.Event()

    class Drips(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            try:
                self.request.sendall(beginning)
                while not ended.wait(0.05):
                    self.request.sendall(b"x")
            except OSError:
                return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Drips) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            ended.set()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("scheme", "beginning"),
    [
        ("http", b""),
        ("http", b"HTTP/1.1 200 OK\r\nX: "),
        ("http", b"HTTP/1.1 200 OK\r\n\r\n"),
        ("http", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"),
        ("https", b"\x16\x03\x03\x40\x00"),  # a record of 16 KiB, of the handshake
    ],
    ids=["status", "header", "body", "length", "handshake"],
)
async def test_pages_do_not_wait_for_a_prometheus_whose_answer_does_not_end(
    scheme: str, beginning: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(utilisation, "_SECONDS", 0.5)
    state = demo_state()
    with dripping(beginning) as place:
        state.prometheus = Prometheus(parse_url(f"{scheme}://{place}"))
        assert state.prometheus.utilisation({}).why == f"{scheme}://{place}: {NOT_YET}"
        assert NOT_YET in await text_of(state, "/")
        assert "no answer in time" in known_of(state.prometheus).why


def test_what_was_known_is_shown_for_minutes_while_prometheus_is_asked_again() -> None:
    now = [0.0]
    go_on = threading.Event()

    def handle(request: http.server.BaseHTTPRequestHandler) -> None:
        assert go_on.wait(60)
        writing(result(series({"namespace": "ml", "pod": "train"}, "12.5")))(request)

    with answering(handle) as place:
        prometheus = Prometheus(parse_url(f"http://{place}"), monotonic=lambda: now[0])
        go_on.set()
        known = known_of(prometheus)
        assert known.by_pod
        go_on.clear()
        now[0] = 299.0
        assert known_of(prometheus) == known
        now[0] = 301.0
        assert NOT_YET in prometheus.utilisation({}).why
        go_on.set()
        assert known_of(prometheus) == known


def test_a_server_that_is_gone_refuses() -> None:
    with answering(writing(b"")) as place:
        pass
    assert "refused" in known_of(Prometheus(parse_url(f"http://{place}"))).why


def test_only_percentages_of_pods_are_taken_and_the_password_is_sent() -> None:
    pod = {"namespace": "ml", "pod": "train"}
    values: tuple[Any, ...] = ("NaN", "+Inf", "-1", "101", "x", None, {})
    odd = [
        series({"namespace": "ml", "pod": str(number)}, value)
        for number, value in enumerate(values)
    ]
    sent: list[str | None] = []

    def handle(request: http.server.BaseHTTPRequestHandler) -> None:
        sent.append(request.headers["Authorization"])
        writing(result(series(pod, "12.5"), *odd, series({}, "1"), [7, {"metric": 3}]))(request)

    with answering(handle) as place:
        prometheus = Prometheus(parse_url(f"http://al%40ice:p%3Aw@{place}"))
        known = {**known_of(prometheus).by_pod}
        assert known.pop(("ml", "train")) == PodUtilisation(12.5, 12.5)
        assert {*known.values()} == {PodUtilisation(None, None)}
        prometheus.utilisation({})
    assert sent == ["Basic YWxAaWNlOnA6dw=="]  # and then from memory


@pytest.mark.parametrize(
    ("minutes", "busy"),
    [
        (30, PodUtilisation(None, None)),
        (70, PodUtilisation(80, 80)),
        (150, PodUtilisation(80, 60)),
        (3000, PodUtilisation(80, 40)),
    ],
)
def test_hours_before_a_pod_had_its_cards_do_not_count(minutes: int, busy: PodUtilisation) -> None:
    hours = [(80, 0), (40, 1), (0, 2)]
    train = {"namespace": "ml", "pod": "train"}
    found = [series(train, str(value), "1", ago) for value, ago in hours]
    now = datetime.datetime.now(tz=datetime.UTC)
    since = (now - datetime.timedelta(minutes=minutes)).isoformat()
    with answering(writing(result(*found))) as place:
        known = known_of(Prometheus(parse_url(f"http://{place}")), since)
    assert known.by_pod == {("ml", "train"): busy}


def test_all_samples_of_a_pod_count_alike_in_whichever_series_they_are() -> None:
    own = {"namespace": "ml", "pod": "train"}
    exported = {"exported_namespace": "ml", "exported_pod": "train", "namespace": "gpu", "pod": "x"}
    found = [series(own, "5225", "55"), series(exported, "0", "5"), series(own, "600", "60", 20)]
    with answering(writing(result(*found))) as place:
        known = known_of(Prometheus(parse_url(f"http://{place}"))).by_pod[("ml", "train")]
    assert known.hour == pytest.approx(5225 / 60)
    assert known.day == pytest.approx(5825 / 120)


@pytest.mark.parametrize(
    "text",
    [
        f"ftp://u:{WORD}@host/",
        f"u:{WORD}@host",
        f"http://u:{WORD}@host:port/",
        f"https://u:{WORD}@[::1/",
        f"http://u:{WORD}@host/?x=1",
        f"http://u:12/{WORD}@host:9090",
    ],
)
def test_an_address_that_is_none_is_refused_without_its_password(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UrlError) as refused:
        parse_url(text)
    assert WORD not in str(refused.value)
    with pytest.raises(SystemExit):
        main(["--demo", "--prometheus", text])
    said = capsys.readouterr().err
    assert "argument --prometheus" in said
    assert WORD not in said


def test_an_address_is_shown_without_its_user() -> None:
    assert parse_url("https://u:p@[::1]:9090/prom/") == PrometheusUrl(
        "https://[::1]:9090/prom", "Basic dTpw"
    )
    assert "dTpw" not in repr(parse_url("https://u:p@host"))
