"""The controller for GpuExceptions: what it writes, and when, against a cluster in memory."""

from __future__ import annotations

import copy
import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from cluster.api.client import KubernetesGpuExceptions
from cluster.api.connection import Connection
from cluster.api.errors import ClusterError, ConflictError, Object, TooLargeError
from cluster.controllers.gpu_exceptions import (
    MAX_STATUS_WRITES,
    RENEW_SECONDS,
    ExceptionsController,
    PolicySource,
)
from policies.gpu_exceptions import MAX_COUNTED_IN_NAMESPACE
from policies.loading import PolicyError, load_policy
from tests.testkit.policy_mistakes import POLICY_HEADER

WITH_GPU_EXCEPTIONS = """\
gpuExceptions:
  - {rules: [absurd-count], namespaces: "team-*", longestDays: 30, approval: none}
"""
NOW = datetime.datetime(2030, 6, 15, 12, tzinfo=datetime.UTC)


def gpu_exception(namespace: str = "team-a", name: str = "x", **spec: Any) -> Object:
    return {
        "apiVersion": "gpuward.io/v1alpha1",
        "kind": "GpuException",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "creationTimestamp": "2030-06-14T00:00:00Z",
            "resourceVersion": "1",
            "generation": 1,
            "annotations": {"x": "y" * 1000},
        },
        "spec": {"rules": ["absurd-count"], "reason": "r", "expires": "2030-06-20", **spec},
    }


class FakeCluster:
    """GpuExceptions and a ConfigMap in memory, a clock, and the controller for them."""

    def __init__(self) -> None:
        self.objects: list[Object] = []
        self.config_map: Object = {"metadata": {"name": "gpuward-exceptions"}}
        self.now = NOW.timestamp()
        self.writes: list[str] = []
        self.failure: Exception | None = None
        self.status_failure: Exception | None = None
        self.refused: set[str] = set()
        self.policy = load_policy(POLICY_HEADER + WITH_GPU_EXCEPTIONS, "p.yaml")
        self.controller = ExceptionsController(
            self, lambda: self.policy, now=lambda: self.now, monotonic=lambda: self.now
        )

    def list_objects(self) -> Iterator[Object]:
        if self.failure:
            raise self.failure
        yield from copy.deepcopy(self.objects)

    def write_conditions(self, raw: Object, conditions: list[Object]) -> None:
        if self.status_failure:
            raise self.status_failure
        name = raw["metadata"]["name"]
        if name in self.refused:
            raise ClusterError("413 too large")
        self.writes.append(name)
        (found,) = (o for o in self.objects if o["metadata"]["name"] == name)
        found["status"] = {"conditions": conditions}

    def get_config_map(self) -> Object:
        return copy.deepcopy(self.config_map)

    def update_config_map(self, config_map: Object) -> None:
        self.writes.append("config map")
        self.config_map = config_map

    def reconcile(self) -> list[str]:
        """One pass; what it has written."""
        self.writes.clear()
        self.controller.reconcile()
        return list(self.writes)

    def condition(self, number: int = 0) -> Any:
        (found,) = self.objects[number]["status"]["conditions"]
        return found

    @property
    def listed(self) -> list[str]:
        """The names of the objects in the ConfigMap."""
        file = json.loads(self.config_map["data"]["exceptions.json"])
        return [item["metadata"]["name"] for item in file["items"]]

    def samples(self) -> dict[str, float]:
        """The samples of the metrics, by their only label or else their name."""
        families = text_string_to_metric_families(self.controller.metrics().decode())
        found = [sample for family in families for sample in family.samples]
        return {sample.labels.get("reason", sample.name): sample.value for sample in found}


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def test_the_file_comes_before_the_conditions_and_both_are_written_once(
    cluster: FakeCluster,
) -> None:
    cluster.objects = [gpu_exception(name="good"), gpu_exception("other", "bad")]
    first, *others = cluster.reconcile()
    assert (first, sorted(others)) == ("config map", ["bad", "good"])
    assert cluster.listed == ["good"]
    assert "annotations" not in cluster.config_map["data"]["exceptions.json"]
    good, bad = cluster.condition(0), cluster.condition(1)
    assert good == {
        "type": "Accepted",
        "status": "True",
        "observedGeneration": 1,
        "lastTransitionTime": "2030-06-15T12:00:00Z",
        "reason": "Accepted",
        "message": "findings of absurd-count are accepted until 2030-06-20",
    }
    assert (bad["status"], bad["reason"]) == ("False", "NotAllowed")
    assert cluster.reconcile() == []
    samples = cluster.samples()
    assert (samples["Accepted"], samples["NotAllowed"], samples["Ended"]) == (1, 1, 0)
    metrics = cluster.controller.metrics()
    assert b'gpuward_gpu_exception_objects{reason="Accepted"} 1.0' in metrics


