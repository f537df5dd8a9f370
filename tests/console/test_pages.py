"""Tests of the pages without a browser: what they say, as HTML and JSON, and to whom."""

from __future__ import annotations

import asyncio
import copy
import csv
import datetime
import io
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from aiohttp.test_utils import TestClient, TestServer

from cluster.audit.cli import main as audit
from cluster.gpus.cli import main as gpus
from cluster.source.objects import Object, Resource, SourceError
from cluster.source.store import ObjectStore
from cluster.webhooks.decision_log import MAX_DECISIONS
from cluster.why.cli import main as why
from cluster.why.explanation import Answer, to_document
from console.access import Everybody
from console.demo import DEMO, moved
from console.pages.gpus import OTHERS, Filter, as_document, gpus_page
from console.playground_menu import playground_examples
from console.server import Console
from console.state import ClusterState
from console.view import View
from reports.findings import RULE_BY_NAME
from tests.testkit.cluster_commands.gpu_objects import node as gpu_node
from tests.testkit.cluster_commands.gpu_objects import pod as gpu_pod
from tests.testkit.console.server import HOSTS, demo_objects, demo_state, live_state

GPU = "nvidia.com/gpu"
JSON = {"Accept": "application/json"}
NOW = datetime.datetime.now(tz=datetime.UTC)
PAGES = (
    "/",
    "/?model=NVIDIA-L40S&state=stranded",
    "/?namespace=vision",
    "/nodes/h100-2",
    "/nodes/l40s-6",
    "/nodes/h100-3",
    "/pods/vision/annotate",
    "/pods/vision/finetune-0",
    "/findings",
    "/findings?as=deny&level=note",
    "/owners?as=deny&level=note",
    "/decisions",
    "/decisions?outcome=denied&namespace=vision",
    "/doctor",
    "/rules",
    "/rules?q=mig",
    "/rules/visible-devices-env",
    "/playground",
)
# What a tenant may write into names that Kubernetes does not check, and would harm a page.
HOSTILE = (
    "</title><script>alert(1)</script><img src=x onerror=alert(2)>\"'&lt;{{777*777}}"
    "\x1b[2J\u202e\u200b" + "x" * 253
)
HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]")


