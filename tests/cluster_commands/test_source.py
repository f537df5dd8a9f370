"""Tests of where the commands get their objects."""

from __future__ import annotations

import argparse
import datetime
import io
import json
import socket
import subprocess
import sys
import threading
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.api.connection import Connection
from cluster.api.errors import error_of
from cluster.source import api_server as module
from cluster.source.api_server import ApiServerSource
from cluster.source.files import FileSource
from cluster.source.objects import MissingRightError, NotServedError, Resource, SourceError
from cluster.source.options import add_options, open_source
from cluster.source.store import ObjectStore
from tests.testkit.cluster_commands.paged_server import Fault, Listed, PagedServer, paged_server
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import PATIENCE, eventually
from tests.testkit.control_plane.rights import await_rights

PODS = Resource("pods", "Pod")
NODES = Resource("nodes", "Node", is_namespaced=False)
COUNT = 1000
EXPIRED = Fault(410, body={"message": "too old", "metadata": {"continue": "250"}})


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return parser.parse_args(arguments)


def make_pod(number: int, size: int = 0) -> dict[str, Any]:
    return {"metadata": {"namespace": "a", "name": f"p{number:06}"}, "spec": {"x": "x" * size}}


def source_of(served: PagedServer, folder: Path, waits: list[float]) -> ApiServerSource:
    return ApiServerSource(Connection.like_kubectl(served.kubeconfig(folder)), waits.append)


@pytest.mark.parametrize(
    ("faults", "waits"),
    [
        ({}, []),
        ({1: Fault(0), 2: Fault(0)}, [1, 2]),  # the connection breaks twice
        ({0: Fault(429, {"Retry-After": "7"}), 2: Fault(503)}, [7, 1]),
        ({0: Fault(429, {"Retry-After": "86400"})}, [60]),
        ({1: EXPIRED}, []),  # goes on with the state of now
        ({2: Fault(410), 4: Fault(410)}, []),  # begins again, twice
    ],
)
def test_each_object_is_listed_once_whatever_happens(
    faults: dict[int, Fault], waits: list[float], tmp_path: Path
) -> None:
    waited: list[float] = []
    with paged_server({"/api/v1/pods": Listed(COUNT, make_pod)}, faults) as served:
        found = [*source_of(served, tmp_path, waited).list(PODS)]
    assert [item["metadata"]["name"] for item in found] == [f"p{n:06}" for n in range(COUNT)]
    assert (found[0]["apiVersion"], found[0]["kind"]) == ("v1", "Pod")
    assert waited == waits
    assert len(served.requests) == COUNT // 250 + len(faults) + (2 + 1 if 4 in faults else 0)


def test_a_path_that_is_not_served_says_what_may_be_missing() -> None:
    """API servers answer with plain text, and no Status, if a kind has no definition."""
    error = error_of("GET /apis/gpuward.io/v1alpha1/gpuexceptions: 404", 404, {}, "")
    assert str(error).endswith("does not serve this: is the CustomResourceDefinition installed?")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault(503), "503 without a message"),
        (Fault(0), "the connection was closed before the whole answer came"),
        (Fault(401, body={"message": "Unauthorized"}), "401 Unauthorized"),
        (Fault(410), "410 without a message"),
        (Fault(200, body={}), None),  # no items: an empty list
    ],
)
def test_an_api_server_that_goes_away_is_an_error(
    fault: Fault, message: str | None, tmp_path: Path
) -> None:
    listed = {"/api/v1/pods": Listed(COUNT, make_pod)}
    with paged_server(listed, dict.fromkeys(range(2, 99), fault)) as served:
        source = source_of(served, tmp_path, [])
        if message is None:
            assert len([*source.list(PODS)]) == 500
            return
        with pytest.raises(SourceError, match=f"^cannot list pods: .*{message}") as raised:
            list(source.list(PODS))
    assert "\n" not in str(raised.value)
    assert len(served.requests) < 10


def test_an_api_server_that_never_answers_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.api.connection._SECONDS", 0.05)
    served = PagedServer({}, {})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        served.url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        give_up = threading.Timer(60, silent.shutdown, (socket.SHUT_RDWR,))
        give_up.start()
        try:
            with pytest.raises(SourceError, match="cannot list pods") as raised:
                list(source_of(served, tmp_path, []).list(PODS))
        finally:
            give_up.cancel()
    assert str(raised.value).endswith(": no answer in time")


