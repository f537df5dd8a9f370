"""Tests of the server's limits, over real sockets: no caller can impair the others."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.testkit.admission.caller import REVIEW, request
from tests.testkit.admission.reviews import container, pod, review_body, variable
from tests.testkit.admission.server import RunningServer, Serve, serving, wait_until

# Longer than any test.
NEVER = 3600.0
# No decision about an update is kept, so each such review is evaluated, in about two milliseconds.
UNKEPT = json.dumps(
    review_body(pod(*(container(f"c{n}", **variable("all")) for n in range(20))), pod(container()))
).encode()


@pytest_asyncio.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Starts servers."""
    async with serving(tmp_path) as start:
        yield start


def half(body: bytes = REVIEW, path: str = "/mutate/deny") -> bytes:
    """A request without the last byte of its body."""
    return request(path, body)[:-1]


def with_headers(count: int) -> bytes:
    """A request with so many more headers."""
    return request("/mutate/deny", REVIEW, **{f"X{number}": "x" for number in range(count)})


async def error_count(server: RunningServer, reason: str) -> float:
    """Return how many requests were refused for `reason`."""
    return (await server.metrics())("http_errors_total", reason) or 0


async def answered(server: RunningServer) -> int:
    """Return how many reviews the server has answered."""
    return len([line for line in server.logged() if "duration_ms" in line])


async def test_a_half_sent_body_times_out(serve: Serve) -> None:
    server = await serve(read_seconds=0.05)
    caller = await server.connect()
    await caller.send(half())
    assert (await caller.reply()).status == 408
    assert await caller.closed()
    assert await error_count(server, "slow") == 1
    assert server.service.handler.body_reader.waiting == 0


async def test_slow_callers_do_not_delay_others(serve: Serve) -> None:
    server = await serve(read_seconds=NEVER, in_flight=8)
    slow = [await server.connect() for _ in range(8)]
    for caller in slow:
        await caller.send(half())
    await wait_until(lambda: server.service.handler.body_reader.waiting == 8)
    fast = await server.connect()
    for _ in range(20):
        assert (await fast.post("/mutate/deny")).status == 200
    for caller in slow:
        await caller.send(b"\n")
        assert (await caller.reply()).status == 200


async def test_a_body_beyond_the_limit_gets_a_retry_after(serve: Serve) -> None:
    server = await serve(read_seconds=NEVER, in_flight=2)
    slow = [await server.connect() for _ in range(2)]
    for caller in slow:
        await caller.send(half())
    await wait_until(lambda: server.service.handler.body_reader.waiting == 2)
    third = await server.connect()
    await third.send(half())
    reply = await third.reply()
    assert (reply.status, reply.headers["retry-after"]) == (429, "1")
    await third.send(b"\n")
    await slow[0].close()
    await wait_until(lambda: server.service.handler.body_reader.waiting == 1)
    assert (await third.post("/mutate/deny")).status == 200
    assert await error_count(server, "in_flight") == 1


async def test_a_caller_that_disconnects_halfway_is_released(serve: Serve) -> None:
    server = await serve(read_seconds=NEVER)
    caller = await server.connect()
    await caller.send(half())
    await wait_until(lambda: server.service.handler.body_reader.waiting == 1)
    await caller.close()
    await wait_until(lambda: server.service.handler.body_reader.waiting == 0)
    assert await error_count(server, "gone") == 1
    assert (await server.metrics())("internal_errors_total") == 0


