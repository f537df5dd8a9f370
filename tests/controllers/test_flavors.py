"""Kueue compares pod templates with the taints of its flavors; gpuward fixes Pods, and later."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.api.connection import Connection
from cluster.audit.cli import main as audit
from cluster.controllers.inventory import Scope, list_inventory
from cluster.doctor.cli import main as doctor
from cluster.source.api_server import ApiServerSource
from cluster.source.objects import SourceError
from cluster.why.cli import main as why
from policies.controller_files import (
    MAX_PARTS,
    CheckedInventory,
    format_inventory,
    inventory_file_name,
)
from policies.loading import default_policy
from rules.engine.fixing import check
from rules.inventory.inventory import Inventory
from rules.profile.context import Context
from rules.workloads.referred_objects import add_objects, new_builder
from tests.testkit.cases import TODAY
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import TIMEOUT, Processes, eventually
from tests.testkit.controllers.controller import Controller
from tests.testkit.controllers.examples import (
    EXAMPLES,
    Example,
    cluster_queue,
    local_queue,
    pod,
    resource_flavor,
    training_runtime,
)
from tests.testkit.controllers.steps import (
    created,
    gpu_pods,
    repeated_writes,
    wait_for_pods,
)
from tests.testkit.end_to_end.steps import apply, list_pods, namespace_with_policy

pytest_plugins = ["tests.testkit.controllers.fixtures"]
NODE, OTHER_NODE = "gpu-flavors", "cpu-flavors"
NODE_LABELS = {"nvidia.com/gpu.present": "true"}
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
# As users have it: a flavor with the GPUs, and another one for what needs none.
QUEUE = cluster_queue(
    16,
    resource_flavor("tainted", nodeLabels=NODE_LABELS, nodeTaints=[TAINT]),
    resource_flavor("plain"),
)
LOCAL_QUEUE = local_queue("tainted", "tainted")
KINDS: dict[str, Callable[[], Example]] = {"pod": pod, **EXAMPLES}
# How many of their templates ask for GPUs.
TEMPLATES = {"pod": 1, "job": 1, "job_set": 1, "leader_worker_set": 1, "ray_cluster": 1}
TEMPLATES |= {"ray_job": 1, "ray_service": 1}
# The template of its pods is in another object, which no fix of a workload changes.
NOT_FIXED = ("train_job",)


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane, running: dict[str, Controller]) -> Iterator[ControlPlane]:
    """A cluster with the controllers, and a queue whose flavor states a taint of its nodes."""
    assert running
    plane.gpu_node(NODE, gpus=16, labels=NODE_LABELS)
    plane.gpu_node(OTHER_NODE, gpus=0, taint=False)
    for made in QUEUE:
        apply(plane, "default", made)
    yield plane
    for node in (NODE, OTHER_NODE):
        plane.request("DELETE", f"/api/v1/nodes/{node}")


def _guarded(
    cluster: ControlPlane, processes: Processes, folder: Any, name: str, policy: str
) -> Iterator[str]:
    with namespace_with_policy(cluster, processes, folder, name, policy) as namespace:
        apply(cluster, namespace, LOCAL_QUEUE)
        apply(cluster, namespace, training_runtime())
        yield namespace


@pytest.fixture(scope="module")
def warned(
    cluster: ControlPlane, processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A namespace in mode deny, in which workloads stay as they are."""
    folder = tmp_path_factory.mktemp("flavors")
    yield from _guarded(cluster, processes, folder, "gpuward-flavors", "")