@pytest.mark.parametrize("status", [404, 403])
def test_replicas_that_differ_are_an_error_and_list_nothing_twice(
    status: int, tmp_path: Path
) -> None:
    claims = Resource("claims", "Claim", "x.example", ("v2", "v1"))
    listed = {
        f"/apis/x.example/{version}/claims": Listed(COUNT, make_pod) for version in ("v1", "v2")
    }
    with paged_server(listed, {1: Fault(status, body={"message": "not I"})}) as served:
        found = source_of(served, tmp_path, []).list(claims)
        assert len([next(found) for _ in range(250)]) == 250
        with pytest.raises(SourceError, match="not I") as raised:
            next(found)
    # It says neither that no API server serves them, nor that a right is missing.
    assert not isinstance(raised.value, MissingRightError | NotServedError)


@pytest.mark.parametrize(
    ("served_paths", "error"),
    [
        ((), NotServedError),
        (("/apis/x.example/v1/others",), NotServedError),
        (("/apis/x.example/v1/claims",), MissingRightError),
    ],
)
def test_a_right_is_missing_only_to_what_there_is(
    served_paths: tuple[str, ...], error: type[SourceError], tmp_path: Path
) -> None:
    """An API server answers 403 before it looks whether there is such a resource."""
    claims = Resource("claims", "Claim", "x.example", ("v1",))
    listed = {path: Listed(1, make_pod) for path in served_paths}
    refused = Fault(403, body={"message": "no"})
    with paged_server(listed, {0: refused}) as served, pytest.raises(error):
        list(source_of(served, tmp_path, []).list(claims))


def test_pages_of_huge_objects_are_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 100_000)
    listed = {"/api/v1/pods": Listed(100, lambda number: make_pod(number, 5000))}
    with paged_server(listed) as served:
        assert len([*source_of(served, tmp_path, []).list(PODS)]) == 100
        monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 5000)
        with pytest.raises(SourceError, match=r"cannot list pods: .* more than 5000 bytes"):
            list(source_of(served, tmp_path, []).list(PODS))
    assert {request["limit"] for request in served.requests} >= {"250", "62", "15", "1"}


def test_pages_seldom_grow_in_vain_where_all_objects_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 100_000)
    listed = {"/api/v1/pods": Listed(3000, lambda number: make_pod(number, 500))}
    with paged_server(listed) as served:
        assert len([*source_of(served, tmp_path, []).list(PODS)]) == 3000
    # A page that was too large is asked for again, with the same token.
    tokens = [request.get("continue") for request in served.requests]
    assert len(tokens) - len(set(tokens)) <= len(set(tokens)) / 5


def test_pages_grow_again_after_huge_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 100_000)
    listed = {
        "/api/v1/pods": Listed(1000, lambda number: make_pod(number, 50_000 if number < 4 else 0))
    }
    with paged_server(listed) as served:
        assert len([*source_of(served, tmp_path, []).list(PODS)]) == 1000
    # Without growth they would be about 1,000; five pages were too large, one of them after growth.
    assert len(served.requests) < 25
    assert served.requests[-1]["limit"] == "250"


