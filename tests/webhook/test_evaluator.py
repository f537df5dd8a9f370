"""Tests of the second process, which answers large reviews, over real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from policies.loading import default_policy
from tests.testkit.admission.caller import REVIEW, Reply
from tests.testkit.admission.reviews import (
    container,
    deployment,
    pod,
    review_body,
    variable,
)
from tests.testkit.admission.server import RunningServer, Serve, serving, wait_until
from tests.testkit.cases import TODAY
from tests.testkit.control_plane.pki import Authority
from webhook.admission.answer import Answer
from webhook.admission.decider import Decider
from webhook.admission.review import CODEC, MAX_HEAD_BYTES, decode_head
from webhook.evaluator.evaluator import MAX_WAITING_BYTES, Evaluator, NotEvaluatedError
from webhook.evaluator.turns import MAX_WAITING_BYTES_OF_TENANT, EvaluationTask, Tenant
from webhook.evaluator.worker import (
    EvaluatorError,
    answer_request,
    parse_answer,
    request_header,
)
from webhook.reload.policy import PolicyReloader

# Longer than any test, in seconds.
NEVER = 3600.0
BYPASS = container("taker", **variable("all"))
LARGE = pod(container("main", command=["x" * 70_000]), BYPASS)
LARGE_REVIEW = json.dumps(review_body(LARGE), separators=(",", ":")).encode()
LARGE_WORKLOAD = json.dumps(
    review_body(deployment(container("main", command=["x" * 70_000]), BYPASS)),
    separators=(",", ":"),
).encode()


@pytest_asyncio.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Starts servers."""
    async with serving(tmp_path) as start:
        yield start


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations may take any time."""
    for name in ("MAX_EVALUATION_SECONDS", "MAX_EVALUATION_WAIT_SECONDS"):
        monkeypatch.setattr(f"webhook.evaluator.evaluator.{name}", NEVER)


SLOW_MARK = "evaluated-without-end"


@pytest.fixture
def slow_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process never ends to evaluate what contains the mark."""
    monkeypatch.setattr("webhook.evaluator.evaluator.MAX_EVALUATION_WAIT_SECONDS", NEVER)
    monkeypatch.setattr(
        "webhook.evaluator.evaluator.WORKER_PROGRAM",
        f"""
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from webhook.evaluator import worker
answer_request = worker.answer_request
def answer_or_hang(decider, header, body):
    while {SLOW_MARK.encode()!r} in body:
        pass
    return answer_request(decider, header, body)
worker.answer_request = answer_or_hang
worker.main(int(sys.argv[2]))
""",
    )


def slow(body: bytes) -> bytes:
    """A review that is evaluated without end by the `slow_program`."""
    return body.replace(b'"x', b'"' + SLOW_MARK.encode() + b"x", 1)


def worker_of(server: RunningServer) -> int:
    """The process that answers large reviews."""
    worker = server.service.handler.evaluator.process_id
    assert worker is not None
    return worker


def is_waiting(server: RunningServer, number: int) -> bool:
    """Return whether so many large reviews wait for an answer."""
    return server.service.handler.evaluator.waiting == number


async def stop_worker(server: RunningServer) -> int:
    """Start the process that answers large reviews, and stop it; the process."""
    while server.service.handler.evaluator.process_id is None:  # on a busy machine it is ended
        await answered(server, "/validate/deny?timeout=600s")
    worker = worker_of(server)
    os.kill(worker, signal.SIGSTOP)
    return worker


async def answered(server: RunningServer, path: str, body: bytes = LARGE_REVIEW) -> dict[str, Any]:
    caller = await server.connect()
    reply = await caller.post(path, body)
    assert reply.status == 200
    return reply.response


@pytest.mark.parametrize("path", ["/mutate/deny", "/validate/deny", "/mutate/warn"])
async def test_both_processes_give_the_same_answer_about_a_pod_without_faults(
    serve: Serve, path: str
) -> None:
    server, other = await serve(), await serve(small_review_bytes=0, answer_seconds=60)
    body = json.dumps(review_body(pod(container())), separators=(",", ":")).encode()
    assert await answered(other, path, body) == await answered(server, path, body)
    assert worker_of(other)


