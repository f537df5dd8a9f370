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
from tests.testkit.admission.caller import REVIEW
from tests.testkit.admission.reviews import (
    container,
    deployment,
    pod,
    review_body,
    variable,
)
from tests.testkit.admission.server import RunningServer, Serve, serving, wait_until
from tests.testkit.cases import TODAY
from webhook.admission.answer import Answer
from webhook.admission.decider import Decider
from webhook.admission.review import MalformedReviewError, decode_head
from webhook.evaluator.evaluator import (
    MAX_WAITING_BYTES,
    MAX_WAITING_BYTES_OF_TENANT,
    EvaluationTask,
    Evaluator,
    NotEvaluatedError,
)
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
    monkeypatch.setattr("webhook.evaluator.evaluator.MAX_EVALUATION_SECONDS", NEVER)


def worker_of(server: RunningServer) -> int:
    """The process that answers large reviews."""
    worker = server.service.handler.evaluator.process_id
    assert worker is not None
    return worker


def is_waiting(server: RunningServer, number: int) -> bool:
    """Whether so many large reviews wait for an answer."""
    return server.service.handler.evaluator.waiting == number


async def stop_worker(server: RunningServer) -> int:
    """Start the process that answers large reviews, and stop it; the process."""
    await answered(server, "/validate/deny")
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
@pytest.mark.parametrize("body", [LARGE_REVIEW, LARGE_WORKLOAD], ids=["pod", "workload"])
@pytest.mark.parametrize("mode", ["deny", "warn", "audit"])
async def test_an_evaluation_beyond_its_time_is_ended_and_never_passed_in_silence(
    serve: Serve, mode: str, body: bytes
) -> None:
    server = await serve()
    stopped = await stop_worker(server)
    response = await answered(server, f"/mutate/{mode}?timeout=1s", body)
    refused = mode == "deny" and body is LARGE_REVIEW
    assert response["allowed"] is not refused
    texts = response["status"]["message"] if refused else " ".join(response.get("warnings", ()))
    assert ("gpuward [timeout] cannot evaluate this object because of" in texts) == (
        mode != "audit"
    )
    await wait_until(lambda: server.service.handler.evaluator.ended_workers == 1)
    metrics = await server.metrics()
    outcome = "denied" if refused else "not-evaluated"
    assert metrics("rule_outcomes_total", "timeout", outcome, "mutate", mode, "false") == 1
    assert metrics("ended_evaluations_total") == 1
    line = server.logged()[-1]
    assert (line["event"], line["rules"]) == (outcome, {"timeout": outcome})
    assert line["name"] == "trainer"
    assert "visible-devices-env" in (await answered(server, "/validate/deny"))["status"]["message"]
    assert worker_of(server) != stopped


@pytest.mark.usefixtures("endless")
async def test_a_review_whose_time_is_over_while_it_waits_is_not_evaluated(serve: Serve) -> None:
    server = await serve()
    stopped = await stop_worker(server)
    first = asyncio.create_task(answered(server, "/validate/deny?timeout=600s"))
    await wait_until(lambda: server.service.handler.evaluator.waiting == 1)
    late = await answered(server, "/validate/deny?timeout=1s")
    assert "[timeout]" in late["status"]["message"]
    os.kill(stopped, signal.SIGCONT)
    assert "visible-devices-env" in (await first)["status"]["message"]
    assert server.service.handler.evaluator.ended_workers == 0


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
    monkeypatch.setattr("webhook.evaluator.evaluator.MAX_WAITING_OF_TENANT", 0)
    server = await serve()
    response = await answered(server, "/validate/deny")
    assert "the many large objects that wait" in response["status"]["message"]