# A process that is started has the peak of `getrusage` from the one that starts it, not VmHWM.
_LISTING = """\
import re, sys
from cluster.api.connection import Connection
from cluster.source.api_server import ApiServerSource
from cluster.source.objects import CLAIMS
source = ApiServerSource(Connection.like_kubectl(sys.argv[1]))
listed = sum(1 for _ in source.list(CLAIMS))
with open("/proc/self/status") as status:
    print(listed, re.search(r"VmHWM:\\s*(\\d+) kB", status.read())[1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc/self/status")
def test_objects_full_of_labels_do_not_fill_the_memory_of_a_controller(tmp_path: Path) -> None:
    @cache
    def make_claim(number: int) -> dict[str, Any]:
        labels = {f"{number:x}-{label:x}": "" for label in range(100_000)}
        return {"metadata": {"namespace": "a", "name": f"c{number:06}", "labels": labels}}

    with paged_server(
        {"/apis/resource.k8s.io/v1/resourceclaims": Listed(16, make_claim)}
    ) as served:
        done = subprocess.run(
            [sys.executable, "-c", _LISTING, served.kubeconfig(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60 * PATIENCE,
        )
    listed, kilobytes = map(int, done.stdout.split())
    assert listed == 16
    # The least memory of a component that lists is 256 MiB.
    assert kilobytes < 256 << 10


WHOLE: dict[str, Any] = {
    "current-context": "x",
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "x"}}],
}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "Expected key current-context in "),
        ([], "a part of the kubeconfig file is missing or has another type"),
        (WHOLE | {"contexts": []}, "Expected object with name x in "),
        (WHOLE | {"clusters": [{"name": "c"}]}, "Expected key cluster in "),
        (WHOLE | {"clusters": [{"name": "c", "cluster": {}}]}, "the cluster's server is no addr"),
        (WHOLE, "connection refused"),  # and so it is not waited for
    ],
)
def test_half_a_kubeconfig_is_an_error_that_says_what_is_missing(
    content: object, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "config"
    file.write_text(json.dumps(content), encoding="utf-8")
    options = parse("--kubeconfig", str(file))
    with pytest.raises(SourceError, match=message):
        list(open_source(options).list(PODS))


def test_files_give_what_a_cluster_gives(tmp_path: Path) -> None:
    pods = [{"apiVersion": "v1", "kind": "Pod", **make_pod(number)} for number in range(3)]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    (tmp_path / "list.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [pods[0], node]})
    )
    (tmp_path / "typed.json").write_text(  # as an API server answers: the items have no kind
        json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [make_pod(1)]})
    )
    (tmp_path / "pod.yaml").write_text(f"---\n{json.dumps(pods[2])}\n---\n# nothing\n")
    by_path = FileSource([str(tmp_path)], io.BytesIO())
    by_stdin = FileSource(["-"], io.BytesIO(json.dumps({"kind": "List", "items": pods}).encode()))
    for source in (by_path, by_stdin):
        for namespace in (None, "a"):
            found = source.list(PODS, namespace)
            assert sorted(found, key=lambda pod: str(pod["metadata"]["name"])) == pods
        assert [*source.list(PODS, "b")] == []
    assert [*by_path.list(NODES)] == [node]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", r"bad.yaml:1:5: "),
        ("{" * 9, r"bad.yaml:1:"),
        (None, "bad.yaml does not exist"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_with_its_place(
    text: str | None, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "bad.yaml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(SourceError, match=message):
        list(open_source(parse("-f", str(file))).list(PODS))


def test_a_real_api_server_lists_the_same(api_server: Cluster, tmp_path: Path) -> None:
    namespaces = [api_server.namespace() for _ in range(2)]
    names = [f"pod-{number}" for number in range(7)]
    for namespace in namespaces:
        for name in names:
            spec = {"containers": [{"name": "main", "image": "example/x"}]}
            path = f"/api/v1/namespaces/{namespace}/pods"
            metadata = {"name": name, "labels": {"test": "listing"}}
            api_server.create(path, {"metadata": metadata, "spec": spec})
    source = open_source(parse("--kubeconfig", str(api_server.kubeconfig)))
    assert isinstance(source, ApiServerSource)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_PAGE", 4)
        patched.setattr(
            module, "MAX_ANSWER_BYTES", 9_000
        )  # so that pages become smaller on the way
        found = [*source.list(PODS, namespaces[0])]
        # Not the pods of other tests: one of those may be larger than the bound
        everywhere = [*source.list(PODS, labels="test=listing")]
    command = ("get", "pods", "-A", "-l", "test=listing", "-o", "json")
    written = json.loads(api_server.kubectl(*command).stdout)["items"]
    places = [(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in everywhere]
    assert places == [(p["metadata"]["namespace"], p["metadata"]["name"]) for p in written]
    assert [pod["metadata"]["name"] for pod in found] == names
    assert (found[0]["apiVersion"], found[0]["kind"]) == ("v1", "Pod")
    # What the account must not see, and what this API server does not know
    account = "/api/v1/namespaces/default/serviceaccounts"
    api_server.create(account, {"metadata": {"name": f"blind-{namespaces[0]}"}})
    kubeconfig = api_server.kubeconfig_for(api_server.token(f"blind-{namespaces[0]}", "default"))
    blind = open_source(parse("--kubeconfig", str(kubeconfig)))
    with pytest.raises(MissingRightError, match=r"it needs the right to list nodes$"):
        list(blind.list(NODES))
    with pytest.raises(MissingRightError, match=r"right to list pods in namespace default$"):
        list(blind.list(PODS, "default"))
    with pytest.raises(NotServedError, match=r"does not serve this resource$"):
        list(source.list(Resource("workflows", "Workflow", "argoproj.io", ("v1alpha1",))))
    # With the rights of the user as whom the kubeconfig acts, as kubectl
    acting = yaml.safe_load(api_server.kubeconfig.read_text())
    acting["users"][0]["user"] |= {"as": "żółć", "as-groups": ["viewers", "Prüfer"]}
    file = tmp_path / "acting.kubeconfig"
    file.write_text(json.dumps(acting))
    with pytest.raises(MissingRightError):
        list(open_source(parse("--kubeconfig", str(file))).list(NODES))
    role = ("--clusterrole=view", "--group=Prüfer", "-n", namespaces[0])
    api_server.kubectl("create", "rolebinding", "auditors", *role)
    await_rights(api_server)
    acts = open_source(parse("--kubeconfig", str(file)))
    assert len([*acts.list(PODS, namespaces[0])]) == len(names)
    old_first = Resource("jobs", "Job", "batch", ("v0", "v1"))
    assert [*source.list(old_first)] == []


def test_a_kind_is_listed_in_the_first_version_that_has_it(tmp_path: Path) -> None:
    group = "/apis/example.com"
    listed = {
        f"{group}/v1/widgets": Listed(1, make_pod, "Widget"),
        f"{group}/v1beta1/widgets": Listed(1, make_pod, "Widget"),
        f"{group}/v1beta1/gadgets": Listed(1, make_pod, "Gadget"),
        f"{group}/v1alpha1/gadgets": Listed(1, make_pod, "Gadget"),
    }
    wanted = {"example.com": ("gadgets", "widgets", "gizmos"), "absent.com": ("widgets",)}
    errors: list[SourceError] = []
    with paged_server(listed) as served:
        source = source_of(served, tmp_path, [])
        found = [*source.list_all(wanted, None, errors.append)]
    versions = [(raw["kind"], raw["apiVersion"].rpartition("/")[2]) for raw in found]
    assert (versions, errors) == ([("Gadget", "v1beta1"), ("Widget", "v1")], [])


def test_a_real_group_prefers_a_version_that_not_every_kind_has(api_server: Cluster) -> None:
    group, kinds = "versions.example.com", {"Queue": "v1beta1", "Cohort": "v1alpha1"}
    for kind, version in kinds.items():
        names = {"kind": kind, "plural": f"{kind.lower()}s", "singular": kind.lower()}
        schema = {"openAPIV3Schema": {"type": "object"}}
        served = {"name": version, "served": True, "storage": True, "schema": schema}
        spec = {"group": group, "scope": "Cluster", "names": names, "versions": [served]}
        head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
        definition = {**head, "metadata": {"name": f"{names['plural']}.{group}"}, "spec": spec}
        apply(api_server, definition)
        instance = {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": "a"}}
        eventually(partial(apply, api_server, instance), what=f"the kind {kind} is served")
    source = open_source(parse("--kubeconfig", str(api_server.kubeconfig)))
    errors: list[SourceError] = []
    found = source.list_all({group: ("queues", "cohorts")}, None, errors.append)
    versions = {raw["kind"]: raw["apiVersion"].rpartition("/")[2] for raw in found}
    assert (versions, errors) == (kinds, [])


def apply(cluster: Cluster, manifest: dict[str, Any]) -> str:
    return cluster.kubectl("apply", "-f", "-", input=json.dumps(manifest)).stdout


def test_an_object_that_is_in_files_twice_counts_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = [{"apiVersion": "v1", "kind": "Pod", **make_pod(number)} for number in range(3)]
    other = json.loads(json.dumps(pods[1] | {"status": {"phase": "Running"}}))
    backwards = dict(reversed(pods[0].items()))
    elsewhere = pods[0] | {"metadata": pods[0]["metadata"] | {"namespace": "b"}}
    unnamed = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p"}}
    odd = tmp_path / "odd.yaml"
    odd.write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n}\nspec: {1: a, b: 2001-01-01}\n")
    assert len([*open_source(parse("-f", str(odd), "-f", str(odd))).list(NODES)]) == 1
    given = [pods, [backwards, other, other, elsewhere, unnamed, unnamed]]
    options = []
    for number, items in enumerate(given):
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        options += ["-f", str(file)]
    source = open_source(parse(*options))
    expected = [*pods, elsewhere, unnamed, unnamed]
    assert [*source.list(PODS)] == expected
    assert [*source.list_all({}, None, lambda error: pytest.fail(str(error)))] == expected
    assert capsys.readouterr().err == (
        "gpuward: note: Pod a/p000001 is in the files twice, and not the same: the first counts\n"
    )


def test_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order, by several listings at a time, and also where they do not fit into memory."""
    monkeypatch.setattr("cluster.source.store._IN_MEMORY", 1000)
    pods = [{"apiVersion": "v1", "kind": "Pod", **make_pod(number, 50)} for number in range(30)]
    nodes = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}", "uid": f"{number}"}}
        for number in range(30)
    ]
    mixed = [raw for pair in zip(pods, nodes, strict=True) for raw in pair]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": mixed}))
    source = open_source(parse("-f", str(file)))
    listed = zip(source.list(NODES), source.list(PODS), strict=True)
    assert [*listed] == [*zip(nodes, pods, strict=True)]
    file.unlink()
    assert source.get(PODS, "a", "p000007") == pods[7]
    assert source.get(NODES, "a", "n7") == nodes[7]  # which are in no namespace
    assert source.get(NODES, "a", "p000007") is None
    assert [*source.list_all({}, None, lambda error: pytest.fail(str(error)))] == mixed
    with pytest.raises(SourceError, match="does not exist"):
        list(source.again().list(PODS))