@pytest.mark.parametrize(
    "limits", [{"small_review_bytes": 0}, {"small_review_objects": 0}, {"small_review_steps": 1}]
)
@pytest.mark.parametrize("path", ["/mutate/deny", "/validate/deny", "/mutate/warn"])
async def test_both_processes_give_the_same_answer(
    serve: Serve, path: str, limits: dict[str, int]
) -> None:
    server, other = await serve(), await serve(answer_seconds=60, **limits)
    assert await answered(other, path, REVIEW) == await answered(server, path, REVIEW)
    assert server.service.handler.evaluator.process_id is None
    assert worker_of(other)
    logged = [
        {k: v for k, v in each.logged()[-1].items() if k not in ("time", "duration_ms")}
        for each in (server, other)
    ]
    assert logged[0] == logged[1]
    for each in (server, other):
        assert (await each.metrics())("request_duration_seconds_count", path.split("/")[1]) == 1


async def test_a_large_review_is_answered_and_nothing_is_left_waiting(serve: Serve) -> None:
    server = await serve()
    response = await answered(server, "/validate/deny")
    assert "visible-devices-env" in response["status"]["message"]
    assert (await server.metrics())("large_reviews") == 0
    assert (await server.metrics())("ended_evaluations_total") == 0


@pytest.mark.usefixtures("endless")
async def test_others_are_answered_while_a_large_review_waits(serve: Serve) -> None:
    server = await serve()
    stopped = await stop_worker(server)
    waiting = asyncio.create_task(answered(server, "/validate/deny?timeout=600s"))
    await wait_until(lambda: server.service.handler.evaluator.waiting == 1)
    for _ in range(20):
        assert await answered(server, "/mutate/deny", REVIEW)
    assert not waiting.done()
    os.kill(stopped, signal.SIGCONT)
    assert not (await waiting)["allowed"]


@pytest.mark.slow
@pytest.mark.usefixtures("slow_program")
@pytest.mark.parametrize("body", [LARGE_REVIEW, LARGE_WORKLOAD], ids=["pod", "workload"])
@pytest.mark.parametrize("mode", ["deny", "warn", "audit"])
async def test_an_evaluation_beyond_its_time_is_ended_and_never_passed_in_silence(
    serve: Serve, mode: str, body: bytes
) -> None:
    server = await serve()
    response = await answered(server, f"/mutate/{mode}?timeout=900s", slow(body))
    refused = mode == "deny" and body is LARGE_REVIEW
    assert response["allowed"] is not refused
    texts = response["status"]["message"] if refused else " ".join(response.get("warnings", ()))
    assert ("gpuward [timeout] cannot evaluate this object because of" in texts) == (
        mode != "audit"
    )
    assert server.service.handler.evaluator.process_id is None
    metrics = await server.metrics()
    outcome = "denied" if refused else "not-evaluated"
    assert metrics("rule_outcomes_total", "timeout", outcome, "mutate", mode, "false") == 1
    assert metrics("ended_evaluations_total") == 1
    line = server.logged()[-1]
    assert (line["event"], line["rules"]) == (outcome, {"timeout": outcome})
    assert line["name"] == "trainer"
    again = await answered(server, "/validate/deny?timeout=900s")
    assert "visible-devices-env" in again["status"]["message"]