@pytest.mark.usefixtures("endless")
async def test_one_tenant_cannot_fill_the_memory_for_all(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "webhook.evaluator.evaluator.MAX_WAITING_BYTES_OF_TENANT", len(LARGE_REVIEW)
    )
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
    monkeypatch.setattr("webhook.evaluator.evaluator.MIN_SECONDS_LEFT", NEVER)
    passed = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed)
    monkeypatch.setattr("webhook.evaluator.evaluator.time", clock)
    server = await serve()
    stopped = await stop_worker(server)
    first = asyncio.create_task(answered(server, "/validate/deny?timeout=900s"))
    await wait_until(lambda: server.service.handler.evaluator.waiting == 1)
    late = asyncio.create_task(answered(server, "/validate/deny?timeout=900s"))
    await wait_until(lambda: server.service.handler.evaluator.waiting == 2)
    passed = 600.0  # seconds; more than half of the time of the second
    os.kill(stopped, signal.SIGCONT)
    assert "visible-devices-env" in (await first)["status"]["message"]
    assert "[timeout]" in (await late)["status"]["message"]
    assert server.service.handler.evaluator.ended_workers == 0


@pytest.mark.parametrize(
    ("query", "seconds"),
    [("?timeout=100s", 80), ("", 8), ("?timeout=100m", 8), ("?timeout=1000s", 8)],
)
async def test_the_answer_is_sent_before_the_api_server_gives_up(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, query: str, seconds: float
) -> None:
    deadlines: list[float] = []

    async def refuse(_self: Evaluator, task: EvaluationTask, tenant: str) -> Answer:
        deadlines.append(task.deadline)
        raise NotEvaluatedError(tenant)

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


async def test_more_waiting_reviews_than_allowed_are_not_evaluated(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.evaluator.evaluator.MAX_WAITING_REVIEWS", 0)
    server = await serve()
    response = await answered(server, "/validate/deny")
    assert "the many large objects that wait" in response["status"]["message"]
    assert (await answered(server, "/validate/warn"))["warnings"]


@pytest.mark.usefixtures("endless")
async def test_what_all_tenants_let_wait_has_a_limit_in_bytes(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The chart gives a replica eight times as much memory.
    assert 4 * MAX_WAITING_BYTES_OF_TENANT <= MAX_WAITING_BYTES <= 128 << 20
    bodies = [
        json.dumps(review_body(LARGE, namespace=tenant), separators=(",", ":")).encode()
        for tenant in ("one", "two")
    ]
    monkeypatch.setattr("webhook.evaluator.evaluator.MAX_WAITING_BYTES", sum(map(len, bodies)) - 1)
    server = await serve()
    stopped = await stop_worker(server)
    async with asyncio.TaskGroup() as group:
        group.create_task(answered(server, "/validate/deny?timeout=900s", bodies[0]))
        await wait_until(partial(is_waiting, server, 1))
        refused = await answered(server, "/validate/deny", bodies[1])
        assert "the many large objects that wait" in refused["status"]["message"]
        os.kill(stopped, signal.SIGCONT)


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
    assert (reply.status, reply.body) == (
        400,
        b"the request has no object\n",
    )


async def test_the_process_ends_with_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path) as start:
        server = await start()
        await answered(server, "/validate/deny")
        worker = worker_of(server)
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_the_head_of_a_review_has_everything_but_the_objects() -> None:
    head = decode_head(LARGE_REVIEW)
    assert (head.uid, head.kind, head.operation) == (
        review_body(LARGE)["request"]["uid"],
        "Pod",
        "CREATE",
    )
    assert (head.object, head.old, head.size_bytes) == (None, None, len(LARGE_REVIEW))


def test_a_large_review_without_an_object_has_no_head() -> None:
    body = review_body(LARGE)
    del body["request"]["object"], body["request"]["oldObject"]
    with pytest.raises(MalformedReviewError):
        decode_head(json.dumps(body, separators=(",", ":")).encode())


def test_a_name_cannot_pretend_to_be_the_object() -> None:
    body = review_body(LARGE)
    body["request"]["name"] = 'x","object":{"kind":"Pod"},"uid":"other'
    head = decode_head(json.dumps(body, separators=(",", ":")).encode())
    assert head.uid == body["request"]["uid"]
    assert head.name == body["request"]["name"]