def test_what_comes_before_an_error_in_files_counts(tmp_path: Path) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", **make_pod(0)}
    (tmp_path / "a.json").write_text(json.dumps(pod))
    (tmp_path / "b.yaml").write_text("a: [")
    source = open_source(parse("-f", str(tmp_path)))
    errors: list[SourceError] = []
    assert [*source.list_all({}, None, errors.append)] == [pod]
    assert len(errors) == 1
    listed = source.list(PODS)
    assert next(listed) == pod
    with pytest.raises(SourceError, match=r"b\.yaml"):
        next(listed)
    assert source.get(PODS, "a", "p000000") == pod
    with pytest.raises(SourceError, match=r"b\.yaml"):
        source.get(PODS, "a", "p000001")


def test_the_store_gives_back_what_was_put_whatever_is_in_it() -> None:
    """A store keeps texts of every kind, and values that only YAML has, as JSON would."""

    def pod_of(number: int) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Pod", **make_pod(number)}

    texts = ["ü", "\U0001f600", "\x00", "\ud800", "x" * 5000]
    numbers = [0, -1, 2**70, 1.5, True, None]
    raw = {**pod_of(1), "status": {"texts": texts, "numbers": numbers, "empty": [{}, []]}}
    different: list[Any] = []
    store = ObjectStore(different.append)
    store.put(raw)
    store.put({**raw, "status": {**raw["status"]}})
    assert [*store.list(PODS)] == [raw]
    assert different == []
    dated = {**pod_of(2), "spec": {"since": datetime.date(2031, 3, 1)}}
    store.put(dated)
    assert [*store.list(PODS)][1]["spec"] == {"since": "2031-03-01"}
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(SourceError, match="nested too deeply"):
        store.put({**pod_of(3), "spec": deep})


def test_a_read_that_fails_changes_no_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.source.store._IN_MEMORY", 1)
    store = ObjectStore()
    pods = [{"kind": "Pod", **make_pod(number)} for number in (1, 2)]
    for raw in pods:
        store.put(raw)
    file = store._file  # noqa: SLF001  # no disk that fails is at hand
    read = file.read

    def fail(size: int) -> bytes:
        read(size // 2)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(file, "read", fail)
    with pytest.raises(OSError, match="Input/output error"):
        next(store.list(PODS))
    monkeypatch.setattr(file, "read", read)
    assert [*store.list(PODS)] == pods
