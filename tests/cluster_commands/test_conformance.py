"""The conclusions of a conformance report from answers, and its text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from cluster.api.errors import ClusterError, ForbiddenError, InternalError, InvalidError
from cluster.audit.audit import audit
from cluster.conformance import run
from cluster.conformance.cli import main
from cluster.conformance.dry_runs import State, control_of
from cluster.conformance.evidence import Evidence, gather
from cluster.conformance.report import to_document, to_html, to_markdown
from cluster.doctor.facts import read_facts
from cluster.source.objects import ObjectReader
from cluster.webhooks.ways import WAYS
from policies.loading import default_policy
from tests.testkit.cluster_commands.doctor_rows import NO_METRICS, Objects
from tests.testkit.cluster_commands.gpu_objects import Object, node, pod
from tests.testkit.coverage.table import bypasses

POLICY = default_policy()
ROWS = {bypass.name: bypass for bypass in bypasses()}
Answer = Callable[[str, Object], Object]


class Cluster(Objects):
    """Objects in memory, also all of them at once."""

    def list_all(self, *_: Any) -> Any:
        return iter(self._objects)


def admit(_method: str, body: Object) -> Object:
    return body


def report(
    *objects: Object, answer: Answer = admit, namespaces: tuple[str, ...] = ("team",)
) -> Evidence:
    source = cast("ObjectReader", Cluster(*objects))

    def send(method: str, path: str, body: Object, _sent: str) -> Object:
        if "selfsubjectreviews" in path:
            return {"status": {"userInfo": {"username": "alice", "groups": ["team"]}}}
        assert path.endswith("?dryRun=All")
        return answer(method, body)

    facts = read_facts(source, POLICY, lambda _path: NO_METRICS)
    audited = audit(source, POLICY, None)
    about = {"gpuward": "1"}
    return gather(facts, send, audited, namespaces, about, image="example.com/app:1", is_own=False)


def states(evidence: Evidence) -> Mapping[str, State]:
    return {result.way: result.state for result in evidence.results}


def is_harmless(body: Object) -> bool:
    (container,) = body["spec"]["containers"]
    return set(body["spec"]) == {
        *("automountServiceAccountToken", "securityContext", "containers")
    } and not ({"env", "envFrom", "volumeMounts"} & set(container))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_way_is_that_of_the_row_of_this_name(way: Any) -> None:
    entry = ROWS[way.name].entry
    wanted = {
        k: v for k, v in entry.get("container", {}).items() if k not in {"image", "resources"}
    }
    spec = entry.get("spec", {})
    volumes = [
        {k: v for k, v in volume.items() if k != "name"} for volume in spec.get("volumes", [])
    ]
    made = way.pod("example.com/app:1")
    (container,) = made["spec"]["containers"]
    assert [
        {k: v for k, v in v.items() if k != "name"} for v in made["spec"].get("volumes", [])
    ] == volumes
    assert made["metadata"]["annotations"] == entry.get("annotations", {})
    for field in set(wanted) - {"volumeMounts"}:
        assert container[field] == wanted[field]
    asks = entry.get("container", {}).get("resources", {}).get("limits", {})
    assert ("nvidia.com/gpu" in container["resources"]["limits"]) == bool(asks)


def test_everything_is_open_where_everything_is_admitted() -> None:
    evidence = report()
    assert set(states(evidence).values()) == {State.OPEN}
    assert evidence.exit_status == 1
    assert (evidence.user, evidence.groups) == ("alice", ("team",))


REFUSALS = {
    'admission webhook "x.example.com" denied the request: no': "webhook x.example.com",
    "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no": (
        "admission policy p"
    ),
    'pods "p" is forbidden: violates PodSecurity "restricted:latest": no': (
        "Pod Security, level restricted"
    ),
    'pods "p" is forbidden: exceeded quota: gpus': "",
    'pods is forbidden: User "alice" cannot create resource "pods"': "",
    'pod rejected: RuntimeClass "nvidia" not found': "",
}


@pytest.mark.parametrize("message", REFUSALS)
def test_only_a_refusal_by_a_control_closes_a_way(message: str) -> None:
    def refuse(_method: str, body: Object) -> Object:
        if "spec" in body and is_harmless(body):
            return body
        raise ForbiddenError(f"POST /api/v1/namespaces/team/pods: 403 {message}")

    evidence = report(answer=refuse)
    control = REFUSALS[message]
    result = next(r for r in evidence.results if r.way == "variable")
    expected = State.REFUSED if control else State.NOT_KNOWN
    assert (result.state, result.control, result.seen) == (expected, control, message)


def test_a_refusal_of_harmless_pods_too_proves_nothing() -> None:
    def refuse(_method: str, _body: Object) -> Object:
        raise ForbiddenError('admission webhook "all.example.com" denied the request: no')

    found = states(report(answer=refuse))
    assert {found[way.name] for way in WAYS} == {State.NOT_KNOWN}


@pytest.mark.parametrize(
    "error",
    [
        InternalError("POST /x: 500 failed calling webhook"),
        InvalidError("POST /x: 400 admission webhook w does not support dry run"),
        ClusterError("no answer"),
    ],
)
def test_no_answer_proves_nothing(error: ClusterError) -> None:
    def fail(_method: str, body: Object) -> Object:
        if "spec" in body and is_harmless(body):
            return body
        raise error

    evidence = report(answer=fail)
    assert set(states(evidence).values()) - {State.OPEN} == {State.NOT_KNOWN}
    assert states(evidence)["variable"] is State.NOT_KNOWN


def test_void_and_a_way_that_is_gone_are_changes() -> None:
    def change(_method: str, body: Object) -> Object:
        if "spec" not in body:
            return body
        changed: Object = json.loads(json.dumps(body))
        (container,) = changed["spec"]["containers"]
        container["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
        changed["metadata"]["annotations"] = {"gpuward.io/fixed": "x"}
        return changed

    evidence = report(answer=change)
    found = states(evidence)
    for way in ("variable", "image", "no-prefix", "amd", "nri"):
        assert found[way] is State.CHANGED
    assert found["privileged"] is State.OPEN
    assert {r.control for r in evidence.results if r.state is State.CHANGED} == {"gpuward"}


ACCEPT = "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"


def toolkit(value: str, **spec: Any) -> Object:
    container = {
        "image": "example.com/nvidia/container-toolkit:v1.19.1",
        "env": [{"name": ACCEPT, "value": value}],
    }
    return {
        "kind": "DaemonSet",
        "metadata": {"name": "toolkit", "namespace": "gpu-operator"},
        "spec": {"template": {"spec": {"containers": [container], **spec}}},
    }


@pytest.mark.parametrize(
    ("objects", "state"),
    [
        ((node("n", {"nvidia.com/gpu": 1}), toolkit("false")), State.BY_SETTING),
        ((node("n", {"nvidia.com/gpu": 1}), toolkit("true")), State.OPEN),
        (
            (node("n", {"nvidia.com/gpu": 1}), toolkit("false", nodeSelector={"pool": "a"})),
            State.OPEN,
        ),
        ((toolkit("false"),), State.OPEN),
    ],
)
def test_a_setting_of_the_toolkit_counts_if_all_gpu_nodes_have_it(
    objects: tuple[Object, ...], state: State
) -> None:
    found = states(report(*objects))
    assert found["variable"] is found["image"] is state
    assert found["privileged"] is State.OPEN


def test_pods_that_reach_gpus_are_listed() -> None:
    bad = pod("bad", on="n", owner=("ReplicaSet", "web"))
    bad["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    evidence = report(bad, pod("good", {"nvidia.com/gpu": 1}, on="n"))
    [found] = [each for each in evidence.reaching if each.level == "error"]
    assert (found.namespace, found.rule) == ("team-a", "visible-devices-env")


def test_names_cannot_write_markdown_or_html() -> None:
    name = "<script>|x[y](z)`&"
    evidence = report()._replace(user=name, namespaces=(name,))
    text = to_markdown(evidence)
    assert "\\<script\\>\\|x\\[y\\](z)\\`\\&" in text
    assert "<script" not in text.replace("\\<", "")
    html = to_html(evidence)
    assert "&lt;script&gt;" in html
    assert "<script" not in html
    assert to_document(evidence)["user"]["name"] == name


def test_a_missing_right_to_label_a_namespace_is_a_control() -> None:
    message = 'namespaces "team" is forbidden: User "alice" cannot patch resource "namespaces"'
    assert control_of(message, may_be_a_right=True) == "rights (RBAC)"
    assert not control_of(message)


def test_a_namespace_that_does_not_exist_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gather_there(options: Any) -> Evidence:
        team = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        source = cast("ObjectReader", Cluster(team))
        return run._gather(options, source, lambda _path: NO_METRICS, lambda *_: {})  # noqa: SLF001

    monkeypatch.setattr(run, "_of_cluster", gather_there)
    assert main(["--isolated", "-n", "team", "-n", "tema", "-n", "x"]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (
        "",
        "gpuward conformance: there is no namespace tema, x\n",
    )


def test_of_files_the_ways_are_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = pod("bad", on="n", owner=("ReplicaSet", "web"))
    bad["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    file = tmp_path / "cluster.json"
    harmless = pod("good", {"nvidia.com/gpu": 1}, on="n")
    for pods, status in (((bad, harmless), 1), ((harmless,), 3)):
        file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [*pods]}))
        assert main(["-f", str(file), "-o", "json"]) == status
        found = json.loads(capsys.readouterr().out)
        assert {way["state"] for way in found["ways"]} == {"not known"}
        assert not found["tried"]
        rules = {each["rule"] for each in found["reaching"] if each["level"] == "error"}
        assert rules == ({"visible-devices-env"} if bad in pods else set())
    main(["-f", str(file)])
    printed = capsys.readouterr().out
    assert "Files answer no dry run: no way was tried." in printed
    assert "harmless pod" not in printed


def test_files_have_no_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["-f", str(tmp_path), "--as", "alice"])
    assert "leave --filename out" in capsys.readouterr().err