@pytest.fixture(scope="module")
def fixed(
    cluster: ControlPlane, processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """One in which the templates of workloads are fixed."""
    folder = tmp_path_factory.mktemp("fixed-flavors")
    policy = "workloads: fix\n"
    yield from _guarded(cluster, processes, folder, "gpuward-fixed-flavors", policy)


def _inventory(namespace: str) -> Inventory:
    builder = new_builder(default_policy().profile)
    for made in (*QUEUE, LOCAL_QUEUE, training_runtime()):
        add_objects(builder, made, namespace)
    return builder.inventory()


def _is_reported(example: Example, namespace: str) -> bool:
    """Return whether a rule says that Kueue never admits the workload."""
    metadata = {**example.manifest["metadata"], "namespace": namespace}
    context = Context(TODAY, namespace=namespace, inventory=_inventory(namespace))
    found = check({**example.manifest, "metadata": metadata}, default_policy().rule_set(), context)
    return "untolerated-flavor" in {finding.rule for finding in found.findings}


def _says_untolerated(plane: ControlPlane, namespace: str) -> bool:
    found = plane.kubectl("get", "workloads.kueue.x-k8s.io", "-n", namespace, "-o", "json")
    return "untolerated taint" in found.stdout


@pytest.mark.parametrize("name", KINDS)
def test_kueue_never_admits_what_the_rule_reports(
    cluster: ControlPlane, warned: str, name: str
) -> None:
    example = KINDS[name]().queued("tainted")
    with created(cluster, warned, example):
        if _is_reported(example, warned):
            says = lambda: _says_untolerated(cluster, warned)  # noqa: E731
            eventually(says, what="Kueue names the taint")
            # Of a LeaderWorkerSet there are pods, behind Kueue's gate.
            assert not [each for each in list_pods(cluster, warned) if each["spec"].get("nodeName")]
        else:
            wait_for_pods(cluster, warned, example)


@pytest.mark.parametrize("name", [name for name in KINDS if name not in NOT_FIXED])
def test_a_policy_that_fixes_workloads_lets_kueue_admit_them(
    cluster: ControlPlane, fixed: str, name: str
) -> None:
    started = datetime.datetime.now(datetime.UTC)
    example = KINDS[name]().queued("tainted")
    with created(cluster, fixed, example):
        pods = gpu_pods(wait_for_pods(cluster, fixed, example))
        assert {each["spec"]["nodeName"] for each in pods} == {NODE}
        for each in pods:
            tolerations = [json.dumps(t, sort_keys=True) for t in each["spec"]["tolerations"]]
            assert len(tolerations) == len(set(tolerations))
        # JobSet refuses a second apply of what it has completed itself.
        again = apply(cluster, fixed, example.manifest, check=name != "job_set")
        assert (again.returncode == 0) is (name != "job_set")
        stored = cluster.kubectl("get", example.resource, "-n", fixed, "-o", "json").stdout
        assert stored.count('"key": "nvidia.com/gpu"') == TEMPLATES[name]
        assert repeated_writes(cluster, fixed, started) == {}


def test_why_and_the_audit_know_the_runtime_of_a_train_job(
    cluster: ControlPlane, warned: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """They say of a TrainJob with the runtime in the cluster what Kueue says of it later."""
    manifest = EXAMPLES["train_job"]().queued("tainted").manifest
    file = tmp_path / "train-job.json"
    file.write_text(json.dumps(manifest), encoding="utf-8")
    where = ["--kubeconfig", str(cluster.kubeconfig), "-n", warned]
    assert why(["--manifest", str(file), *where]) == 1
    assert "Kueue never admits" in capsys.readouterr().out
    example = EXAMPLES["train_job"]().queued("tainted")
    with created(cluster, warned, example):
        eventually(lambda: _says_untolerated(cluster, warned), what="Kueue names the taint")
        assert why([f"trainjob/{manifest['metadata']['name']}", *where]) == 1
        assert "untolerated taint" in capsys.readouterr().out
        audit([*where, "-o", "json"])
        findings = json.loads(capsys.readouterr().out)["findings"]
        assert "untolerated-flavor" in {
            finding["rule"] for finding in findings if finding["kind"] == "TrainJob"
        }


def test_doctor_names_the_flavor_and_who_waits_for_it(
    cluster: ControlPlane, warned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    example = EXAMPLES["job"]().queued("tainted")
    with created(cluster, warned, example):
        eventually(lambda: _says_untolerated(cluster, warned), what="Kueue names the taint")
        doctor(["--kubeconfig", str(cluster.kubeconfig), "-o", "json"])
        rows = json.loads(capsys.readouterr().out)["rows"]
        [row] = [row for row in rows if row["subject"] == "resourceflavor/tainted"]
        assert row["state"] == "wrong"
        assert [name.partition(" in ")[2] for name in row["names"]] == [warned]


def test_a_flavor_that_adds_the_toleration_needs_nothing_else(
    cluster: ControlPlane, warned: str
) -> None:
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists"}
    fields = {"nodeLabels": NODE_LABELS, "nodeTaints": [TAINT], "tolerations": [toleration]}
    for made in cluster_queue(16, resource_flavor("tolerated", **fields)):
        apply(cluster, "default", made)
    apply(cluster, warned, local_queue("tolerated", "tolerated"))
    for make in EXAMPLES.values():
        example = make().queued("tolerated")
        with created(cluster, warned, example) as warnings:
            assert "[untolerated-flavor]" not in warnings
            wait_for_pods(cluster, warned, example)


# One of their templates asks for no GPU.
@pytest.mark.parametrize("name", ["job_set", "ray_cluster", "ray_job", "ray_service"])
def test_all_flavors_of_the_queue_are_gpu_nodes(
    cluster: ControlPlane,
    fixed: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    name: str,
) -> None:
    """Kueue admits no workload of which one template cannot be; audit and `why` say so too."""
    for made in cluster_queue(
        16, resource_flavor("gpus-only", nodeLabels=NODE_LABELS, nodeTaints=[TAINT])
    ):
        apply(cluster, "default", made)
    apply(cluster, fixed, local_queue("gpus-only", "gpus-only"))
    example = EXAMPLES[name]().queued("gpus-only")
    file = tmp_path / "workload.json"
    file.write_text(json.dumps(example.manifest), encoding="utf-8")
    where = ["--kubeconfig", str(cluster.kubeconfig), "-n", fixed]
    assert why(["--manifest", str(file), *where]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "which asks for no GPU, does not tolerate the taint" in said
    with created(cluster, fixed, example):
        eventually(lambda: _says_untolerated(cluster, fixed), what="Kueue names the taint")
        assert not list_pods(cluster, fixed)
        audit([*where, "-o", "json"])
        findings = json.loads(capsys.readouterr().out)["findings"]
        [told] = [
            finding["message"]
            for finding in findings
            if (finding["kind"], finding["rule"])
            == (example.manifest["kind"], "untolerated-flavor")
        ]
        assert "which asks for no GPU" in told


POOL, SITE, RACK = "example.com/pool", "example.com/site", "example.com/rack"
# The third has no GPUs, and its label counts all the same.
LABELLED_QUEUE = cluster_queue(
    16,
    resource_flavor("first", nodeLabels={POOL: "first"}),
    resource_flavor("second", nodeLabels={POOL: "second", SITE: "b"}),
    resource_flavor("third", nodeLabels={RACK: "1"}),
)
for amount in LABELLED_QUEUE[-1]["spec"]["resourceGroups"][0]["flavors"][1]["resources"]:
    if amount["name"] == "nvidia.com/gpu":
        amount["nominalQuota"] = "16"
LABELLED_LOCAL_QUEUE = local_queue("first", "labelled")


def _affinity(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    listed = [{"matchExpressions": term} if term else {} for term in terms]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": listed}}
    return {"affinity": {"nodeAffinity": required}}


def _term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": [*values]} if values else {})}


SELECTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "first": {"nodeSelector": {POOL: "first"}},
    "neither": {"nodeSelector": {POOL: "third"}},
    "mixed": {"nodeSelector": {POOL: "first", SITE: "b"}},
    "second": {"nodeSelector": {POOL: "second", SITE: "b"}},
    "label-of-the-third": {"nodeSelector": {POOL: "first", RACK: "1"}},
    "third": {"nodeSelector": {RACK: "1"}},
    "other-label": {"nodeSelector": {"example.com/zone": "a"}},
    "in": _affinity([_term(POOL, "In", "second", "third")]),
    "not-in": _affinity([_term(POOL, "NotIn", "first", "second")]),
    "not-in-one": _affinity([_term(POOL, "NotIn", "first")]),
    "exists": _affinity([_term(SITE, "Exists"), _term(POOL, "In", "first")]),
    "absent": _affinity([_term(SITE, "DoesNotExist")]),
    "none-absent": _affinity([_term(POOL, "DoesNotExist")]),
    "greater": _affinity([_term(POOL, "Gt", "1")]),
    "two-terms": _affinity([_term(POOL, "In", "third")], [_term(POOL, "In", "first")]),
    "two-unmet": _affinity([_term(POOL, "In", "third")], [_term(SITE, "In", "a")]),
    "open-term": _affinity([_term(POOL, "In", "third")], [_term("example.com/zone", "Exists")]),
    "empty-term": _affinity([_term(POOL, "In", "third")], []),
    "both": {
        "nodeSelector": {POOL: "second"},
        **_affinity([_term(SITE, "NotIn", "b")]),
    },
}


def _job_that_selects(name: str) -> dict[str, Any]:
    """A Job with one GPU in the queue of two flavors."""
    manifest = EXAMPLES["job"]().queued("labelled").manifest
    manifest["metadata"]["name"] = f"selects-{name}"
    manifest["spec"] |= {"parallelism": 1, "completions": 1}
    manifest["spec"]["template"]["spec"] |= SELECTIONS[name]
    return manifest


def _answers(plane: ControlPlane, namespace: str) -> dict[str, bool]:
    """Return whether Kueue has admitted a job; those are left out that it has not decided about."""
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads"
    said = {}
    for workload in plane.request("GET", path).body["items"]:
        owner = workload["metadata"]["ownerReferences"][0]["name"].removeprefix("selects-")
        conditions = workload.get("status", {}).get("conditions", [])
        known = {each["type"]: each for each in conditions}
        if known.get("Admitted", {}).get("status") == "True":
            said[owner] = True
        elif "doesn't match node affinity" in known.get("QuotaReserved", {}).get("message", ""):
            said[owner] = False
    return said


def test_the_rule_about_labels_of_flavors_and_kueue_say_the_same(
    cluster: ControlPlane, warned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for made in LABELLED_QUEUE:
        apply(cluster, "default", made)
    apply(cluster, warned, LABELLED_LOCAL_QUEUE)
    builder = new_builder(default_policy().profile)
    for made in (*LABELLED_QUEUE, LABELLED_LOCAL_QUEUE):
        add_objects(builder, made, warned)
    context = Context(TODAY, namespace=warned, inventory=builder.inventory())
    reported = set()
    for name in SELECTIONS:
        manifest = _job_that_selects(name)
        found = check(manifest, default_policy().rule_set(), context).findings
        if "flavor-mismatch" in {finding.rule for finding in found}:
            reported.add(name)
        apply(cluster, warned, manifest)

    def every_job_has_one() -> bool:
        missing = SELECTIONS.keys() - _answers(cluster, warned).keys()
        assert not missing, f"Kueue has not decided about {sorted(missing)}"
        return True

    eventually(every_job_has_one, what="Kueue decides about each job")
    assert {
        name for name, admitted in _answers(cluster, warned).items() if not admitted
    } == reported
    assert len(reported) > len(SELECTIONS) // 3
    doctor(["--kubeconfig", str(cluster.kubeconfig), "-o", "json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    [row] = [row for row in rows if row["subject"] == f"localqueue/labelled in {warned}"]
    assert (row["state"], len(row["names"])) == ("wrong", len(reported))
    # Without it the API server leaves the pods of Jobs, and other tests count them.
    cascade = ("--cascade=foreground", TIMEOUT)
    jobs = (f"selects-{name}" for name in SELECTIONS)
    cluster.kubectl("delete", "jobs", *jobs, "-n", warned, *cascade)


LEVELS = [{"nodeLabel": "kubernetes.io/hostname"}]
TOPOLOGY = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Topology",
    "metadata": {"name": "nodes"},
    "spec": {"levels": LEVELS},
}
TOPOLOGY_QUEUE = cluster_queue(
    16, resource_flavor("by-topology", nodeLabels=NODE_LABELS, topologyName="nodes")
)
TOPOLOGY_LOCAL_QUEUE = local_queue("by-topology", "by-topology")


@pytest.fixture(scope="module")
def topology(cluster: ControlPlane) -> ControlPlane:
    """The cluster, with a queue for which Kueue itself chooses nodes, by their names."""
    for made in (TOPOLOGY, *TOPOLOGY_QUEUE):
        apply(cluster, "default", made)
    return cluster


def _inventory_with_nodes(plane: ControlPlane, namespace: str) -> Inventory:
    nodes = plane.request("GET", "/api/v1/nodes").body["items"]
    builder = new_builder(default_policy().profile)
    for made in (TOPOLOGY, *TOPOLOGY_QUEUE, TOPOLOGY_LOCAL_QUEUE):
        add_objects(builder, made, namespace)
    for node in nodes:
        add_objects(builder, {**node, "apiVersion": "v1", "kind": "Node"}, None)
    return builder.inventory()


def _workloads(plane: ControlPlane, namespace: str) -> str:
    """What the Workloads of a namespace say."""
    get = ("get", "workloads.kueue.x-k8s.io", "-n", namespace, "-o", "yaml")
    return plane.kubectl(*get).stdout


def test_kueue_compares_templates_with_the_nodes_of_a_topology(
    topology: ControlPlane, warned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rule, doctor and Kueue say the same of a template that does not tolerate the nodes."""
    apply(topology, warned, TOPOLOGY_LOCAL_QUEUE)
    example = EXAMPLES["job"]().queued("by-topology")
    with created(topology, warned, example):
        says = lambda: "nvidia.com/gpu=present:NoSchedule" in _workloads(topology, warned)  # noqa: E731
        eventually(says, what="Kueue names the taint of the nodes")
        assert not list_pods(topology, warned)
        metadata = {**example.manifest["metadata"], "namespace": warned}
        context = Context(
            TODAY, namespace=warned, inventory=_inventory_with_nodes(topology, warned)
        )
        found = check(
            {**example.manifest, "metadata": metadata}, default_policy().rule_set(), context
        )
        assert "untolerated-flavor" in {finding.rule for finding in found.findings}
        doctor(["--kubeconfig", str(topology.kubeconfig), "-o", "json"])
        rows = json.loads(capsys.readouterr().out)["rows"]
        [row] = [row for row in rows if row["subject"] == "topology/nodes"]
        assert row["state"] == "wrong"


def test_the_webhook_warns_about_the_taint_of_all_nodes_of_a_topology(
    topology: ControlPlane,
    processes: Processes,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The user reads it when the workload is created, although the flavor states no taint."""
    folder, known = (tmp_path_factory.mktemp(name) for name in ("topology", "inventory"))
    argument = f"--inventory={known}"
    with namespace_with_policy(
        topology, processes, folder, "gpuward-topology", "", argument
    ) as namespace:
        apply(topology, namespace, TOPOLOGY_LOCAL_QUEUE)
        source = ApiServerSource(Connection.like_kubectl(str(topology.kubeconfig), None))
        scope = Scope(nodes=True, queues=True)
        errors: list[SourceError] = []
        found = list_inventory(source, default_policy(), scope, on_error=errors.append)
        assert errors == []
        checked = CheckedInventory(datetime.datetime.now(datetime.UTC), found)
        for part, text in enumerate(format_inventory(checked, MAX_PARTS)):
            (known / inventory_file_name(part)).write_text(text, encoding="utf-8")
        example = EXAMPLES["job"]().queued("by-topology")

        def is_warned() -> bool:
            said = apply(topology, namespace, example.manifest, "--dry-run=server").stderr
            assert "[untolerated-flavor]" in said, said
            return True

        eventually(is_warned, what="the webhook has read the inventory")
        with created(topology, namespace, example):
            says = lambda: "present:NoSchedule" in _workloads(topology, namespace)  # noqa: E731
            eventually(says, what="Kueue names the taint of the nodes")


# Of the others a template asks for no GPU, and gets no toleration of GPU nodes.
@pytest.mark.parametrize("name", ["pod", "job", "leader_worker_set"])
def test_a_policy_that_fixes_workloads_lets_kueue_choose_nodes(
    topology: ControlPlane, fixed: str, name: str
) -> None:
    apply(topology, fixed, TOPOLOGY_LOCAL_QUEUE)
    example = KINDS[name]().queued("by-topology")
    with created(topology, fixed, example):
        pods = gpu_pods(wait_for_pods(topology, fixed, example))
        assert {each["spec"]["nodeName"] for each in pods} == {NODE}


def test_a_template_without_gpus_needs_a_flavor_of_its_own(
    topology: ControlPlane, fixed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All flavors of the queue are GPU nodes: `doctor` says why Kueue never admits the driver."""
    apply(topology, fixed, TOPOLOGY_LOCAL_QUEUE)
    example = EXAMPLES["job_set"]().queued("by-topology")
    with created(topology, fixed, example):
        says = lambda: "nvidia.com/gpu=present:NoSchedule" in _workloads(topology, fixed)  # noqa: E731
        eventually(says, what="Kueue names the taint of the nodes")
        doctor(["--kubeconfig", str(topology.kubeconfig), "-o", "json"])
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert "topology/nodes" in {row["subject"] for row in rows if row["state"] == "wrong"}
