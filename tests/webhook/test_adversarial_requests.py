"""Tests with pods made to break the request: under failurePolicy Ignore that would admit them."""

from __future__ import annotations

import copy
import json
import os
import signal
import ssl
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.reviews import container, gpus, pod, review_body, variable
from tests.testkit.admission.server_process import Server
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from webhook.registration import MODE_LABEL

BYPASS = container("taker", **variable("all"))
# An API server escapes each of these characters by six in an AdmissionReview.
ESCAPED = "<" * 1_300_000


@pytest.fixture
def namespace(plane: ControlPlane, server: Server) -> str:
    """A namespace in mode deny."""
    assert server.url
    return plane.namespace({MODE_LABEL: "deny"})


def deep_fields(depth: int) -> bytes:
    """`managedFields` with `depth` levels, as JSON text."""
    fields = b'{"f:a":' * depth + b"{}" + b"}" * depth
    head = b'"operation": "Update", "apiVersion": "v1", "time": "2024-01-01T00:00:00Z"'
    return (
        b'[{"manager": "me", ' + head + b', "fieldsType": "FieldsV1", "fieldsV1": ' + fields + b"}]"
    )


def with_deep_fields(manifest: dict[str, Any], depth: int) -> bytes:
    """`manifest` as JSON text, with `managedFields` of `depth` levels."""
    with_placeholder = copy.deepcopy(manifest)
    with_placeholder["metadata"]["managedFields"] = "HERE"
    return json.dumps(with_placeholder).encode().replace(b'"HERE"', deep_fields(depth))


def is_refused_by_gpuward(answer: Response) -> bool:
    return answer.status == 403 and "gpuward" in str(answer.body)


@pytest.mark.parametrize("depth", [900, 1_100, 5_000, 9_000])
def test_deep_managed_fields_hide_nothing(plane: ControlPlane, namespace: str, depth: int) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    bypass = {**pod(BYPASS), "metadata": {"name": "taker"}}
    assert is_refused_by_gpuward(plane.request("POST", path, with_deep_fields(bypass, depth)))
    harmless = {**pod(container()), "metadata": {"name": f"deep-{depth}"}}
    assert plane.request("POST", path, with_deep_fields(harmless, depth)).status == 201
    labelled = {"metadata": {"labels": {"a": "b"}}}
    pod_path = f"{path}/deep-{depth}"
    content_type = "application/merge-patch+json"
    assert plane.request("PATCH", pod_path, labelled, content_type=content_type).status == 200
    added = {"spec": {"ephemeralContainers": [BYPASS]}}
    content_type = "application/strategic-merge-patch+json"
    pod_path = f"{pod_path}/ephemeralcontainers"
    assert is_refused_by_gpuward(plane.request("PATCH", pod_path, added, content_type=content_type))


def test_a_large_status_does_not_prevent_a_fix(plane: ControlPlane, namespace: str) -> None:
    cuda = container("cuda", image="nvcr.io/nvidia/pytorch:24.01-py3")
    conditions = [{"type": f"example.com/c{n}", "status": "True"} for n in range(14_000)]
    for status in ({"conditions": conditions}, {"message": ESCAPED * 2}):
        new = {**pod(cuda, container("holder", **gpus(limits=1))), "status": status}
        created = create(plane, namespace, new, dry_run=True)
        assert created.status == 201
        assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in created.body["spec"][
            "containers"
        ][0]["env"]


def test_a_body_of_many_escapes_hides_nothing(plane: ControlPlane, namespace: str) -> None:
    padded = container(env=[{"name": "PADDING", "value": ESCAPED}])
    assert is_refused_by_gpuward(create(plane, namespace, pod(padded, BYPASS), dry_run=True))
    harmless = {**pod(padded), "metadata": {"name": "padded"}}
    assert create(plane, namespace, harmless).status == 201
    path = f"/api/v1/namespaces/{namespace}/pods/padded/ephemeralcontainers"
    added = {"spec": {"ephemeralContainers": [BYPASS]}}
    content_type = "application/strategic-merge-patch+json"
    assert is_refused_by_gpuward(plane.request("PATCH", path, added, content_type=content_type))