@pytest.mark.slow
@pytest.mark.usefixtures("slow_program", "endless")
async def test_an_object_is_refused_for_the_time_of_its_own_tenant_alone(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For that of others its API server must try again, and then the failurePolicy decides."""
    # A busy machine gives the process little of its time.
    monkeypatch.setattr("webhook.evaluator.evaluator.MIN_OWN_SHARE", 0.001)
    server = await serve()
    first = asyncio.create_task(answered(server, "/validate/deny?timeout=900s", slow(LARGE_REVIEW)))
    await wait_until(lambda: server.service.handler.evaluator.process_id is not None)
    evaluator = server.service.handler.evaluator
    await wait_until(lambda: evaluator.processor_seconds > 0)
    own, other = await asyncio.gather(
        posted(server, review_body(LARGE)["request"]["namespace"], seconds=2),
        posted(server, "other", seconds=2),
    )
    assert "[timeout]" in own.response["status"]["message"]
    assert (other.status, other.headers["retry-after"]) == (429, "1")
    assert (await server.metrics())("http_errors_total", "large_reviews") == 1
    first.cancel()


async def test_a_process_that_gets_no_processor_is_ended(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve()
    stopped = await stop_worker(server)
    monkeypatch.setattr("webhook.evaluator.evaluator.MAX_EVALUATION_WAIT_SECONDS", 0.1)
    caller = await server.connect()
    assert (await caller.post("/validate/deny?timeout=900s", LARGE_REVIEW)).status == 429
    monkeypatch.setattr("webhook.evaluator.evaluator.MAX_EVALUATION_WAIT_SECONDS", NEVER)
    response = await answered(server, "/validate/deny?timeout=900s")
    assert "visible-devices-env" in response["status"]["message"]
    assert worker_of(server) != stopped


@pytest.mark.usefixtures("endless")
async def test_tenants_take_turns(serve: Serve) -> None:
    server = await serve()
    stopped = await stop_worker(server)
    order: list[str] = []

    async def send(tenant: str) -> None:
        body = json.dumps(review_body(LARGE, namespace=tenant), separators=(",", ":")).encode()
        await answered(server, "/validate/deny?timeout=900s", body)
        order.append(tenant)

    async with asyncio.TaskGroup() as group:
        for number, tenant in enumerate(("greedy", "greedy", "greedy", "greedy", "modest"), 1):
            group.create_task(send(tenant))
            await wait_until(partial(is_waiting, server, number))
        os.kill(stopped, signal.SIGCONT)
    # The first review was begun before the modest tenant came.
    assert order.index("modest") <= 2


async def test_a_tenant_has_a_limit_of_its_own(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.evaluator.turns.MAX_WAITING_OF_TENANT", 0)
    server = await serve()
    response = await answered(server, "/validate/deny")
    assert "the many large objects that wait" in response["status"]["message"]


@pytest.mark.usefixtures("endless")
async def test_one_tenant_cannot_fill_the_memory_for_all(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.evaluator.turns.MAX_WAITING_BYTES_OF_TENANT", len(LARGE_REVIEW))
    server = await serve()
    stopped = await stop_worker(server)
    async with asyncio.TaskGroup() as group:
        for number in (1, 2):  # one that is begun, and one that waits
            group.create_task(answered(server, "/validate/deny?timeout=900s"))
            await wait_until(partial(is_waiting, server, number))
        refused = await answered(server, "/validate/deny")
        assert "the many large objects that wait" in refused["status"]["message"]
        os.kill(stopped, signal.SIGCONT)


@pytest.mark.usefixtures("endless")
async def test_a_review_is_not_begun_too_late(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its evaluation would be in vain, and would delay the next ones."""
    monkeypatch.setattr("webhook.evaluator.turns.MIN_SECONDS_LEFT", NEVER)
    passed = 0.0
    clock = SimpleNamespace(
        monotonic=lambda: time.monotonic() + passed, clock_gettime=time.clock_gettime
    )
    for module in ("evaluator", "turns"):
        monkeypatch.setattr(f"webhook.evaluator.{module}.time", clock)
    server = await serve()
    stopped = await stop_worker(server)
    first = asyncio.create_task(answered(server, "/validate/deny?timeout=900s"))
    await wait_until(lambda: server.service.handler.evaluator.waiting == 1)
    late = asyncio.create_task(posted(server, "other"))
    await wait_until(lambda: server.service.handler.evaluator.waiting == 2)
    passed = 600.0  # seconds; more than half of the time of the second
    os.kill(stopped, signal.SIGCONT)
    assert "visible-devices-env" in (await first)["status"]["message"]
    assert (await late).status == 429
    assert server.service.handler.evaluator.ended_workers == 0


@pytest.mark.parametrize(
    ("query", "seconds"),
    [("?timeout=100s", 80), ("", 8), ("?timeout=100m", 8), ("?timeout=1000s", 8)],
)
async def test_the_answer_is_sent_before_the_api_server_gives_up(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, query: str, seconds: float
) -> None:
    deadlines: list[float] = []

    async def refuse(_self: Evaluator, task: EvaluationTask, tenant: Tenant) -> Answer:
        deadlines.append(task.deadline)
        raise NotEvaluatedError(tenant.name)

    monkeypatch.setattr(Evaluator, "answer", refuse)
    server = await serve()
    before = time.monotonic()
    await answered(server, f"/validate/deny{query}")
    assert before + seconds <= deadlines[0] <= time.monotonic() + seconds


def test_a_bug_in_the_process_is_reported_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: Any) -> Any:
        raise KeyError

    decider = Decider(default_policy())
    header = json.loads(request_header("/validate/deny", TODAY, None))
    with pytest.raises(EvaluatorError, match="RuntimeError"):
        parse_answer(*answer_request(None, header, LARGE_REVIEW))
    monkeypatch.setattr(decider, "validate", broken)
    bug = parse_answer(*answer_request(decider, header, LARGE_REVIEW)).bug
    assert bug
    assert bug.error_type == "KeyError"
    assert "broken" in bug.traceback[-1]