async def test_large_bodies_share_a_budget(serve: Serve) -> None:
    server = await serve(read_seconds=NEVER, small_body_bytes=100, large_bodies_bytes=5000)
    first, second = await server.connect(), await server.connect()
    await first.send(half())
    await wait_until(
        lambda: server.service.handler.body_reader.reserved_large_body_bytes == len(REVIEW)
    )
    await second.send(half(REVIEW + b" " * 5000))
    reply = await second.reply()
    assert (reply.status, reply.headers["retry-after"]) == (429, "1")
    await first.send(b"\n")
    assert (await first.reply()).status == 200
    assert server.service.handler.body_reader.reserved_large_body_bytes == 0
    assert await error_count(server, "large_bodies") == 1


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"in_flight": 8}, "in_flight"),
        ({"small_body_bytes": 100, "large_bodies_bytes": 8 * len(REVIEW)}, "large_bodies"),
    ],
)
async def test_who_takes_most_of_a_limit_gives_way(
    serve: Serve, limits: dict[str, int], reason: str
) -> None:
    server = await serve(read_seconds=NEVER, **limits)
    greedy = [await server.connect("127.0.0.2") for _ in range(8)]
    for number, caller in enumerate(greedy, 1):
        await caller.send(half())
        await wait_until(lambda: server.service.handler.body_reader.waiting == number)  # noqa: B023
    modest = await server.connect()
    await modest.send(half())
    reply = await greedy[-1].reply()
    assert (reply.status, reply.headers["retry-after"]) == (429, "1")
    await modest.send(b"\n")
    assert (await modest.reply()).status == 200
    assert await error_count(server, reason) == 1
    for caller in greedy[:-1]:
        await caller.send(b"\n")
        assert (await caller.reply()).status == 200


async def test_a_body_of_unknown_length_is_not_read(serve: Serve) -> None:
    """Each of its bytes could come in a chunk of its own. API servers always send the length."""
    caller = await (await serve()).connect()
    head = b"POST /mutate/deny HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    await caller.send(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(REVIEW), REVIEW))
    assert (await caller.reply()).status == 411
    assert await caller.closed()


async def test_a_body_of_broken_chunks_is_no_http(serve: Serve) -> None:
    broken = await (await serve()).connect()
    head = b"POST /mutate/deny HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    await broken.send(head + b"zz\r\n")
    assert (await broken.reply()).status in {400, 411}


async def test_what_is_no_http_is_not_repeated(serve: Serve) -> None:
    caller = await (await serve()).connect()
    await caller.send(b"GET \x00secret\x00 nothing HTTP/1.1\r\nHost: x\r\n\r\n")
    reply = await caller.reply()
    assert (reply.status, reply.body) == (400, b"the request is no valid HTTP\n")
    assert reply.headers["server"] == "gpuward"
    assert await caller.closed()


async def test_a_large_review_is_evaluated(serve: Serve) -> None:
    server = await serve()
    review = json.loads(REVIEW)
    review["request"]["object"]["metadata"]["managedFields"] = [{"x": "y" * 8_600_000}]
    reply = await (await server.connect()).post("/mutate/deny", json.dumps(review).encode())
    assert reply.status == 200
    assert "patch" in reply.response


async def test_65_mib_are_too_much(serve: Serve) -> None:
    server = await serve()
    caller = await server.connect()
    size = 65 * 1024 * 1024
    await caller.send(request("/mutate/deny", b"{", Content_Length=str(size)))
    reply = await caller.reply()
    assert (reply.status, reply.headers["connection"]) == (413, "close")
    assert await error_count(server, "too_large") == 1


async def test_the_limit_on_json_values_admits_the_largest_stored_objects(
    serve: Serve,
) -> None:
    server = await serve()
    review = json.loads(REVIEW)
    # Brackets in text count too. Two objects of the largest size that etcd stores, 1.5 MiB.
    review["request"]["object"]["metadata"]["annotations"] = {"a": "{" * 1_572_864}
    review["request"]["oldObject"] = review["request"]["object"]
    reply = await (await server.connect()).post("/mutate/deny", json.dumps(review).encode())
    assert reply.status == 200
    nested = b"[" * 2_000_000 + b"]" * 2_000_000
    reply = await (await server.connect()).post("/mutate/deny", nested + nested)
    assert reply.status == 413
    assert await error_count(server, "too_large") == 1


async def test_a_compressed_body_is_not_unpacked(serve: Serve) -> None:
    server = await serve()
    caller = await server.connect()
    body = gzip.compress(REVIEW)
    assert (await caller.post("/mutate/deny", body, Content_Encoding="gzip")).status == 415
    assert (await caller.post("/mutate/deny")).status == 200
    assert await error_count(server, "encoding") == 1