def test_a_changed_spec_gets_a_new_condition(cluster: FakeCluster) -> None:
    cluster.objects = [gpu_exception()]
    cluster.reconcile()
    cluster.now += 60
    cluster.objects[0]["metadata"]["generation"] = 2
    cluster.objects[0]["spec"]["expires"] = "2030-06-21"
    assert cluster.reconcile() == ["config map", "x"]
    # The status is the same, so the time of its transition is, too.
    assert cluster.condition()["lastTransitionTime"] == "2030-06-15T12:00:00Z"
    assert cluster.condition()["observedGeneration"] == 2
    cluster.now += 7 * 86_400
    assert cluster.reconcile() == ["config map", "x"]
    assert cluster.condition()["reason"] == "Ended"
    assert cluster.condition()["lastTransitionTime"] == "2030-06-22T12:01:00Z"
    assert cluster.listed == ["x"], "refusals say for a while that it has ended"


def test_conditions_of_others_stay(cluster: FakeCluster) -> None:
    foreign = {"type": "Reviewed", "status": "True"}
    cluster.objects = [{**gpu_exception(), "status": {"conditions": [foreign]}}]
    cluster.reconcile()
    assert cluster.objects[0]["status"]["conditions"][0] == foreign
    assert cluster.reconcile() == []


def test_a_deleted_object_leaves_the_file(cluster: FakeCluster) -> None:
    cluster.objects = [gpu_exception()]
    cluster.reconcile()
    cluster.objects = []
    assert cluster.reconcile() == ["config map"]
    assert cluster.listed == []


def test_the_file_is_renewed_and_restored(cluster: FakeCluster) -> None:
    cluster.objects = [gpu_exception()]
    cluster.reconcile()
    cluster.now += RENEW_SECONDS - 1
    assert cluster.reconcile() == []
    cluster.now += 2
    assert cluster.reconcile() == ["config map"]
    for data in ({}, {"exceptions.json": "{"}, {"exceptions.json": "[]"}, None):
        cluster.config_map["data"] = data
        assert cluster.reconcile() == ["config map"]
        assert cluster.listed == ["x"]


def test_what_exceeds_a_bound_has_a_condition_that_says_so(cluster: FakeCluster) -> None:
    names = [f"x{number:03}" for number in range(MAX_COUNTED_IN_NAMESPACE + 2)]
    cluster.objects = [gpu_exception(name=name) for name in names]
    cluster.reconcile()
    assert cluster.listed == names[:MAX_COUNTED_IN_NAMESPACE]
    assert [o["status"]["conditions"][0]["reason"] for o in cluster.objects[-3:]] == [
        "Accepted",
        "TooMany",
        "TooMany",
    ]


def test_one_pass_writes_a_limited_number_of_conditions(cluster: FakeCluster) -> None:
    names = [f"x{number:03}" for number in range(MAX_STATUS_WRITES + 1)]
    cluster.objects = [gpu_exception(f"team-{name}", name) for name in names]
    first, second, third = (cluster.reconcile() for _ in range(3))
    assert (len(first), len(second), third) == (MAX_STATUS_WRITES + 1, 1, [])
    assert sorted([*first[1:], *second]) == names