async def test_a_process_that_is_gone_is_replaced(serve: Serve) -> None:
    server = await serve()
    await answered(server, "/validate/deny")
    gone = worker_of(server)
    os.kill(gone, signal.SIGKILL)
    assert not (await answered(server, "/validate/deny"))["allowed"]
    assert worker_of(server) != gone


async def test_a_review_that_breaks_the_process_is_not_evaluated(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.evaluator.evaluator.WORKER_PROGRAM", "raise SystemExit")
    server = await serve()
    response = await answered(server, "/validate/deny")
    assert "cannot evaluate this object because of" in response["status"]["message"]


@pytest.mark.usefixtures("endless")
async def test_a_review_that_needs_too_much_memory_is_not_evaluated(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "webhook.evaluator.evaluator.WORKER_PROGRAM",
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
        "from webhook.evaluator import worker; "
        "worker.MAX_MEMORY_BYTES = 300 << 20; worker.main(int(sys.argv[2]))",
    )
    server = await serve()
    assert not (await answered(server, "/validate/deny"))["allowed"]
    values = {"status": {"conditions": [{"type": "a"}] * 1_500_000}}
    body = json.dumps(review_body({**LARGE, **values}), separators=(",", ":")).encode()
    response = await answered(server, "/validate/deny?timeout=600s", body)
    assert "the memory that it takes" in response["status"]["message"]
    assert "visible-devices-env" in (await answered(server, "/validate/deny"))["status"]["message"]


def large_review_of(namespace: str) -> bytes:
    return json.dumps(review_body(LARGE, namespace=namespace), separators=(",", ":")).encode()


async def posted(
    server: RunningServer, namespace: str, source: str = "127.0.0.1", seconds: int = 900
) -> Reply:
    """The answer to a large review of a pod in `namespace`, sent from the address `source`."""
    caller = await server.connect(source)
    return await caller.post(f"/validate/deny?timeout={seconds}s", large_review_of(namespace))


@pytest.mark.usefixtures("endless")
async def test_made_up_namespaces_of_one_caller_keep_no_other_waiting(serve: Serve) -> None:
    server = await serve()
    stopped = await stop_worker(server)
    order: list[str] = []

    async def send(namespace: str, source: str) -> None:
        await posted(server, namespace, source)
        order.append(source)

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(send(f"made-up-{number}", "127.0.0.2"))
            await wait_until(partial(is_waiting, server, number + 1))
        group.create_task(send("ours", "127.0.0.1"))
        await wait_until(partial(is_waiting, server, 21))
        os.kill(stopped, signal.SIGCONT)
    assert order.index("127.0.0.1") <= 2


def test_what_waits_fits_into_the_memory() -> None:
    """The chart gives a replica eight times as much."""
    assert 4 * MAX_WAITING_BYTES_OF_TENANT <= MAX_WAITING_BYTES <= 128 << 20


LIMIT_ON_ALL = ["MAX_WAITING_REVIEWS", "MAX_WAITING_BYTES"]


@pytest.fixture(params=LIMIT_ON_ALL)
def room_for_two(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two large reviews may wait in the evaluator."""
    units = 1 if request.param == "MAX_WAITING_REVIEWS" else len(large_review_of("one"))
    monkeypatch.setattr(f"webhook.evaluator.evaluator.{request.param}", 2 * units)


@pytest.mark.usefixtures("endless", "room_for_two")
async def test_the_caller_with_most_reviews_gives_way(serve: Serve) -> None:
    server = await serve()
    stopped = await stop_worker(server)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(posted(server, "one", "127.0.0.2"))
        await wait_until(partial(is_waiting, server, 1))
        second = group.create_task(posted(server, "two", "127.0.0.2"))
        await wait_until(partial(is_waiting, server, 2))
        modest = group.create_task(posted(server, "six", "127.0.0.1"))
        reply = await second
        assert (reply.status, reply.headers["retry-after"]) == (429, "1")
        os.kill(stopped, signal.SIGCONT)
    assert not modest.result().response["allowed"]
    assert "visible-devices-env" in first.result().response["status"]["message"]
    assert (await server.metrics())("http_errors_total", "large_reviews") == 1


@pytest.mark.usefixtures("endless", "room_for_two")
async def test_the_tenant_with_most_reviews_is_refused(serve: Serve) -> None:
    """If it had to try again, it could make room for a pod that is not evaluated."""
    server = await serve()
    stopped = await stop_worker(server)
    async with asyncio.TaskGroup() as group:
        group.create_task(posted(server, "one"))
        await wait_until(partial(is_waiting, server, 1))
        second = group.create_task(posted(server, "one"))
        await wait_until(partial(is_waiting, server, 2))
        modest = group.create_task(posted(server, "two"))
        refused = (await second).response
        assert "the many large objects that wait" in refused["status"]["message"]
        third = (await posted(server, "one")).response
        assert "the many large objects that wait" in third["status"]["message"]
        os.kill(stopped, signal.SIGCONT)
    assert "visible-devices-env" in modest.result().response["status"]["message"]


@pytest.mark.usefixtures("endless", "room_for_two")
async def test_a_tenant_for_which_others_leave_no_room_must_try_again(serve: Serve) -> None:
    server = await serve()
    stopped = await stop_worker(server)
    async with asyncio.TaskGroup() as group:
        for number, namespace in enumerate(("one", "two"), 1):
            group.create_task(posted(server, namespace))
            await wait_until(partial(is_waiting, server, number))
        assert (await posted(server, "six")).status == 429
        os.kill(stopped, signal.SIGCONT)


@pytest.mark.parametrize("is_verified", [True, False])
async def test_callers_are_told_apart_by_address_unless_a_certificate_names_them(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_verified: bool
) -> None:
    """API servers have several addresses, and each sends the reviews of all tenants."""
    callers: list[str] = []

    async def refuse(_self: Evaluator, _task: EvaluationTask, tenant: Tenant) -> Answer:
        callers.append(tenant.caller)
        raise NotEvaluatedError

    monkeypatch.setattr(Evaluator, "answer", refuse)
    authority = Authority(tmp_path)
    client = authority.issue("api-server", common_name="kube-apiserver")
    server = await serve(client_ca=authority.file if is_verified else None)
    server.tls.load_cert_chain(client.certificate, client.key)
    for source in ("127.0.0.1", "127.0.0.2"):
        await posted(server, "one", source)
    assert callers == (["", ""] if is_verified else ["127.0.0.1", "127.0.0.2"])


async def test_the_process_evaluates_by_the_active_policy(serve: Serve, tmp_path: Path) -> None:
    head = "apiVersion: gpuward.io/v1\nkind: Policy\n"
    file = tmp_path / "policy.yaml"
    file.write_text(head)
    policy = PolicyReloader(str(file))
    policy.load()
    server = await serve(policy)
    assert not (await answered(server, "/validate/deny"))["allowed"]
    file.write_text(head + "rules: {visible-devices-env: {action: warn}}\n")
    while policy.reload() != "loaded":
        pass
    assert (await answered(server, "/validate/deny"))["allowed"]


async def test_a_large_body_that_is_no_review_gets_an_error(serve: Serve) -> None:
    caller = await (await serve()).connect()
    reply = await caller.post("/mutate/deny", b"[" + b" " * 70_000 + b"]")
    assert reply.status == 400
    assert reply.body.startswith(b"the body is not an AdmissionReview")


async def test_the_process_ends_with_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path) as start:
        server = await start()
        await answered(server, "/validate/deny")
        worker = worker_of(server)
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_the_head_of_a_review_has_everything_but_the_objects() -> None:
    head = decode_head(LARGE_REVIEW)
    assert head
    assert (head.uid, head.kind, head.operation) == (
        review_body(LARGE)["request"]["uid"],
        "Pod",
        "CREATE",
    )
    assert (head.object, head.old, head.size_bytes) == (None, None, len(LARGE_REVIEW))


def test_a_large_review_without_an_object_has_no_head() -> None:
    body = review_body(LARGE)
    del body["request"]["object"], body["request"]["oldObject"]
    assert decode_head(json.dumps(body, separators=(",", ":")).encode()) is None


def test_a_name_cannot_pretend_to_be_the_object() -> None:
    body = review_body(LARGE)
    body["request"]["name"] = 'x","object":{"kind":"Pod"},"uid":"other'
    head = decode_head(json.dumps(body, separators=(",", ":")).encode())
    assert head
    assert head.uid == body["request"]["uid"]
    assert head.name == body["request"]["name"]


def with_padding(padding: str) -> bytes:
    """A large review whose head holds `padding`, a JSON value."""
    body = review_body(LARGE)
    body["request"] = {"padding": "HERE", **body["request"]}
    return json.dumps(body, separators=(",", ":")).replace('"HERE"', padding).encode()


DEEP = "[" * 19_000 + "]" * 19_000
PADDINGS = {
    "long": "[" + "1," * 5_000_000 + "1]",
    "deep": DEEP,
    "long and deep": "[" + "1," * 5_000_000 + DEEP + "]",
}


@pytest.fixture
def without_the_slow_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process, which serves all callers, cannot read what only the slow decoder reads."""

    def forbidden(_data: bytes) -> Any:
        raise AssertionError

    monkeypatch.setattr("webhook.admission.review.loads_deep", forbidden)


@pytest.mark.parametrize("padding", PADDINGS.values(), ids=PADDINGS)
def test_the_cost_of_a_head_is_bounded(padding: str) -> None:
    read: list[int] = []

    def loads(data: bytes) -> Any:
        read.append(len(data))
        return CODEC.loads(data)

    assert decode_head(with_padding(padding), CODEC._replace(loads=loads)) is None
    assert sum(read) <= MAX_HEAD_BYTES + 2


@pytest.mark.usefixtures("without_the_slow_decoder")
@pytest.mark.parametrize("padding", ["[[1]]", DEEP], ids=["flat", "deep"])
async def test_the_other_process_reads_what_is_nested_deeply(serve: Serve, padding: str) -> None:
    server = await serve(answer_seconds=60)
    response = await answered(server, "/validate/deny", with_padding(padding))
    assert "visible-devices-env" in response["status"]["message"]
    small = REVIEW.replace(
        b'"request":', b'"padding": %b, "request":' % (b"[" * 2000 + b"]" * 2000)
    )
    assert len(small) < 40_000
    assert (await answered(server, "/mutate/deny", small))["allowed"]


@pytest.mark.usefixtures("without_the_slow_decoder")
async def test_what_nobody_can_read_in_time_gets_an_error(serve: Serve) -> None:
    server = await serve()
    caller = await server.connect()
    reply = await caller.post("/validate/deny", with_padding(PADDINGS["long and deep"]))
    # It depends on the machine which of its times is over first, or whether it is read before.
    assert reply.status in {400, 429, 503}
    assert await answered(server, "/mutate/deny", REVIEW)