async def test_expect_100_continue_is_answered(serve: Serve) -> None:
    caller = await (await serve()).connect()
    head, _, body = request("/mutate/deny", Expect="100-continue").partition(b"\r\n\r\n")
    await caller.send(head + b"\r\n\r\n")
    assert (await caller.reply()).status == 100
    await caller.send(body)
    assert (await caller.reply()).status == 200


async def test_a_connection_without_a_handshake_is_closed(serve: Serve) -> None:
    server = await serve(handshake_seconds=0.05)
    silent = await server.connect_without_tls()
    assert await silent.closed()
    metrics = await server.metrics()
    assert metrics("rejected_connections_total", "handshake") == 1
    assert metrics("connections") == 0


async def test_callers_that_only_connect_keep_nobody_out(serve: Serve) -> None:
    """With one connection too many, the one that has waited longest for its caller is closed."""
    server = await serve(connections=3, handshake_seconds=NEVER)
    first = await server.connect_without_tls()
    second = await server.connect()
    talking = await server.connect()
    assert (await talking.post("/mutate/deny")).status == 200
    another = await server.connect()
    assert await first.closed()
    assert (await another.post("/mutate/deny")).status == 200
    assert (await talking.post("/mutate/deny")).status == 200
    last = await server.connect()
    assert await second.closed()
    for caller in (another, talking, last):
        assert (await caller.post("/mutate/deny")).status == 200
    metrics = await server.metrics()
    assert metrics("rejected_connections_total", "idle") == 2
    assert metrics("connections") == 3


async def test_the_caller_with_most_waiting_connections_loses_one(serve: Serve) -> None:
    server = await serve(connections=4, handshake_seconds=NEVER)
    callers = []
    for source in ("127.0.0.1", *("127.0.0.2",) * 3):
        callers.append(await server.connect(source))
        assert (await callers[-1].post("/mutate/deny")).status == 200
    another = await server.connect("127.0.0.2")
    modest, first_greedy, *greedy = callers
    assert await first_greedy.closed()
    for caller in (modest, *greedy, another):
        assert (await caller.post("/mutate/deny")).status == 200


async def test_no_caller_waits_for_all_reviews_of_another(serve: Serve) -> None:
    """They arrive in the same moment, and the others have sent theirs before."""
    server = await serve(read_seconds=NEVER)
    greedy = [await server.connect("127.0.0.2") for _ in range(100)]
    for caller in greedy:
        await caller.send(half(UNKEPT, "/validate/deny"))
    await wait_until(lambda: server.service.handler.body_reader.waiting == 100)
    modest = await server.connect()
    for caller in greedy:
        caller.writer.write(UNKEPT[-1:])
    await modest.send(request("/validate/deny", UNKEPT))
    assert (await modest.reply()).status == 200
    assert await answered(server) < 50
    for caller in greedy:
        assert (await caller.reply()).status == 200


async def test_no_caller_waits_for_all_that_another_sends_without_waiting(serve: Serve) -> None:
    server = await serve()
    greedy = [await server.connect("127.0.0.2") for _ in range(10)]
    modest = await server.connect()
    for caller in greedy:
        caller.writer.write(request("/validate/deny", UNKEPT) * 30)
    await modest.send(request("/validate/deny", UNKEPT))
    assert (await modest.reply()).status == 200
    assert await answered(server) < 150
    for caller in greedy:
        for _ in range(30):
            assert (await caller.reply()).status == 200


async def test_what_a_caller_no_longer_waits_for_is_not_evaluated(serve: Serve) -> None:
    server = await serve(read_seconds=NEVER)
    callers = [await server.connect() for _ in range(100)]
    for caller in callers:
        await caller.send(half(UNKEPT, "/validate/deny"))
    await wait_until(lambda: server.service.handler.body_reader.waiting == 100)
    for caller in callers:
        caller.writer.write(UNKEPT[-1:])
        caller.writer.transport.abort()
    while (await server.metrics())("connections") != 0:
        pass
    assert await answered(server) < 100
    assert (await server.metrics())("internal_errors_total") == 0
    assert (await (await server.connect()).post("/mutate/deny")).status == 200