def test_errors_are_logged_once_and_change_nothing(cluster: FakeCluster) -> None:
    cluster.objects = [gpu_exception()]
    cluster.reconcile()
    cluster.failure = ClusterError("GET …: 403 forbidden")
    with capture_logs() as log:
        assert [cluster.reconcile(), cluster.reconcile()] == [[], []]
    assert [(line["event"], line["error"]) for line in log] == [
        ("GpuExceptions not checked", "GET …: 403 forbidden")
    ]
    assert cluster.listed == ["x"]
    assert cluster.samples()["gpuward_gpu_exceptions_failures_total"] == 2
    assert cluster.samples()["gpuward_gpu_exceptions_checked_timestamp_seconds"] == cluster.now
    assert cluster.controller.alive
    cluster.now += 3600
    assert not cluster.controller.alive


def test_an_object_that_cannot_be_written_delays_no_other(cluster: FakeCluster) -> None:
    """As one that is as large as the API server stores them."""
    names = [f"x{number}" for number in range(9)]
    cluster.objects = [gpu_exception(name=name) for name in names]
    cluster.refused = {"x0", "x4"}
    with capture_logs() as log:
        written = cluster.reconcile()
    assert sorted(written[1:]) == [name for name in names if name not in cluster.refused]
    assert [line["error"] for line in log if line["log_level"] == "error"] == ["413 too large"]
    assert cluster.samples()["gpuward_gpu_exceptions_failures_total"] == 1


def test_an_object_that_changed_meanwhile_is_left_for_the_next_pass(cluster: FakeCluster) -> None:
    cluster.objects = [gpu_exception()]
    cluster.status_failure = ConflictError("409")
    assert cluster.reconcile() == ["config map"]
    cluster.status_failure = None
    assert cluster.reconcile() == ["x"]


def test_the_controller_goes_by_the_last_policy_that_could_be_used(tmp_path: Path) -> None:
    file, fallback = tmp_path / "gpuward.yaml", tmp_path / "fallback.yaml"
    file.write_text("broken: [")
    with pytest.raises(PolicyError):
        PolicySource(str(file)).load()
    fallback.write_text(POLICY_HEADER + WITH_GPU_EXCEPTIONS)
    source = PolicySource(str(file), str(fallback))
    assert source.load().gpu_exception_limits
    file.write_text(POLICY_HEADER)
    assert not source.load().gpu_exception_limits
    file.write_text("broken: [")
    with capture_logs() as log:
        assert not source.load().gpu_exception_limits
        source.load()
    assert [line["event"] for line in log] == ["policy refused"]


class PagedConnection:
    """An API server with objects of different sizes, which counts the pages that it sends."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.pages = 0

    def request(self, _method: str, path: str, *, max_bytes: int) -> Object:
        query = dict(parse_qsl(urlsplit(path).query))
        start = int(query.get("continue", 0))
        end = start + int(query["limit"])
        if sum(self.sizes[start:end]) > max_bytes:
            raise TooLargeError("too large")
        self.pages += 1
        more = {"continue": str(end)} if end < len(self.sizes) else {}
        return {"items": [{"n": n} for n in range(len(self.sizes))[start:end]], "metadata": more}


@pytest.mark.parametrize(
    ("sizes", "most"),
    [([1_000] * 10_000, 40), ([1_500_000] * 20 + [1_000] * 10_000, 60), ([1_500_000] * 20, 20)],
    ids=["many", "large and many", "large"],
)
def test_neither_many_nor_large_objects_make_a_list_long(sizes: list[int], most: int) -> None:
    connection = PagedConnection(sizes)
    listed = KubernetesGpuExceptions(cast("Connection", connection), "gpuward", "x").list_objects()
    assert [item["n"] for item in listed] == list(range(len(sizes)))
    assert connection.pages <= most
