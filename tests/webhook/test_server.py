"""Tests of the server over real TLS sockets: responses, log and metrics."""

from __future__ import annotations

import asyncio
import base64
import copy
import io
import json
import logging
import platform
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from gpuward import __version__
from rules.base.json_values import Json
from rules.catalog.index import CATALOG
from tests.testkit.admission.caller import REVIEW
from tests.testkit.admission.server import Serve, serving
from tests.testkit.chart.monitoring import documented_labels
from tests.testkit.paths import DOCS
from webhook.admission.decider import Decider
from webhook.admission.decision import RULE_OUTCOMES, Decision
from webhook.reload.policy import PolicyReloader
from webhook.server.listener import listening_socket
from webhook.telemetry.log import LibraryHandler, Log

DENY = "apiVersion: gpuward.io/v1\nkind: Policy\nonRuleError: deny\ncontact: '#gpu-help'\n"
CANARY = "s3cr3t-canary"


@pytest_asyncio.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Starts servers."""
    async with serving(tmp_path) as start:
        yield start


def changed(**request: Any) -> bytes:
    """The sample review with other fields in its request."""
    review = json.loads(REVIEW)
    review["request"].update(request)
    return json.dumps(review).encode()


def with_secrets() -> bytes:
    """The sample review with a secret in every field where a tenant may put one."""
    pod = copy.deepcopy(json.loads(REVIEW)["request"]["object"])
    pod["metadata"]["annotations"] = {"token": CANARY}
    pod["metadata"]["labels"]["secret"] = CANARY
    for container in pod["spec"]["containers"]:
        container["env"].append({"name": "TOKEN", "value": CANARY})
        container["env"].append({"name": "NVIDIA_VISIBLE_DEVICES", "value": CANARY})
        container["args"] = ["--token", CANARY]
        container["resources"]["limits"]["nvidia.com/gpu"] = CANARY
    return changed(object=pod, oldObject=pod)


async def test_mutating_fixes_and_validating_refuses(serve: Serve) -> None:
    caller = await (await serve()).connect()
    mutated = await caller.post("/mutate/deny?timeout=5s")
    assert mutated.status == 200
    assert mutated.headers["content-type"] == "application/json"
    operations = json.loads(base64.b64decode(mutated.response["patch"]))
    assert operations[0]["path"] == "/spec/containers/0/resources/limits/nvidia.com~1gpu"
    assert mutated.response["uid"] == json.loads(REVIEW)["request"]["uid"]
    validated = await caller.post("/validate/deny?timeout=5s")
    assert validated.status == 200
    assert not validated.response["allowed"]
    assert "visible-devices-env" in validated.response["status"]["message"]


@pytest.mark.parametrize("mode", ["warn", "audit"])
async def test_the_mode_is_in_the_path(serve: Serve, mode: str) -> None:
    caller = await (await serve()).connect()
    for kind in ("mutate", "validate"):
        reply = await caller.post(f"/{kind}/{mode}")
        assert reply.response["allowed"]
        assert "patch" not in reply.response


@pytest.mark.parametrize(
    "path", ["/", "/mutate", "/mutate/", "/mutate/off", "/mutate/deny/", "/healthz", "/metrics"]
)
async def test_an_unknown_path_or_mode_is_not_found(serve: Serve, path: str) -> None:
    server = await serve()
    caller = await server.connect()
    assert (await caller.post(path)).status == 404
    assert (await caller.post("/mutate/deny")).status == 200
    assert (await server.metrics())("http_errors_total", "path") == 1


async def test_only_post_is_allowed(serve: Serve) -> None:
    caller = await (await serve()).connect()
    await caller.send(b"GET /mutate/deny HTTP/1.1\r\nHost: x\r\n\r\n")
    reply = await caller.reply()
    assert (reply.status, reply.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{}}',
        b'{"kind":"Pod","apiVersion":"v1","request":{"uid":"1"}}',
    ],
)
async def test_a_malformed_request_gets_400_and_plain_text(serve: Serve, body: bytes) -> None:
    caller = await (await serve()).connect()
    reply = await caller.post("/validate/deny", body)
    assert reply.status == 400
    assert reply.headers["content-type"].startswith("text/plain")
    assert reply.body.isascii()
    assert (await caller.post("/validate/deny")).status == 200


async def test_unknown_kinds_are_allowed_and_counted_without_a_label_of_their_own(
    serve: Serve,
) -> None:
    server = await serve()
    caller = await server.connect()
    for number in range(20):
        kind = {"group": f"g{number}.example", "version": "v9", "kind": f"Thing{number}"}
        thing = {"apiVersion": f"g{number}.example/v9", "kind": f"Thing{number}"}
        reply = await caller.post("/validate/deny", changed(kind=kind, object=thing))
        assert reply.response["allowed"]
    metrics = await server.metrics()
    assert metrics("requests_total", "validate", "deny", "ignored", "false") == 20
    assert not any("Thing" in word for word in metrics.labels())


async def test_what_is_not_http_is_answered_and_closed(serve: Serve) -> None:
    server = await serve(level="debug")
    before = len(server.logged())
    caller = await server.connect()
    await caller.send(b"\x16\x03\x01 " + CANARY.encode() + b"\r\n\r\n")
    assert (await caller.reply()).status == 400
    assert await caller.closed()
    assert (await server.metrics())("http_errors_total", "not_http") == 1
    assert len(server.logged()) == before


async def test_a_bug_in_gpuward_never_refuses(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve()
    caller = await server.connect()
    _break(monkeypatch)
    for kind in ("mutate", "validate"):
        response = (await caller.post(f"/{kind}/deny", with_secrets())).response
        assert response["allowed"]
        assert response["warnings"][0].startswith("gpuward could not evaluate this object")
        response = (await caller.post(f"/{kind}/audit")).response
        assert response["allowed"]
        assert "warnings" not in response
    errors = [line for line in server.logged() if line["event"] == "not evaluated"]
    assert errors[0]["error"] == "KeyError"
    assert any("test_server.py" in frame for frame in errors[0]["traceback"])
    assert CANARY not in json.dumps(server.logged())
    assert (await server.metrics())("internal_errors_total") == 4


async def test_the_line_about_a_bug_is_short_whatever_the_uid(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve()
    caller = await server.connect()
    _break(monkeypatch)
    await caller.post("/validate/deny", changed(uid="u" * 5_000))
    (line,) = [line for line in server.logged() if line["event"] == "not evaluated"]
    assert len(line["uid"]) == 253


async def test_a_bug_in_gpuward_refuses_if_the_policy_says_so(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(DENY)
    policy = PolicyReloader(str(file))
    policy.load()
    caller = await (await serve(policy)).connect()
    _break(monkeypatch)
    refused = (await caller.post("/validate/deny")).response
    assert not refused["allowed"]
    assert refused["status"]["message"].endswith("onRuleError: deny; contact: #gpu-help")
    assert (await caller.post("/mutate/deny")).response["allowed"]
    assert (await caller.post("/validate/warn")).response["allowed"]


async def test_an_error_while_encoding_reveals_nothing(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve()
    caller = await server.connect()

    def broken(*_arguments: Any) -> bytes:
        raise KeyError(CANARY)

    monkeypatch.setattr("webhook.admission.answer.PreparedResponse.for_envelope", broken)
    reply = await caller.post("/mutate/deny")
    assert (reply.status, reply.body) == (500, b"gpuward failed\n")
    monkeypatch.setattr("webhook.admission.answer.decode", broken)
    assert (await caller.post("/mutate/deny")).status == 500
    events = [line["event"] for line in server.logged()]
    assert events[-4:] == ["cache failed", "not answered"] * 2
    assert CANARY not in json.dumps(server.logged())


def _break(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: Decider, _review: Json, *_rest: Any) -> Decision:
        raise KeyError(CANARY)

    monkeypatch.setattr(Decider, "mutate", broken)
    monkeypatch.setattr(Decider, "validate", broken)


async def test_the_log_has_the_decision_and_no_secret(serve: Serve) -> None:
    server = await serve(level="debug")
    caller = await server.connect()
    began = time.monotonic()
    for mode in ("deny", "warn", "audit"):
        for kind in ("mutate", "validate"):
            await caller.post(f"/{kind}/{mode}", with_secrets(), Authorization=CANARY)
            await caller.post(f"/{kind}/{mode}?token={CANARY}")
    lines = [line for line in server.logged() if "uid" in line]
    assert {line["event"] for line in lines} >= {"denied", "fixed", "warned", "audited"}
    assert CANARY not in json.dumps(server.logged())
    (fixed,) = (line for line in lines if line["event"] == "fixed" and len(line["rules"]) == 3)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", fixed.pop("time"))
    assert 0 <= fixed.pop("duration_ms") <= 1000 * (time.monotonic() - began)
    assert {reason["rule"] for reason in fixed.pop("reasons")} == set(fixed["rules"])
    assert fixed == {
        "level": "info",
        "event": "fixed",
        "uid": "7c1f2a4e-58a3-4c5c-9f0e-2d3b5a6c7d81",
        "namespace": "vision",
        "kind": "Pod",
        "resource": "pods",
        "name": "",
        "generate_name": "resnet-trainer-",
        "owner_kind": "",
        "owner_name": "",
        "user": "system:serviceaccount:vision:training-operator",
        "operation": "CREATE",
        "dry_run": False,
        "path": "mutate",
        "mode": "deny",
        "rules": {
            "request-only": "fixed",
            "toleration-default": "fixed",
            "affinity-default": "fixed",
        },
        "failures": [],
    }


async def test_a_clean_object_is_not_logged(serve: Serve) -> None:
    server = await serve()
    caller = await server.connect()
    before = len(server.logged())
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {}}
    assert (await caller.post("/mutate/deny", changed(object=pod))).response["allowed"]
    assert len(server.logged()) == before


async def test_names_are_logged_on_one_line_and_cut(serve: Serve) -> None:
    server = await serve()
    caller = await server.connect()
    await caller.post("/mutate/deny", changed(name="a\n" * 10_000, userInfo={"username": "\u2028"}))
    (line,) = (line for line in server.logged() if line["event"] == "fixed")
    assert len(line["name"]) == 253


async def test_the_scrape_counts_and_its_labels_are_bounded(serve: Serve) -> None:
    server = await serve()
    caller = await server.connect()
    for _ in range(3):
        await caller.post("/mutate/deny")
    await caller.post("/validate/warn")
    await caller.post("/validate/deny", b"{")
    metrics = await server.metrics()
    assert metrics("requests_total", "mutate", "deny", "fixed", "false") == 3
    assert metrics("requests_total", "validate", "warn", "warned", "false") == 1
    assert metrics("http_errors_total", "malformed") == 1
    assert metrics("rule_outcomes_total", "request-only", "fixed", "mutate", "deny", "false") == 3
    denied = ("visible-devices-env", "would-be-denied", "validate", "warn", "false")
    assert metrics("rule_outcomes_total", *denied) == 1
    assert metrics("request_duration_seconds_count", "mutate") == 3
    assert metrics("request_duration_seconds_bucket", "mutate", "+Inf") == 3
    assert metrics("policy_valid") == 1
    assert metrics("build_info", __version__, platform.python_version()) == 1
    assert metrics("policy_loaded_timestamp_seconds")
    assert (metrics("certificate_expiry_seconds") or 0) > 0
    assert metrics("certificate_reload_failures_total") == 0
    assert metrics.labels("python_gc_collections_total") == {"0", "1", "2"}
    rules = {rule.name for rule in CATALOG}
    outcomes = RULE_OUTCOMES | {"mutate", "validate", "deny", "warn", "audit", "false"}
    assert metrics.labels("rule_outcomes_total") <= rules | outcomes


def test_what_a_library_logs_is_written_without_its_arguments() -> None:
    stream, logger = io.BytesIO(), logging.Logger("library")  # noqa: LOG001  # it has no parents
    logger.addHandler(LibraryHandler(Log(stream)))
    logger.warning("slow: %s", CANARY)
    logger.error("failed: %s", CANARY, exc_info=KeyError(CANARY))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [{k: v for k, v in line.items() if k != "time"} for line in lines] == [
        {
            "level": level,
            "event": "library",
            "logger": "library",
            "message": message,
            "error": error,
        }
        for level, message, error in (
            ("warning", "slow: %s", ""),
            ("error", "failed: %s", "KeyError"),
        )
    ]


def test_without_a_host_the_server_listens_on_ipv4_and_ipv6() -> None:
    hosts = ("127.0.0.1", "::1") if socket.has_dualstack_ipv6() else ("127.0.0.1",)
    with listening_socket(":0") as listening:
        for host in hosts:
            socket.create_connection((host, listening.getsockname()[1])).close()


async def test_a_closed_server_leaves_no_task(tmp_path: Path) -> None:
    async with serving(tmp_path) as start:
        server = await start()
        assert (await (await server.connect()).post("/mutate/deny")).status == 200
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_dry_runs_are_counted_apart(serve: Serve) -> None:
    server = await serve()
    caller = await server.connect()
    for dry_run in (True, False, True):
        await caller.post("/validate/warn", changed(dryRun=dry_run))
    metrics = await server.metrics()
    for flag, count in (("true", 2), ("false", 1)):
        assert metrics("requests_total", "validate", "warn", "warned", flag) == count
        denied = ("visible-devices-env", "would-be-denied", "validate", "warn", flag)
        assert metrics("rule_outcomes_total", *denied) == count


async def test_listed_namespaces_alone_are_counted_apart(serve: Serve) -> None:
    server = await serve(settings={"counted_namespaces": ("team-a", "team-b")})
    caller = await server.connect()
    for namespace, dry_run in (("team-a", False), ("team-a", True), ("other", False)):
        body = changed(namespace=namespace, dryRun=dry_run)
        await caller.post("/validate/warn", body)
    metrics = await server.metrics()
    denied = ("visible-devices-env", "would-be-denied", "validate", "warn")
    assert metrics("namespace_rule_outcomes_total", *denied, "team-a") == 1
    page = (await server.probe("/metrics")).body
    assert b'object_namespace="team-a"' in page
    labels = metrics.labels("namespace_rule_outcomes_total")
    assert not labels & {"other", "team-b", "true", "false"}


async def test_probes_are_served_on_the_plain_port_alone(serve: Serve) -> None:
    server = await serve()
    assert (await server.probe("/healthz")).status == 200
    assert (await server.probe("/readyz")).body == b"ready\n"
    assert (await server.probe("/mutate/deny")).status == 404


async def test_without_a_certificate_it_is_alive_and_not_ready(
    serve: Serve, tmp_path: Path
) -> None:
    missing = tmp_path / "later"
    server = await serve(certificate=missing)
    assert (await server.probe("/healthz")).status == 200
    reply = await server.probe("/readyz")
    assert (reply.status, reply.body) == (503, b"not ready: no certificate is loaded\n")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await server.connect()
    assert (await server.metrics())("certificate_expiry_seconds") is None
    missing.mkdir()
    for file in (tmp_path / "certificate").iterdir():
        (missing / file.name).write_bytes(file.read_bytes())
    await server.service.reload()
    assert (await server.probe("/readyz")).status == 200
    assert (await (await server.connect()).post("/mutate/deny")).status == 200
    events = [line["event"] for line in server.logged()]
    assert events.index("certificate refused") < events.index("certificate loaded")


async def test_the_manual_lists_exactly_the_existing_metrics(serve: Serve) -> None:
    server = await serve()
    text = (await server.probe("/metrics")).body.decode()
    kinds = re.findall(r"^# TYPE (gpuward_\w+) \w+$", text, re.MULTILINE)
    manual = (DOCS / "webhook-server.md").read_text(encoding="utf-8")
    table = manual.partition("\n## Metrics\n")[2].partition("\n\nThe chart comes")[0]
    assert sorted(re.findall(r"`(gpuward_\w+)`", table)) == sorted(kinds)
    assert (await (await server.connect()).post("/mutate/deny")).status == 200
    documented = documented_labels()
    for family in text_string_to_metric_families((await server.probe("/metrics")).body.decode()):
        ending = "_total" if family.type == "counter" else ""
        for sample in family.samples if family.name.startswith("gpuward_") else ():
            assert sample.labels.keys() - {"le"} == documented[family.name + ending], family.name