class Outline(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def count(self, tag: str) -> int:
        return sum(found == tag for found, _ in self.elements)


def client_of(state: ClusterState) -> TestClient[Any, Any]:
    return TestClient(TestServer(Console(state, HOSTS).application()))


@pytest.fixture(scope="module")
def state() -> ClusterState:
    return demo_state(NOW)


@pytest.fixture
def state_of_today() -> tuple[ClusterState, datetime.datetime]:
    """The state of the demo, and when it was made: pages with days are asked for at once."""
    now = datetime.datetime.now(tz=datetime.UTC)
    return demo_state(now), now


async def text_of(state: ClusterState, path: str, **options: Any) -> str:
    async with client_of(state) as client:
        answer = await client.get(path, **options)
        assert answer.status == 200, await answer.text()
        return await answer.text()


def without_gpu(name: str, home: str, **fields: Any) -> Any:
    """A pod on a GPU node that asks for no GPU."""
    limits = fields.pop("limits", {"cpu": "2", "memory": "4Gi"})
    return gpu_pod(name, limits, on="a", namespace=home, **fields)


async def test_who_is_on_a_node_without_a_gpu_is_on_its_page_and_by_owner() -> None:
    pods = [
        without_gpu("web-0", "shop", owner=("StatefulSet", "web")),
        without_gpu("web-1", "shop", owner=("StatefulSet", "web")),
        without_gpu("log-x", "logs", owner=("DaemonSet", "log"), limits={}),
    ]
    state = live_state([gpu_node("a", {GPU: 4}), gpu_node("b", {GPU: 4}), *pods])
    everything = Outline(await text_of(state, "/")).text
    assert "3 pods on 1 GPU node ask for no GPU (1 of DaemonSets, 2 others)" in everything
    assert re.search(r"statefulset/web\s*shop\s*4\s*8.0Gi\s*2", everything)
    of_shop = Outline(await text_of(state, "/?namespace=shop")).text
    assert "2 pods on 1 GPU node ask for no GPU, and take 4 CPU and 8.0Gi memory" in of_shop
    assert "2 pods" not in Outline(await text_of(state, "/?node=b")).text
    node = Outline(await text_of(state, "/nodes/a")).text
    assert re.search(
        r"shop\s*web-0\s*statefulset/web\s*2\s*4.0Gi\s*no lasting taint keeps pods off the node",
        node,
    )
    assert "a DaemonSet makes it for the node" in node
    assert "web-0" not in Outline(await text_of(state, "/nodes/b")).text
    state.drop(Resource("pods", "Pod"), ("shop", "web-0"))
    assert "web-0" not in await text_of(state, "/nodes/a")


@pytest.mark.parametrize("wanted", [Filter(namespace="small"), Filter(team="ml")])
def test_what_the_pods_of_others_strand_is_not_laid_at_the_door_of_a_namespace(
    wanted: Filter,
) -> None:
    pods = [
        without_gpu("large", "large", limits={"cpu": "63"}),
        without_gpu("small", "small", limits={"cpu": "10m"}),
        gpu_pod("train", {GPU: "1"}, on="a", namespace="small"),
    ]
    usage = live_state([gpu_node("a", {GPU: 4}), *pods]).usage()[0]
    teams = {"small": "ml"}
    stranded = "Without those not of the platform, 3 nvidia.com/gpu would not be stranded."
    assert stranded in gpus_page(usage, Filter(), teams).words_without_gpu
    assert stranded in gpus_page(usage, Filter(node="a"), teams).words_without_gpu
    assert gpus_page(usage, wanted, teams).words_without_gpu == (
        "1 pod on 1 GPU node asks for no GPU, and takes 10m CPU and 0.0Gi memory."
    )


def test_of_pods_of_others_without_a_gpu_a_viewer_sees_sums_alone() -> None:
    pods = [
        without_gpu("hidden-0", "a-team"),
        without_gpu("mine", "team-a"),
        without_gpu("hidden-1", "team-b", limits={"cpu": "3", "memory": "1Gi"}),
        without_gpu("hidden-2", "team-b", owner=("DaemonSet", "log")),
    ]
    state = live_state([gpu_node("a", {GPU: 4}), *pods])
    usage = View(state, Member("team-a")).usage()[0]
    mine, others, of_daemon_set = usage.without_gpu
    assert (mine.name, mine.why) == ("mine", "no lasting taint keeps pods off the node")
    for one in (others, of_daemon_set):
        assert {one.namespace, one.name, one.owner, one.why} == {OTHERS, ""}
    assert (others.pods, others.cpu, others.memory) == (2, 5 * 10**9, 5 * 2**30 * 10**9)
    assert (of_daemon_set.pods, of_daemon_set.is_of_daemon_set) == (1, True)
    page = gpus_page(usage, Filter())
    assert "4 pods on 1 GPU node ask for no GPU (1 of DaemonSets, 3 others)" in (
        page.words_without_gpu
    )
    assert {(row.owner, row.pods) for row in page.without_gpu} == {("pod/mine", 1), (OTHERS, 3)}
    assert [one["pods"] for one in as_document(usage, None)["podsWithoutGpu"]] == [1, 2, 1]


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_has_one_heading_and_is_json_for_programs(
    state: ClusterState, path: str
) -> None:
    page = Outline(await text_of(state, path))
    assert (page.count("h1"), page.count("main")) == (1, 1)
    json.loads(await text_of(state, path, headers=JSON))


def test_the_demo_is_what_the_command_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpus(["-f", DEMO]) == 0
    out = capsys.readouterr().out
    assert "l40s-4" in out
    assert "training" not in out


@pytest.fixture
def demo_file(tmp_path: Path) -> str:
    """A file with the objects of the demo, for commands."""
    file = tmp_path / "demo.yaml"
    file.write_text(moved(Path(DEMO).read_text(encoding="utf-8"), NOW), encoding="utf-8")
    return str(file)


def test_the_times_of_the_demo_are_relative_to_now() -> None:
    for now in (NOW, NOW + datetime.timedelta(days=1_000, hours=7)):
        objects = demo_objects(now)
        pods = [raw for raw in objects if raw["kind"] == "Pod"]
        made = [datetime.datetime.fromisoformat(p["metadata"]["creationTimestamp"]) for p in pods]
        assert datetime.timedelta(0) < now - max(made) < datetime.timedelta(hours=1)
        assert datetime.timedelta(days=7) < now - min(made) < datetime.timedelta(days=60)
        (exception,) = [raw for raw in objects if raw["kind"] == "GpuException"]
        ends = datetime.date.fromisoformat(exception["spec"]["expires"])
        assert (ends - now.date()).days == 50


async def test_the_demo_shows_no_fault_of_the_own_webhook(state: ClusterState) -> None:
    found = json.loads(await text_of(state, "/findings?level=note", headers=JSON))["findings"]
    assert not [one for one in found if "webhook" in one["rule"]]
    rows = json.loads(await text_of(state, "/doctor", headers=JSON))["rows"]
    wrong = [row["check"] for row in rows if row["state"] == "wrong"]
    assert sorted({*wrong}) == ["GPU nodes", "component priority", "sick cards"]


async def test_gpus_are_those_of_the_command(
    state: ClusterState, demo_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus(["-f", demo_file, "-o", "json"])
    expected = json.loads(capsys.readouterr().out)
    found = json.loads(await text_of(state, "/", headers=JSON))
    assert found["nodes"] == expected["nodes"]
    assert found["totals"] == expected["totals"]
    assert found["podsWithoutGpu"] == expected["podsWithoutGpu"]
    assert [one["name"] for one in found["podsWithoutGpu"]] == ["looks-at-all", "peek"]
    key = lambda one: (one["namespace"], one["name"])  # noqa: E731
    assert sorted(found["consumers"], key=key) == sorted(expected["consumers"], key=key)


async def test_findings_are_those_of_the_command(
    state: ClusterState, demo_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    audit(["-f", demo_file, "-o", "json", "--isolated", "--exit-zero"])
    expected = json.loads(capsys.readouterr().out)
    found = json.loads(await text_of(state, "/findings?level=note", headers=JSON))
    marks = [{one["fingerprint"] for one in report["findings"]} for report in (found, expected)]
    assert marks[0] == marks[1]
    assert len(marks[0]) > 5
    assert found["remarks"] == expected["remarks"]


async def test_why_is_that_of_the_command(
    state: ClusterState, demo_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert why(["annotate", "-f", demo_file, "-o", "json"]) == 1
    expected = json.loads(capsys.readouterr().out)
    found = json.loads(await text_of(state, "/pods/vision/annotate", headers=JSON))
    assert found.pop("roomMakers") == []
    assert found.pop("since")
    del expected["since"]  # the command says it of all pods that wait, and not of one
    assert found == expected


class Member:
    """A viewer who sees the pods of one namespace."""

    name = "member"
    sees_all = False

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def visible(self, namespaces: Iterable[str]) -> frozenset[str]:
        """That one, if it is among them."""
        return frozenset(namespaces) & {self._namespace}


def on_a_node(name: str, namespace: str, **status: Any) -> Object:
    made = gpu_pod(name, {"nvidia.com/gpu": 1}, on="a", namespace=namespace, labels={"app": "x"})
    return {**made, "status": {"phase": "Running", **status}}


def fits_beside(name: str, **fields: Any) -> Object:
    """A pod that waits for four cards of the nodes `a` and `b`."""
    limits = {GPU: 4, "cpu": "8"}
    return gpu_pod(name, limits, phase="Pending", namespace="team-a", **fields)


def crowded() -> list[Object]:
    """Two nodes without room for four cards, and a pod that waits for them."""
    return [
        gpu_node("a", {GPU: 8}),
        gpu_node("b", {GPU: 8}, cpu="16"),
        gpu_node("cordoned", {GPU: 8}, spec={"unschedulable": True}),
        gpu_pod("large", {GPU: 6}, on="a", namespace="team-a"),
        gpu_pod("small", {GPU: 2}, on="a", namespace="team-b"),
        gpu_pod("busy", {"cpu": "14"}, on="b", namespace="team-b"),
        gpu_pod("log", {"cpu": "1"}, on="b", namespace="logs", owner=("DaemonSet", "log")),
        fits_beside("waits"),
    ]


async def test_a_pending_pod_has_since_and_who_could_make_room() -> None:
    objects = crowded()
    made = datetime.datetime.now(tz=datetime.UTC) - datetime.timedelta(hours=3, minutes=5)
    objects[-1]["metadata"]["creationTimestamp"] = made.strftime("%Y-%m-%dT%H:%M:%SZ")
    state = live_state(objects)
    page = Outline(await text_of(state, "/pods/team-a/waits")).text
    assert re.search(r"Waits since\s*\d{4}-\d\d-\d\dT[\d:]+Z: 3 h", page)
    assert re.search(r"b:\s+team-b/busy.*a:\s+team-a/large 6 nvidia.com/gpu", page, re.DOTALL)
    assert not re.search("team-b/small|logs/log|cordoned:", page)
    front = Outline(await text_of(state, "/")).text
    assert "4 nvidia.com/gpu · for 3 h" in front
    document = json.loads(await text_of(state, "/pods/team-a/waits", headers=JSON))
    assert document["roomMakers"][0] == {"node": "b", "pods": ["team-b/busy"]}


def test_who_could_make_room_takes_the_pod_if_they_end() -> None:
    """Ends the pods that are named, and asks again."""
    objects = crowded()
    view = View(live_state(objects), Everybody())
    waits = view.why("team-a", "waits")
    assert waits is not None
    assert waits.fitting == ()
    makers = view.room_makers(waits)
    assert makers
    assert {maker.node for maker in makers} == {"a", "b"}
    for maker in makers:
        gone = {(pod.namespace, pod.name) for pod in maker.pods}
        state = live_state(
            [
                raw
                for raw in objects
                if (raw["metadata"].get("namespace"), raw["metadata"]["name"]) not in gone
            ]
        )
        found = state.why("team-a", "waits")
        assert found is not None
        assert maker.node in found.fitting
    both = {GPU: 8, "cpu": "8"}
    several = live_state([*objects[:-1], gpu_pod("all", both, phase="Pending")])
    needed = View(several, Everybody()).room_makers(several.why("team-a", "all"))  # type: ignore[arg-type]  # it exists
    assert [len(maker.pods) for maker in needed or ()] == [1, 2]


def makers_on_one_node(*pods: Object, waits: Mapping[str, Any]) -> list[list[str]]:
    """The pods that could make room on a node with 40 GPUs and 64 CPUs."""
    there = gpu_node("n", {GPU: 40}, cpu="64")
    waiting = gpu_pod("waits", {**waits}, phase="Pending")
    view = View(live_state([there, *pods, waiting]), Everybody())
    found = view.why("team-a", "waits")
    assert found is not None
    return [[pod.name for pod in maker.pods] for maker in view.room_makers(found) or ()]


def test_many_small_pods_could_make_room_together() -> None:
    small = [gpu_pod(f"p-{n}", {GPU: 1}, on="n") for n in range(40)]
    [made] = makers_on_one_node(*small, waits={GPU: 20})
    assert len(made) == 20


def test_no_pod_is_named_that_need_not_end() -> None:
    pods = [
        gpu_pod("a", {GPU: 20}, on="n"),
        gpu_pod("bystander", {GPU: 15}, on="n"),
        gpu_pod("other", {GPU: 5}, on="n"),
        gpu_pod("cpu", {"cpu": "60"}, on="n"),
    ]
    assert makers_on_one_node(*pods, waits={GPU: 20, "cpu": "30"}) == [["a", "cpu"]]


def test_static_pods_make_no_room() -> None:
    static = gpu_pod("proxy", {"cpu": "14"}, on="b", namespace="team-b", owner=("Node", "b"))
    objects = [static if raw["metadata"]["name"] == "busy" else raw for raw in crowded()]
    view = View(live_state(objects), Everybody())
    waits = view.why("team-a", "waits")
    assert waits is not None
    assert [maker.node for maker in view.room_makers(waits) or ()] == ["a"]


def test_who_could_make_room_has_no_name_for_others() -> None:
    objects = crowded()
    objects.append(gpu_pod("every", {GPU: 8, "cpu": "1"}, on="c", namespace="team-b"))
    objects.append(gpu_node("c", {GPU: 8}))
    objects[-2]["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z"
    view = View(live_state(objects), Member("team-a"))
    waits = view.why("team-a", "waits")
    assert waits is not None
    makers = view.room_makers(waits)
    assert makers
    assert "c" in {maker.node for maker in makers}
    assert "busy" not in str(makers)
    assert "large" in str(makers)
    assert "2026-01-02" not in str(makers)


async def test_the_page_of_a_node_says_why_cards_are_stranded(state: ClusterState) -> None:
    page = Outline(await text_of(state, "/nodes/h100-2")).text
    assert re.search(r"Model\s*NVIDIA-H100-80GB-HBM3\s*Status\s*Ready\s*Taints\s*", page)
    assert "nvidia.com/gpu=present:NoSchedule" in page
    assert (
        "4 nvidia.com/gpu are stranded: a pod needs at least 1 CPU and 1.0Gi memory beside a "
        "card, and the node has 1 CPU left. Most CPU is taken by training/tokenize (31)."
    ) in page
    links = {
        values.get("href")
        for tag, values in Outline(await text_of(state, "/nodes/h100-2")).elements
        if tag == "a"
    }
    assert {"/pods/training/tokenize", "/?namespace=training", "/doctor"} <= links
    hidden = View(state, Member("vision"))
    of_node = hidden.node(hidden.usage()[0], "h100-2")
    assert of_node is not None
    assert of_node.stranding is not None
    assert of_node.stranding.takers == ()
    document = json.loads(await text_of(state, "/nodes/h100-2", headers=JSON))
    assert document["taints"] == ["nvidia.com/gpu=present:NoSchedule"]
    assert "4 nvidia.com/gpu are stranded" in document["stranded"]
    assert "stranded:" not in Outline(await text_of(state, "/nodes/h100-1")).text


async def test_the_rows_of_doctor_are_on_the_page_and_at_their_node(state: ClusterState) -> None:
    doctor = Outline(await text_of(state, "/doctor"))
    sick = "Offer 7 of 8 nvidia.com/gpu: the others are not healthy"
    unlabelled = "Labelled as GPU nodes, and offer no GPU"
    assert sick in doctor.text
    assert unlabelled in doctor.text
    links = {values.get("href") for tag, values in doctor.elements if tag == "a"}
    assert {"/nodes/h100-2", "/nodes/h100-3"} <= links
    assert sick in Outline(await text_of(state, "/nodes/h100-2")).text
    without_cards = Outline(await text_of(state, "/nodes/h100-3")).text
    assert unlabelled in without_cards
    assert "so it offers no GPU there" in without_cards  # of the DaemonSet
    assert "The node offers no GPU." in without_cards
    assert sick not in Outline(await text_of(state, "/nodes/h100-1")).text
    document = json.loads(await text_of(state, "/doctor", headers=JSON))
    assert {row["state"] for row in document["rows"]} == {"ok", "wrong", "not known"}
    assert re.search(
        r"Doctor found \d+ wrong in this cluster", Outline(await text_of(state, "/")).text
    )


async def test_what_doctor_found_stays_with_its_age_until_it_looks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = gpu_node("a", {GPU: 8})
    broken["status"]["allocatable"][GPU] = "7"
    state = live_state([broken])
    now = 1000.0
    monkeypatch.setattr(state, "_monotonic", lambda: now)
    assert "wrong in this cluster" not in Outline(await text_of(state, "/")).text
    looked_at = datetime.datetime.now(tz=datetime.UTC) - datetime.timedelta(minutes=12)
    found = state.doctor()._replace(read_at=looked_at)
    monkeypatch.setattr(state, "_doctor", (now, found))
    now += 720
    text = Outline(await text_of(state, "/")).text
    assert re.search(r"Doctor found \d+ wrong in this cluster 12 min ago", text), text
    assert state.doctor().read_at > looked_at  # which waits for the look in the background
    assert re.search(r"wrong in this cluster \d+ s ago", Outline(await text_of(state, "/")).text)
    assert re.search(r"Doctor looked \d+ s ago", Outline(await text_of(state, "/nodes/a")).text)


async def test_doctor_looks_again_in_the_background_when_somebody_looks_at_the_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = gpu_node("a", {GPU: 8})
    broken["status"]["allocatable"][GPU] = "7"
    state = live_state([broken])
    now = 1000.0
    monkeypatch.setattr(state, "_monotonic", lambda: now)
    stale = state.doctor()
    now += 301
    assert state.known_doctor() is stale
    for _ in range(100):
        if state.known_doctor() is not stale:
            break
        await asyncio.sleep(0.05)
    assert state.known_doctor() is not stale
    # A look that fails keeps what was found, but not for longer than a day.
    monkeypatch.setattr(state, "_look_again", lambda: None)
    now += 86401
    assert state.known_doctor() is None
    assert "wrong in this cluster" not in Outline(await text_of(state, "/")).text


async def test_the_line_about_doctor_has_no_age_if_the_clock_has_stepped_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = gpu_node("a", {GPU: 8})
    broken["status"]["allocatable"][GPU] = "7"
    state = live_state([broken])
    later = datetime.datetime.now(tz=datetime.UTC) + datetime.timedelta(hours=1)
    found = state.doctor()._replace(read_at=later)
    monkeypatch.setattr(state, "_doctor", (time.monotonic(), found))
    text = Outline(await text_of(state, "/")).text
    assert re.search(r"Doctor finds \d+ wrong in this cluster\.", text), text
    assert "Doctor looked" not in Outline(await text_of(state, "/nodes/a")).text


def test_who_does_not_see_all_namespaces_does_not_see_what_doctor_finds() -> None:
    view = View(demo_state(), Member("vision"))
    assert view.doctor() is None
    assert view.known_doctor() is None


def test_the_labels_of_other_pods_are_read_where_they_decide_and_all_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What keeps a pod away may be of another namespace, whose pods not every viewer may see."""
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    term |= {"namespaceSelector": {}}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    waits = gpu_pod("waits", {"nvidia.com/gpu": 1}, phase="Pending", affinity=rule)
    labels = {"kubernetes.io/hostname": "a"}
    objects = [
        gpu_node("a", {"nvidia.com/gpu": 4}, labels=labels),
        on_a_node("in-the-way", "team-b"),
        waits,
    ]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    assert why(["waits", "-f", str(file), "-o", "json"]) == 1
    expected = json.loads(capsys.readouterr().out)
    state = live_state(objects)
    found = View(state, Everybody()).why("team-a", "waits")
    assert found is not None
    assert to_document(found) == expected
    assert "team-b/in-the-way" in str(found)
    hidden = View(state, Member("team-a")).why("team-a", "waits")
    assert hidden is not None
    assert hidden.answer is Answer.NOT_KNOWN
    assert "in-the-way" not in str(hidden)


def test_who_has_a_device_with_a_fault_is_named_to_those_who_may_see_the_pods() -> None:
    device = {"resourceID": "GPU-1", "health": "Unhealthy"}
    given = {"name": "nvidia.com/gpu", "resources": [device]}
    statuses = [{"name": "main", "allocatedResourcesStatus": [given]}]
    pods = [
        on_a_node(name, home, containerStatuses=statuses, startTime=f"2031-03-01T0{hour}:00:00Z")
        for hour, (name, home) in enumerate((("mine", "team-a"), ("theirs", "team-b")))
    ]
    state = live_state([gpu_node("a", {"nvidia.com/gpu": 4}), *pods])
    what = (
        "have the same device GPU-1 of a as nvidia.com/gpu since 2031-03-01T01:00:00Z: gpuward "
        "doctor says what to do"
    )
    sick = "has the unhealthy device GPU-1 of a as nvidia.com/gpu: gpuward doctor says what to do"
    assert View(state, Everybody()).usage()[1] == (
        f"pod team-a/mine, pod team-b/theirs {what}",
        f"pod team-a/mine {sick}",
        f"pod team-b/theirs {sick}",
    )
    assert View(state, Member("team-a")).usage()[1] == (
        f"pod team-a/mine, a pod in another namespace {what}",
        f"pod team-a/mine {sick}",
        f"a pod in another namespace {sick}",
    )


async def test_holders_are_ranked_within_one_resource() -> None:
    """A GiB and a card have no common unit, so none is above the other."""
    memory = "aliyun.com/gpu-mem"
    amounts = {
        "cards-8": (GPU, 8),
        "cards-2": (GPU, 2),
        "cards-1": (GPU, 1),
        "mem-95": (memory, 95),
        "mem-5": (memory, 5),
    }
    nodes = [gpu_node("a", {GPU: 16, memory: 128, "aliyun.com/gpu-count": 2})]
    pods = [
        gpu_pod("p", {resource: amount}, on="a", namespace=home)
        for home, (resource, amount) in amounts.items()
    ]
    state = live_state([*nodes, *pods])
    usage = View(state, Everybody()).usage()[0]

    def ranked(wanted: Filter) -> list[str]:
        return [row.namespace for row in gpus_page(usage, wanted).namespaces]

    cards, memories = ["cards-8", "cards-2", "cards-1"], ["mem-95", "mem-5"]
    assert ranked(Filter()) == cards
    assert ranked(Filter(resource=memory)) == memories
    assert ranked(Filter(resource="no such resource")) == cards
    exported = gpus_page(usage, Filter(), all_resources=True)
    assert [row.namespace for row in exported.namespaces] == [*cards, *memories]
    page = Outline(await text_of(state, f"/?resource={memory}"))
    links = [values for tag, values in page.elements if tag == "a" and "aria-current" in values]
    assert f"/?resource={quote(memory, safe='')}" in {link["href"] for link in links}
    assert "By owner aliyun.com/gpu-mem" in page.text
    assert "filtered" not in page.text


async def test_a_filter_hides_and_does_not_say_none(state: ClusterState) -> None:
    page = Outline(await text_of(state, "/?node=l40s-4")).text
    assert re.search(r"Totals\s+filtered: 1 of 12 nodes", page)
    assert re.search(r"filtered: 0 of 5 pods and claims\s+5 hidden by the filter", page)
    assert "and 11 nodes hidden by the filter" in page
    assert re.search(r"Without a GPU\s+2 hidden by the filter", page)
    assert "and 3 hidden by the filter" in page  # namespaces
    nothing = Outline(await text_of(state, "/?node=no-such-node")).text
    assert "12 nodes hidden by the filter" in nothing
    for text in (page, nothing):
        assert not re.search("No pod|No node|Nobody", text)
    assert "hidden" not in Outline(await text_of(state, "/")).text
    namespace = Outline(await text_of(state, "/findings?namespace=no-such-namespace")).text
    assert re.search(r"\d+ findings hidden by the filter", namespace)
    assert re.search(r"\d+ owners hidden by the filter", namespace)
    assert "Nobody" not in namespace
    rules = Outline(await text_of(state, "/rules?q=no+such+words")).text
    assert f"{len(RULE_BY_NAME)} rules hidden by the filter" in rules


async def test_room_for_new_pods_has_a_zero_where_there_is_none() -> None:
    labels = {"nvidia.com/gpu.product": "H100"}
    nodes = [
        gpu_node("a", {GPU: 8}, labels=labels),
        gpu_node("b", {GPU: 8}, labels=labels, spec={"unschedulable": True}),
        gpu_node("c", {GPU: 4}, labels={"nvidia.com/gpu.product": "A100"}),
    ]
    state = live_state([*nodes, gpu_pod("p", {GPU: 1}, on="a")])
    page = Outline(await text_of(state, "/")).text
    assert re.search(
        r"Pods with\s*1 card2 cards4 cards8 cards\s*"
        r"All models\s*11on 2 nodes\s*5on 2 nodes\s*2on 2 nodes\s*0\s*"
        r"A100\s*4on 1 node\s*2on 1 node\s*1on 1 node\s*0\s*"
        r"H100\s*7on 1 node\s*3on 1 node\s*1on 1 node\s*0\s",
        page,
    ), page
    assert re.search(r"Room for pods with\s+1 card: 7 on 1 node.*8 cards: 0", page)
    document = json.loads(await text_of(state, "/", headers=JSON))
    assert document["room"][3] == {"model": None, "cards": 8, "pods": 0, "nodes": 0}
    shared = live_state([gpu_node("t4", {"aliyun.com/gpu-mem": 15, "aliyun.com/gpu-count": 1})])
    assert "for new pods" not in Outline(await text_of(shared, "/")).text


async def test_teams_are_those_of_a_label_of_namespaces() -> None:
    by_team = live_state(demo_objects(), "demo cluster", team_label="team")
    document = json.loads(await text_of(by_team, "/", headers=JSON))
    language = dict.fromkeys(("research", "search", "training"), "language")
    assert document["teams"] == {**language, "vision": "vision"}
    page = Outline(await text_of(by_team, "/"))
    assert "By team" in page.text
    assert "language" in page.text
    namespaces = {
        consumer["namespace"]
        for consumer in json.loads(await text_of(by_team, "/?team=vision", headers=JSON))[
            "consumers"
        ]
    }
    assert namespaces == {"vision"}


async def test_without_a_label_there_are_no_teams(state: ClusterState) -> None:
    assert "By team" not in Outline(await text_of(state, "/")).text
    assert "teams" not in json.loads(await text_of(state, "/", headers=JSON))


async def test_a_rule_has_an_example_with_its_fix(state: ClusterState) -> None:
    page = Outline(await text_of(state, "/rules/request-only")).text
    for part in ("nvidia.com/gpu: 1", "deny at /spec/containers/0/resources", "+         limits:"):
        assert part in page
    example = json.loads(await text_of(state, "/rules/request-only", headers=JSON))["example"]
    assert example["manifest"].startswith("apiVersion: v1\nkind: Pod\n")
    assert "With the policy" in Outline(await text_of(state, "/rules/gpu-namespace")).text


async def test_findings_are_shown_by_day_where_audits_have_kept_them(
    state_of_today: tuple[ClusterState, datetime.datetime],
) -> None:
    state, now = state_of_today
    today = now.date()
    page = Outline(await text_of(state, "/findings")).text
    first = today - datetime.timedelta(days=29)
    assert f"errors: 11 on {first}, 3 on {today}" in page
    days = json.loads(await text_of(state, "/findings", headers=JSON))["trend"]
    assert days[-1] == {"date": str(today), "errors": 3, "warnings": 5}
    # The days are those of the whole cluster, whatever else is chosen.
    assert str(first) not in await text_of(state, "/findings?namespace=vision")
    assert "No audit has been kept yet" in await text_of(live_state([]), "/findings")


async def test_the_days_are_shown_if_one_of_both_kinds_of_reports_can_be_read(
    state_of_today: tuple[ClusterState, datetime.datetime], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, now = state_of_today
    report = next(raw for raw in demo_objects(now) if raw["metadata"]["name"] == "gpuward-trend")
    readable = {"clusterreports": report}

    def get(_store: ObjectStore, resource: Resource, _namespace: str, _name: str) -> Any:
        if resource.name in readable:
            return readable[resource.name]
        raise SourceError(f"cannot get {resource.name}")

    monkeypatch.setattr(ObjectStore, "get", get)
    first = now.date() - datetime.timedelta(days=29)
    assert f"errors: 11 on {first}" in await text_of(state, "/findings")
    readable.clear()
    page = await text_of(demo_state(), "/findings")
    assert "Not known: cannot get clusterpolicyreports" in page


async def test_filters_leave_out_what_does_not_fit(state: ClusterState) -> None:
    async def nodes(query: str) -> set[str]:
        document = json.loads(await text_of(state, f"/?{query}", headers=JSON))
        return {node["name"] for node in document["nodes"]}

    assert await nodes("model=Tesla-T4") == {"t4-1"}
    assert await nodes("state=stranded") == {"h100-2", "l40s-4"}
    assert await nodes("namespace=search") == {"l40s-6"}
    assert await nodes("node=l40s&state=unavailable") == {"l40s-5"}
    assert await nodes("node=no-such-node") == set()


@pytest.mark.parametrize(
    "query", ["page=0", "page=-1", "page=x", "page=99999999999", "page=٣", "state=bogus", "a=b"]
)
async def test_an_odd_query_is_no_error(state: ClusterState, query: str) -> None:
    await text_of(state, f"/?{query}")
    await text_of(state, f"/findings?{query}")
    await text_of(state, f"/decisions?{query}")


@pytest.mark.parametrize(
    "path", ["/nodes/none", "/pods/vision/none", "/rules/none", "/findings/none", "/none"]
)
async def test_what_is_not_there_is_said(state: ClusterState, path: str) -> None:
    async with client_of(state) as client:
        answer = await client.get(path)
        assert answer.status == 404
        assert "Error 404" in await answer.text()
        as_json = await client.get(path, headers=JSON)
        assert "error" in await as_json.json()


@pytest.mark.parametrize("path", [*PAGES, "/static/console.css", "/none", "/healthz"])
async def test_every_answer_limits_what_browsers_may_do(state: ClusterState, path: str) -> None:
    async with client_of(state) as client:
        headers = (await client.get(path)).headers
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cache-Control"] == "no-store"
    assert "Set-Cookie" not in headers


async def test_a_name_that_leads_here_is_not_answered(state: ClusterState) -> None:
    """As where a site has a name of its own lead to the loopback address."""
    async with client_of(state) as client:
        answer = await client.get("/", headers={"Host": "evil.example:8088"})
        assert answer.status == 421
        assert "h100" not in await answer.text()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_other_sites_cannot_send_manifests(
    state: ClusterState, headers: dict[str, str]
) -> None:
    async with client_of(state) as client:
        answer = await client.post("/playground", data={"manifest": "a: 1"}, headers=headers)
        assert answer.status == 403


async def test_only_reading_is_possible(state: ClusterState) -> None:
    async with client_of(state) as client:
        for path in ("/", "/findings", "/pods/vision/annotate"):
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                assert (await client.request(method, path)).status == 405


def hostile_cluster() -> list[Any]:
    """A cluster in which every text that a user may choose is hostile."""
    metadata = {"labels": {"nvidia.com/gpu.product": HOSTILE}}
    amounts = {"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "4"}
    exception = {
        "apiVersion": "gpuward.io/v1alpha1",
        "kind": "GpuException",
        "metadata": {"name": HOSTILE, "namespace": HOSTILE},
        "spec": {"rules": [HOSTILE] * 500, "reason": HOSTILE, "expires": HOSTILE},
        "status": {"conditions": [{"type": "Accepted", "reason": HOSTILE}]},
    }
    registered = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": HOSTILE},
        "webhooks": [{"name": f"{HOSTILE}.gpuward.io", "failurePolicy": HOSTILE}],
    }
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOSTILE}}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": HOSTILE, **metadata},
        "spec": {"taints": [{"key": HOSTILE, "value": HOSTILE, "effect": "NoSchedule"}]},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
    owner = {"apiVersion": "v1", "kind": HOSTILE[:80], "name": HOSTILE[:200], "controller": True}
    container = {
        "name": HOSTILE,
        "image": HOSTILE,
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": HOSTILE}],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    pods: list[Any] = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{HOSTILE}{number}",
                "namespace": HOSTILE,
                "uid": str(number),
                "ownerReferences": [owner],
            },
            "spec": {"nodeName": bound, "nodeSelector": {HOSTILE: HOSTILE}}
            | {"containers": [container], "schedulerName": HOSTILE}
            | {"schedulingGates": [] if bound else [{"name": HOSTILE}]},
            "status": {
                "phase": "Running" if bound else "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "message": HOSTILE}],
            },
        }
        for number, bound in enumerate((HOSTILE, ""))
    ]
    idle = copy.deepcopy(pods[0])
    idle["metadata"]["name"] = f"{HOSTILE}2"
    del idle["spec"]["containers"][0]["resources"]
    return [node, home, registered, exception, idle, *pods]


def hostile_log() -> str:
    """The log of a webhook in which every text is hostile, and lines that are none."""
    reason = {"rule": HOSTILE, "container": HOSTILE, "path": HOSTILE}
    names = ("time", "namespace", "kind", "name", "owner_kind", "owner_name", "user", "mode")
    decision: dict[str, Any] = {**dict.fromkeys(names, HOSTILE), "uid": "1", "event": "denied"}
    decision |= {"reasons": [reason] * 100, "rules": {HOSTILE: HOSTILE}, "failures": [HOSTILE]}
    odd = {"uid": "2", "event": "fixed", "reasons": {"a": 1}, "rules": [], "failures": 7}
    refused = {"event": "policy refused", "error": HOSTILE}
    certificate = {"event": "certificate loaded", "not_after": HOSTILE}
    lines = [
        *map(json.dumps, (decision, odd, refused, certificate)),
        "{",
        "[]",
        "{" * 9_000,
        HOSTILE,
    ]
    return "\n".join(lines)


def hostile_pages() -> Iterator[tuple[str, str]]:
    from console.rendering import address  # noqa: PLC0415

    yield "GET", "/"
    yield "GET", address("", model=HOSTILE[:253], namespace=HOSTILE[:253], node="x")
    yield "GET", address("nodes", HOSTILE)
    yield "GET", address("pods", HOSTILE, f"{HOSTILE}1")
    yield "GET", address("pods", HOSTILE, HOSTILE)
    yield "GET", address("findings", level="note")
    yield "GET", address("findings", level="note", rule=HOSTILE, owner=HOSTILE, namespace=HOSTILE)
    yield "GET", address("findings", HOSTILE)
    yield "GET", address("owners", level="note")
    yield "GET", address("owners", level="note", format=HOSTILE)
    yield "GET", address("decisions")
    yield "GET", address("decisions", namespace=HOSTILE, rule=HOSTILE, outcome=HOSTILE)
    yield "GET", address("rules", q=HOSTILE)
    yield "GET", address("rules", HOSTILE)
    yield "POST", "/playground"


@pytest.fixture(scope="module")
def hostile() -> ClusterState:
    state = live_state(hostile_cluster())
    state.decision_log.take(HOSTILE, hostile_log())
    return state


@pytest.mark.parametrize(("method", "path"), [*hostile_pages()], ids=lambda one: str(one)[:40])
async def test_hostile_texts_stay_texts(hostile: ClusterState, method: str, path: str) -> None:
    async with client_of(hostile) as client:
        manifest = yaml.safe_dump_all(hostile_cluster()) if method == "POST" else ""
        data = {"manifest": manifest, "namespace": HOSTILE} if manifest else None
        answer = await client.request(method, path, data=data)
        text = await answer.text()
    assert answer.status in {200, 404}, text
    page = Outline(text)
    assert (page.count("script"), page.count("img"), page.count("title") > 0) == (1, 0, True)
    names = {name for _, attributes in page.elements for name in attributes}
    assert not {name for name in names if name.startswith("on") or name == "style"}
    assert not HARMFUL.search(text)
    assert "603729" not in page.text  # what the template in it would say


async def test_each_finding_shows_hostile_texts_as_texts() -> None:
    state = live_state(hostile_cluster())
    found = json.loads(await text_of(state, "/findings?level=note", headers=JSON))["findings"]
    assert found
    for one in found:
        text = await text_of(state, f"/findings/{one['fingerprint']}")
        assert not HARMFUL.search(text)
        assert Outline(text).count("script") == 1


async def test_values_of_variables_are_not_shown() -> None:
    pod = next(raw for raw in demo_objects() if raw["metadata"]["name"] == "pretrain-big")
    container = pod["spec"]["containers"][0]
    container["env"] = [{"name": "DB_PASSWORD", "value": "s3cr3t"}]
    annotation = {"kubectl.kubernetes.io/last-applied-configuration": "s3cr3t"}
    pod["metadata"]["annotations"] = annotation
    state = live_state([pod])
    found = json.loads(await text_of(state, "/findings?level=note", headers=JSON))["findings"]
    fixable = [one for one in found if one["fixable"]]
    assert fixable
    for one in fixable:
        for headers in ({}, JSON):
            text = await text_of(state, f"/findings/{one['fingerprint']}", headers=headers)
            assert "s3cr3t" not in text
        document = json.loads(text)
        assert document["diff"], document
    for path in ("/", "/pods/training/pretrain-big"):
        assert "s3cr3t" not in await text_of(state, path)


BYPASS = """\
apiVersion: v1
kind: Pod
metadata: {name: taker, namespace: ml}
spec:
  containers:
    - name: main
      image: example.com/app:1
      env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]
"""


async def test_the_playground_answers_as_the_webhook_does(state: ClusterState) -> None:
    async with client_of(state) as client:
        for mode, allowed in (("deny", False), ("warn", True), ("audit", True)):
            form = {"manifest": BYPASS, "mode": mode}
            answer = await client.post("/playground", data=form, headers=JSON)
            (admission,) = (await answer.json())["admissions"]
            assert admission["allowed"] is allowed, admission
        assert answer.status == 200
        form = {"manifest": BYPASS}
        refused = await (await client.post("/playground", data=form, headers=JSON)).json()
    (admission,) = refused["admissions"]
    assert 'webhook "deny.gpuward.io" denied the request: gpuward [visible' in admission["message"]
    (finding,) = [one for one in refused["findings"] if one["level"] == "error"]
    assert (finding["rule"], finding["line"], finding["column"]) == ("visible-devices-env", 8, 51)


PLACED = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: serve, namespace: vision}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-L40S}
      tolerations: [{key: dedicated, operator: Exists}]
      containers:
        - {name: main, image: i, resources: {limits: {cpu: "1", nvidia.com/gpu: COUNT}}}
"""


async def test_the_playground_says_where_pods_would_run(state: ClusterState) -> None:
    async with client_of(state) as client:
        verdicts = {}
        for count in ("1", "64"):
            form = {"manifest": PLACED.replace("COUNT", count)}
            answer = await client.post("/playground", data=form, headers=JSON)
            (verdicts[count],) = (await answer.json())["placements"]
        fitting = verdicts["1"]["fitting"]
        assert {name.partition("-")[0] for name in fitting} == {"l40s"}
        assert verdicts["64"]["fitting"] == []
        assert (verdicts["1"]["namespace"], verdicts["1"]["name"]) == ("vision", "serve")
        page = await (await client.post("/playground", data=form)).text()
        assert "Where it would run" in page
        many = "---\n".join(PLACED.replace("COUNT", "1") for _ in range(9))
        answer = await client.post("/playground", data={"manifest": many}, headers=JSON)
        assert len((await answer.json())["placements"]) == 3


CLAIMING = """\
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: vision}
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]
  containers: [{name: main, image: i, resources: {claims: [{name: gpu}]}}]
"""
TEMPLATE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu, namespace: vision}
spec:
  spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}
"""


async def test_the_playground_reads_templates_of_claims_beside_their_pods(
    state: ClusterState,
) -> None:
    unread = "what its claim gpu asks for"
    elsewhere = TEMPLATE.replace("vision", "web")
    async with client_of(state) as client:
        for manifest, is_unread in (
            (CLAIMING, True),
            (f"{TEMPLATE}---\n{CLAIMING}", False),
            (f"{CLAIMING}---\n{elsewhere}", True),
        ):
            answer = await client.post("/playground", data={"manifest": manifest}, headers=JSON)
            (placed,) = (await answer.json())["placements"]
            assert (unread in placed["unchecked"]) is is_unread


async def test_the_playground_opens_with_an_example_and_has_a_menu_of_ten(
    state: ClusterState,
) -> None:
    page = Outline(await text_of(state, "/playground"))
    options = [values for tag, values in page.elements if tag == "option"]
    names = [one["value"] for one in options if one.get("value") in _names_of_examples()]
    assert len(names) == len({*names}) == 10
    assert "name: notebook" in page.text
    assert 'webhook "deny.gpuward.io" denied the request' in page.text
    assert "After the fixes" in page.text
    assert "Where it would run" in page.text
    for name in names[:-1]:
        shown = Outline(await text_of(state, f"/playground?example={name}")).text
        assert re.search(r"Findings\s+\d+ errors?, \d+ warnings?, \d+ notes?", shown), name
        assert "0 errors, 0 warnings, 0 notes" not in shown, name
        assert "not evaluated" not in shown, name
    clean = Outline(await text_of(state, f"/playground?example={names[-1]}")).text
    assert "0 errors, 0 warnings, 0 notes" in clean
    assert re.search(r"\d nodes can take it", clean)


def _names_of_examples() -> set[str]:
    return {one.name for one in playground_examples()}


@pytest.mark.parametrize("name", sorted({*_names_of_examples()} - {"notebook", "quota", "claim"}))
async def test_the_playground_says_what_happens_to_the_pods_of_any_workload(
    state: ClusterState, name: str
) -> None:
    text = next(one.text for one in playground_examples() if one.name == name)
    (raw,) = yaml.safe_load_all(text)
    bypass = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    data = json.loads(
        re.sub(r'"env": \[.*?\], ', "", json.dumps(raw)).replace(
            '"containers": [{', f'"containers": [{{"env": [{json.dumps(bypass)}], '
        )
    )
    async with client_of(state) as client:
        form = {"manifest": yaml.safe_dump(data)}
        document = await (await client.post("/playground", data=form, headers=JSON)).json()
    workload, *pods = document["admissions"]
    assert workload["allowed"]
    assert pods
    for one in pods:
        assert one["object"] == f"pods of {workload['object']}, by its template"
        assert "visible-devices-env" in json.dumps(one)
    assert document["placements"]


async def test_the_playground_bounds_what_it_reads(state: ClusterState) -> None:
    async with client_of(state) as client:
        long = await client.post("/playground", data={"manifest": "x" * 200_001})
        assert long.status == 413
        body = io.BytesIO(b"manifest=" + b"x" * 2_000_000)
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        longer = await client.post("/playground", data=body, headers=form)
        assert longer.status == 413
        bomb = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n"
            for n in range(9)
        )
        answer = await client.post("/playground", data={"manifest": bomb}, headers=JSON)
        (problem, *_) = (await answer.json())["problems"]
        assert problem["message"].startswith("not evaluated")


async def test_a_list_to_send_says_what_each_owner_has_to_change(state: ClusterState) -> None:
    text = await text_of(state, "/owners?namespace=search&level=note&format=text")
    assert text.startswith("Job embed in search:\n  - ")
    assert "Pod peek in search:\n" in text
    assert 'visible-devices-env: container "main" sets' in text
    assert "vision" not in text
    markdown = await text_of(state, "/owners?namespace=search&format=markdown")
    assert "### `Pod peek` in `search`\n\n- [ ] **error** `visible-devices-env`" in markdown
    content = await text_of(state, "/owners?rule=visible-devices-env&format=csv")
    rows = csv.DictReader(io.StringIO(content))
    (row,) = [row for row in rows if row["namespace"] == "search"]
    assert (row["owner"], row["level"], row["container"]) == (
        "Pod peek",
        "error",
        'container "main"',
    )
    assert row["field"] == "/spec/containers/0/env/0/value"
    refused = await text_of(state, "/owners?as=deny&format=text")
    assert "Pod peek in search" in refused
    assert "toleration-default" in await text_of(state, "/owners?level=note&format=text")
    assert "toleration-default" not in refused
    assert await text_of(state, "/owners?rule=none&format=text") == "No finding fits the filter.\n"


FORMULA = "=cmd|' /C calc'!A0"


async def test_a_list_to_send_has_no_formulas_and_no_markup() -> None:
    objects = hostile_cluster()
    for pod, kind in zip(objects[-2:], (FORMULA, "``[x](http://evil.example)`"), strict=True):
        owner = {"apiVersion": "v1", "kind": kind, "name": "x", "controller": True}
        pod["metadata"]["ownerReferences"] = [owner]
    state = live_state(objects)
    content = await text_of(state, "/owners?level=note&format=csv")
    cells = [cell for row in csv.reader(io.StringIO(content)) for cell in row]
    assert f"'{FORMULA} x" in cells
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]
    markdown = await text_of(state, "/owners?level=note&format=markdown")
    assert "### ``` ``[x](http://evil.example)` x ``` in" in markdown
    for text in (content, markdown, await text_of(state, "/owners?level=note&format=text")):
        assert not HARMFUL.search(text.replace("\r\n", "\n"))


async def test_decisions_are_filtered_by_what_they_are_about(state: ClusterState) -> None:
    async def names(query: str) -> list[str]:
        document = json.loads(await text_of(state, f"/decisions?{query}", headers=JSON))
        return [one["name"] for one in document["decisions"]]

    assert await names("") == [
        *("fractions", "notebook-6c9d4-…", "nccl-test-1", "debug", "finetune-…", "peek")
    ]
    assert await names("outcome=denied") == ["notebook-6c9d4-…", "debug"]
    assert await names("namespace=vision&outcome=fixed") == ["finetune-…"]
    assert await names("rule=visible-devices-env") == ["notebook-6c9d4-…", "peek"]
    page = await text_of(state, "/decisions?rule=no-such-rule")
    assert "6 decisions hidden by the filter" in page


async def test_the_state_of_the_webhook_is_on_the_page(
    state_of_today: tuple[ClusterState, datetime.datetime],
) -> None:
    state, now = state_of_today
    page = Outline(await text_of(state, "/decisions")).text
    assert "pods are admitted without evaluation (failurePolicy Ignore)" in page
    assert "ae2dd0693b6b" in page
    # The day on which the certificate of demo.log ends depends on the time of the day.
    assert f"until {moved('2027-02-14T06:00:00Z', now)[:10]}" in page
    assert "50 days left" in page  # of the exception
    assert not re.search("ends soon|No webhook", page)
    modes = json.loads(await text_of(state, "/decisions", headers=JSON))["modes"]
    assert modes == {
        "kube-system": None,
        "research": "warn",
        "search": "warn",
        "training": "deny",
        "vision": "deny",
    }


async def test_what_is_wrong_with_the_webhook_is_said_first() -> None:
    state = live_state([])
    days = (datetime.datetime.now(tz=datetime.UTC) + datetime.timedelta(days=5)).date()
    for pod, digest in (("a", "1" * 64), ("b", "2" * 64)):
        lines = [
            {"event": "starting", "version": "0.1.0"},
            {"event": "policy loaded", "digest": digest},
            {"event": "certificate loaded", "not_after": f"{days}T00:00:00+00:00"},
            {"event": "policy refused", "error": "line 3: no such rule"},
        ]
        state.decision_log.take(pod, "\n".join(map(json.dumps, lines)))
    page = Outline(await text_of(state, "/decisions")).text
    assert "No webhook of gpuward is registered" in page
    assert "The pods of the webhook have different policies" in page
    assert "In a: policy refused: line 3: no such rule" in page
    assert "A certificate ends soon" in page
    assert "5 days left" in page


async def test_as_many_decisions_are_kept_as_the_bound_says() -> None:
    state = live_state([])
    for part in range(3):
        lines = [
            {"uid": f"{part}-{n}", "event": "denied", "name": "x", "time": f"{part}{n:04}"}
            for n in range(700)
        ]
        text = "\n".join(map(json.dumps, lines))
        state.decision_log.take("a", text)
        state.decision_log.take("a", text)  # as the log is read again
    found = json.loads(await text_of(state, "/decisions", headers=JSON))["decisions"]
    assert len(found) == MAX_DECISIONS
    assert found[0]["time"] == "20699"
    assert found[-1]["time"] == "10400"


async def test_an_empty_cluster_says_so() -> None:
    page = await text_of(live_state([]), "/")
    assert "No node offers GPUs, and no pod asks for any." in page
    assert "Nothing found." in await text_of(live_state([]), "/findings")


async def test_nothing_is_known_before_the_first_list() -> None:
    from cluster.source.store import ObjectStore  # noqa: PLC0415
    from policies.loading import default_policy  # noqa: PLC0415

    state = ClusterState("slow cluster", ObjectStore(), default_policy())
    async with client_of(state) as client:
        answer = await client.get("/")
        assert answer.status == 503
        assert "not listed yet" in await answer.text()