SHARE: dict[str, Any] = {"resources": {"limits": {"aliyun.com/gpu-mem": "1"}}}
HEAVY: dict[str, dict[str, Any]] = {
    "a path through processes": pod(
        BYPASS, volumes=[{"name": "v", "hostPath": {"path": "/proc/1/root" * 90_000}}]
    ),
    "a path through threads": pod(
        BYPASS, volumes=[{"name": "v", "hostPath": {"path": "/proc/self/task/1/root" * 50_000}}]
    ),
    "a long path in many mounts": pod(
        {**BYPASS, "volumeMounts": [{"name": "v", "mountPath": f"/{n}"} for n in range(2_400)]},
        volumes=[{"name": "v", "hostPath": {"path": "/dev/nvidia-" + "a" * 700_000}}],
    ),
    "a long name and many containers": {
        **pod(*(container(f"c{n}", image="nvidia/cuda:12") for n in range(1_200))),
        "metadata": {"generateName": "a" * 2_400_000},
    },
    "many limits of a share": pod(
        container(
            **SHARE,
            env=[{"name": f"CUDA_DEVICE_MEMORY_LIMIT_{n}", "value": "1"} for n in range(40_000)],
        )
    ),
    "many entries of the variable": pod(container(env=BYPASS["env"] * 55_000)),
    "a value of commas": pod(BYPASS, container(**variable("," * 2_500_000))),
}


@pytest.mark.parametrize("name", HEAVY)
def test_no_pod_takes_so_long_that_it_passes(
    plane: ControlPlane, namespace: str, name: str
) -> None:
    for dry_run in (True, False):
        assert is_refused_by_gpuward(create(plane, namespace, HEAVY[name], dry_run=dry_run))


def evaluating_process(server: Server) -> int:
    """The process of `server` that answers large reviews."""
    tasks = Path(f"/proc/{server.process_id}/task").glob("*/children")
    (child,) = (child for task in tasks for child in task.read_text().split())
    return int(child)


def test_a_process_that_gets_no_processor_refuses_nobody(
    plane: ControlPlane, server: Server, namespace: str
) -> None:
    """It is not the fault of the object: the failurePolicy, Ignore, decides."""
    large = pod(container(command=["x" * 70_000]))
    assert create(plane, namespace, large, dry_run=True).status == 201
    stopped = evaluating_process(server)
    os.kill(stopped, signal.SIGSTOP)
    assert create(plane, namespace, large, dry_run=True).status == 201
    eventually(lambda: evaluating_process(server) != stopped, what="another process")
    refused = pod(container(command=["x" * 70_000]), BYPASS)
    assert is_refused_by_gpuward(create(plane, namespace, refused, dry_run=True))


# The address of a pod that sends reviews which no API server has sent.
ATTACKER = "127.0.0.2"


@contextmanager
def attacked(server: Server, bodies: Sequence[bytes]) -> Iterator[None]:
    """As long as the block lasts, connections of one address send these reviews to `server`."""
    is_over = threading.Event()
    has_begun = threading.Barrier(len(bodies) + 1)
    tls = ssl._create_unverified_context()  # noqa: S323, SLF001

    def send(body: bytes) -> None:
        host, port = server.address.rsplit(":", 1)
        has_begun.wait()
        while not is_over.is_set():
            connection = HTTPSConnection(
                host, int(port), context=tls, source_address=(ATTACKER, 0), timeout=60
            )
            with closing(connection), suppress(OSError, HTTPException):
                connection.request("POST", "/validate/deny?timeout=30s", body)
                connection.getresponse().read()

    with ThreadPoolExecutor(len(bodies)) as threads:
        sent = [threads.submit(send, body) for body in bodies]
        has_begun.wait()
        try:
            yield
        finally:
            is_over.set()
    for thread in sent:
        thread.result()


def head_that_only_the_slow_decoder_reads() -> bytes:
    """60 MiB: plain numbers, and then more levels than a fast decoder allows."""
    numbers = b"1," * (30 << 20)
    deep = b"[" * 19_000 + b"]" * 19_000
    request = b'{"numbers":[' + numbers + deep + b'],"uid":"1","object":{}}'
    return (
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":' + request + b"}"
    )


def test_a_review_that_takes_long_to_read_stops_no_other(
    plane: ControlPlane, server: Server, namespace: str
) -> None:
    with attacked(server, [head_that_only_the_slow_decoder_reads()]):
        for _ in range(8):
            assert is_refused_by_gpuward(create(plane, namespace, pod(BYPASS), dry_run=True))


def test_made_up_namespaces_refuse_nobody_a_large_pod(
    plane: ControlPlane, server: Server, namespace: str
) -> None:
    heavy = HEAVY["many entries of the variable"]
    bodies = [json.dumps(review_body(heavy, namespace=f"made-up-{n}")).encode() for n in range(60)]
    large = container(command=["x" * 63_000])
    with attacked(server, bodies):
        for _ in range(5):
            assert create(plane, namespace, pod(large), dry_run=True).status == 201
            assert is_refused_by_gpuward(create(plane, namespace, pod(large, BYPASS), dry_run=True))