async def test_a_connection_that_is_closed_already_makes_no_room(serve: Serve) -> None:
    server = await serve(connections=2, keep_alive_seconds=NEVER)
    await (await server.connect()).close()
    while (await server.metrics())("connections") != 0:
        pass
    first = await server.connect()
    assert (await first.post("/mutate/deny")).status == 200
    second = await server.connect()
    assert (await second.post("/mutate/deny")).status == 200
    third = await server.connect()
    assert await first.closed()
    for caller in (second, third):
        assert (await caller.post("/mutate/deny")).status == 200


async def test_a_connection_too_many_is_closed_if_no_other_is_idle(serve: Serve) -> None:
    server = await serve(connections=1, read_seconds=NEVER)
    busy = await server.connect()
    await busy.send(request("/mutate/deny")[:-1])
    while (await server.metrics())("waiting_requests") != 1:
        pass
    assert await (await server.connect_without_tls()).closed()
    await busy.send(request("/mutate/deny")[-1:])
    assert (await busy.reply()).status == 200
    metrics = await server.metrics()
    assert metrics("rejected_connections_total", "connections") == 1


async def test_an_idle_connection_is_closed_after_its_time(serve: Serve) -> None:
    server = await serve(keep_alive_seconds=0.05)
    assert await (await server.connect()).closed()
    caller = await server.connect()
    await caller.send(b"POST /mutate/deny HTTP/1.1\r\nHost")
    assert await caller.closed()


@pytest.mark.parametrize(
    ("within", "beyond"),
    [
        (request(f"/mutate/deny?{'x' * 8000}"), request(f"/mutate/deny?{'x' * 9000}")),
        (request("/mutate/deny", X="x" * 8000), request("/mutate/deny", X="x" * 9000)),
        (with_headers(30), with_headers(35)),  # beside the two that every request has
    ],
    ids=["line", "header", "headers"],
)
async def test_headers_are_bounded(serve: Serve, within: bytes, beyond: bytes) -> None:
    server = await serve()
    caller = await server.connect()
    await caller.send(within)
    assert (await caller.reply()).status == 200
    await caller.send(beyond)
    assert (await caller.reply()).status == 400
    assert await caller.closed()
    assert not any("xxx" in json.dumps(line) for line in server.logged())


async def test_only_http_1_1_is_offered(serve: Serve) -> None:
    server = await serve()
    server.tls.set_alpn_protocols(["h2", "http/1.1"])
    caller = await server.connect()
    protocol = caller.writer.get_extra_info("ssl_object").selected_alpn_protocol()
    assert protocol == "http/1.1"


@pytest.mark.slow
async def test_ten_thousand_malformed_bodies(serve: Serve) -> None:
    server = await serve()
    caller = await server.connect()
    await caller.post("/mutate/deny")
    tasks, chance = len(asyncio.all_tasks()), random.Random(20261121)  # noqa: S311
    statuses: dict[int, int] = {}
    for number in range(500):
        path = ("/mutate/deny", "/validate/deny", "/validate/audit")[number % 3]
        bodies = [_mutated(chance) for _ in range(20)]
        await caller.send(b"".join(request(path, body) for body in bodies))
        for _ in bodies:
            status = (await caller.reply()).status
            statuses[status] = statuses.get(status, 0) + 1
    assert set(statuses) == {200, 400}
    assert sum(statuses.values()) == 10_000
    assert len(asyncio.all_tasks()) == tasks
    metrics = await server.metrics()
    assert metrics("connections") == 1
    assert metrics("internal_errors_total") == 0


_COMPACT = json.dumps(json.loads(REVIEW)).encode()
_JUNK = (b"", b"null", b"{}", b"[]", b'""', b"1e999", b"-1", b"true", b'"\\ud800"', b"\xff", b"\0")


def _mutated(chance: random.Random) -> bytes:
    """The sample review with a few bytes or values replaced, removed or doubled."""
    body = bytearray(_COMPACT)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(body) or 1)
        to = min(len(body), at + chance.choice((0, 1, 1, 2, 8, 64, 4000)))
        if chance.random() < 0.5:  # a whole value
            at = body.find(b":", at) + 1
            to = min((i for i in (body.find(c, at) for c in b",}") if i >= 0), default=at)
        body[at:to] = chance.choice((*_JUNK, bytes(body[at:to]) * 2))
    return bytes(body)
