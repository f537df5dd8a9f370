"""The answers of `gpuward doctor` about device plugins, DRA drivers and claims."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.doctor.rows import Row, State
from tests.testkit.cluster_commands.doctor_rows import rows, states
from tests.testkit.cluster_commands.gpu_objects import Object, node, pod

GPU, DRIVER = "nvidia.com/gpu", "gpu.nvidia.com"


def devices(on: str, count: int = 2) -> Object:
    return {
        "kind": "ResourceSlice",
        "metadata": {"name": f"{on}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": on,
            "pool": {"name": on, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{number}"} for number in range(count)],
        },
    }


def claim(name: str, device: str | None, *users: str, **more: Any) -> Object:
    """A claim that has a device of the node `dra`, and is reserved for the pods `users`."""
    result = {"driver": DRIVER, "pool": "dra", "device": device}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": user, **more} for user in users],
    }
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"devices": {"requests": [request]}},
        "status": status if device else {},
    }


def daemon_set(name: str, image: str, **spec: Any) -> Object:
    volume = {"name": "v", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}
    container = {"name": "main", "image": image, **spec.pop("container", {})}
    return {
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"template": {"spec": {"containers": [container], "volumes": [volume], **spec}}},
    }


def device_class(name: str, **spec: Any) -> Object:
    return {"kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def the_row(found: dict[str, list[Row]], check: str) -> Row:
    (row,) = found[check]
    return row


def test_cards_that_nodes_offer_twice() -> None:
    objects = (node("twice", {GPU: 2}), node("dra"), node("plugin", {GPU: 2}))
    found = rows(*objects, devices("twice"), devices("dra"))["cards offered twice"]
    assert states(found) == {"twice": State.WRONG, "dra": State.OK}
    assert "as nvidia.com/gpu and by the driver gpu.nvidia.com" in found[0].message
    assert "cards offered twice" not in rows(node("plugin", {GPU: 2}))


NVIDIA = "registry.example.com/nvidia/k8s-device-plugin:v0.18.0"
ROCM = "registry.example.com/rocm/k8s-device-plugin:1.31"


@pytest.mark.parametrize(
    ("other", "is_wrong"),
    [
        (daemon_set("second", NVIDIA), True),
        (daemon_set("second", "docker.io/projecthami/hami:v2.7.0"), True),
        (daemon_set("second", NVIDIA, nodeSelector={"pool": "a"}), True),
        (daemon_set("second", NVIDIA, nodeSelector={"pool": "b"}), False),
        (daemon_set("second", ROCM), False),
        (daemon_set("second", "registry.example.com/fuse-device-plugin:1"), False),
        ({**daemon_set("second", NVIDIA), "status": {"desiredNumberScheduled": 0}}, False),
    ],
)
def test_two_device_plugins_for_one_resource(other: Object, is_wrong: bool) -> None:  # noqa: FBT001
    found = rows(node("n", {GPU: 2}, labels={"pool": "a"}), daemon_set("first", NVIDIA), other)
    assert ("device plugins" in found) == is_wrong
    if is_wrong:
        row = the_row(found, "device plugins")
        subject = "daemonset/first in kube-system, daemonset/second in kube-system"
        assert (row.subject, row.state) == (subject, State.WRONG)
        assert row.message.startswith("both offer nvidia.com/gpu on n: ")


def test_device_plugins_of_other_nodes_by_affinity() -> None:
    def on(pool: str) -> Object:
        terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": [pool]}]}]
        required = {"nodeSelectorTerms": terms}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        return daemon_set(pool, NVIDIA, affinity=affinity)

    nodes = [node(name, {GPU: 2}, labels={"pool": name}) for name in ("a", "b")]
    assert "device plugins" not in rows(*nodes, on("a"), on("b"))
    assert "device plugins" in rows(*nodes, on("a"), daemon_set("all", NVIDIA))


def operator(kind: str) -> Object:
    return {"kind": kind, "metadata": {"name": kind.lower()}}


def test_both_resources_of_nvidias_operator() -> None:
    both = operator("ClusterPolicy"), operator("GPUCluster")
    row = the_row(rows(*both), "GPU operator")
    assert row.state is State.WRONG
    assert row.subject == "ClusterPolicy clusterpolicy, GPUCluster gpucluster"
    assert "GPU operator" not in rows(both[0])
    assert "GPU operator" not in rows(node("n"), broken=("gpuclusters",))
    assert the_row(rows(both[0], broken=("gpuclusters",)), "GPU operator").state is State.NOT_KNOWN


def test_pods_that_ask_for_a_resource_that_only_a_class_could_give() -> None:
    objects = (node("dra", {GPU: 0}), devices("dra"), pod("waits", {GPU: 3}))
    row = the_row(rows(*objects, device_class(DRIVER)), "device classes")
    assert (row.subject, row.state) == (GPU, State.WRONG)
    assert row.message.startswith("pods wait for 3, which no node offers")
    with_name = device_class(DRIVER, extendedResourceName=GPU)
    assert "device classes" not in rows(*objects, with_name)
    plugin = node("plugin", {GPU: 8})
    assert "device classes" not in rows(*objects, plugin, device_class(DRIVER))
    assert "device classes" not in rows(*objects[:2], device_class(DRIVER))
    unknown = the_row(rows(*objects, broken=("deviceclasses",)), "device classes")
    assert unknown.state is State.NOT_KNOWN


KUEUE = {
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "kueue-validating-webhook-configuration"},
    "webhooks": [
        {
            "name": "vclusterqueue.kb.io",
            "clientConfig": {"service": {"name": "kueue-webhook-service", "namespace": "queues"}},
        }
    ],
}


def configuration(text: str) -> Object:
    metadata = {"name": "kueue-manager-config", "namespace": "queues"}
    data = {"controller_manager_config.yaml": text}
    return {"kind": "ConfigMap", "metadata": metadata, "data": data}


MAPPED = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
resources:
  deviceClassMappings:
  - name: gpus
    deviceClassNames: [{names}]
"""


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (configuration("kind: Configuration\n"), State.WRONG),
        (configuration(MAPPED.format(names="mig.nvidia.com")), State.WRONG),
        (configuration(MAPPED.format(names="gpu.nvidia.com, h100")), State.OK),
        (configuration(MAPPED.format(names="'gpu.nvidia.com")), State.NOT_KNOWN),
        (operator("Other"), State.NOT_KNOWN),
    ],
)
def test_classes_that_kueue_does_not_count(found: Object, state: State) -> None:
    own = device_class("h100", extendedResourceName=GPU)
    classes = (device_class(DRIVER), own, device_class("net.example.com"))
    row = the_row(rows(node("dra"), devices("dra"), *classes, KUEUE, found), "Kueue")
    assert (row.subject, row.state) == ("configmap/kueue-manager-config in queues", state)


def test_a_configuration_of_kueue_that_the_account_may_not_read() -> None:
    objects = (node("dra"), devices("dra"), device_class(DRIVER), KUEUE)
    row = the_row(rows(*objects, forbidden=("configmaps",)), "Kueue")
    remedy = "grant the right to get configmaps in namespace queues"
    assert (row.state, row.remedy) == (State.NOT_KNOWN, remedy)
    assert "Kueue" not in rows(*objects[:3])
    assert "Kueue" not in rows(node("n", {GPU: 1}), KUEUE)


def workload(name: str, message: str, status: str = "False") -> Object:
    condition = {"type": "QuotaReserved", "status": status, "message": message}
    return {
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "ml"},
        "status": {"conditions": [condition]},
    }


UNTOLERATED = "untolerated taint {nvidia.com/gpu present NoSchedule <nil>} in flavor a100"
ASSIGN = "couldn't assign flavors to pod set main: "
UNUSED_QUOTA = "insufficient unused quota for nvidia.com/gpu in flavor spot, 2 more needed"
NO_QUOTA = (
    "insufficient quota for nvidia.com/gpu in flavor plain, previously considered podsets requests "
    "(0) + current podset request (2) > maximum capacity (0)"
)
NO_NODES = """topology "racks" doesn't allow to fit any of 2 pod(s). Total nodes: 3"""
NODE_TAINT = 'taint "nvidia.com/gpu=present:NoSchedule"'


def test_workloads_that_kueue_never_admits_because_of_a_taint() -> None:
    waits = [workload(name, ASSIGN + UNTOLERATED) for name in ("one", "two")]
    row = the_row(rows(node("n", {GPU: 1}), *waits), "Kueue")
    assert (row.subject, row.state) == ("resourceflavor/a100", State.WRONG)
    assert row.names == ("one in ml", "two in ml")
    assert "2: one in ml, two in ml" in row.message
    assert "spec.tolerations of the flavor" in row.remedy


def test_a_flavor_without_quota_does_not_admit_them_either() -> None:
    waits = workload("one", f"{ASSIGN}{NO_QUOTA}, {UNTOLERATED}")
    assert the_row(rows(node("n", {GPU: 1}), waits), "Kueue").subject == "resourceflavor/a100"


def test_workloads_that_select_nodes_of_no_flavor() -> None:
    mismatch = "flavor a100 doesn't match node affinity"
    container = {"name": "main", "resources": {"limits": {GPU: "1"}}}
    pod_set = {"name": "main", "template": {"spec": {"containers": [container]}}}
    of_gpus = {"spec": {"queueName": "team", "podSets": [pod_set]}}

    def of_node(name: str, message: str, **fields: Any) -> Object:
        return {**workload(name, ASSIGN + message), **fields}

    found = rows(
        node("n", {GPU: 1}),
        of_node("one", mismatch, **of_gpus),
        of_node("two", f"{NO_QUOTA}, {mismatch}", **of_gpus),
        of_node("waits-for-quota", f"{mismatch}, {UNUSED_QUOTA}", **of_gpus),
        of_node("without-gpus", mismatch),
    )
    row = the_row(found, "Kueue")
    assert (row.subject, row.state) == ("localqueue/team in ml", State.WRONG)
    assert row.names == ("one in ml", "two in ml")
    assert "other nodes than those of a100" in row.message


def test_a_topology_whose_nodes_no_template_tolerates() -> None:
    waits = workload("one", f"{ASSIGN}{NO_NODES}; excluded: {NODE_TAINT}: 3")
    row = the_row(rows(node("n", {GPU: 1}), waits), "Kueue")
    assert (row.subject, row.state) == ("topology/racks", State.WRONG)
    assert "nvidia.com/gpu=present:NoSchedule" in row.message


@pytest.mark.parametrize(
    "other",
    [
        workload("admitted", "", "True"),
        workload("admitted-later", UNTOLERATED, "True"),
        workload("full", f"{ASSIGN}{UNTOLERATED}, {UNUSED_QUOTA}"),
        workload(
            "nodes-full", f'{NO_NODES}; excluded: resource "nvidia.com/gpu": 2, {NODE_TAINT}: 1'
        ),
        workload("no-nodes", NO_NODES.replace("3", "0")),
        workload("of-teams", UNTOLERATED.replace("nvidia.com/gpu", "example.com/team")),
        {"kind": "Workload", "metadata": {"name": "new"}, "status": None},
    ],
    ids=lambda raw: str(raw["metadata"]["name"]),
)
def test_workloads_that_wait_for_something_else(other: Object) -> None:
    assert "Kueue" not in rows(node("n", {GPU: 1}), other)


def test_claims_that_wait_while_an_autoscaler_runs() -> None:
    def running(image: str) -> Object:
        return pod("autoscaler", containers=[{"name": "main", "image": image}])

    waiting = claim("waits", None)
    for image in ("x.example.com/karpenter/controller:1.9.0", "k8s/cluster-autoscaler:v1.36.1"):
        row = the_row(rows(waiting, running(image)), "autoscaler")
        assert (row.subject, row.state) == ("resourceclaim/waits in team-a", State.NOT_KNOWN)
    assert "autoscaler" not in rows(waiting, running("example.com/web:1"))
    assert "autoscaler" not in rows(running("example.com/karpenter/controller:1.9.0"))


def test_claims_that_have_cards_and_no_pod() -> None:
    user = pod("user", on="dra", resourceClaims=[{"name": "gpu"}])
    ended = pod("ended", on="dra", phase="Succeeded", resourceClaims=[{"name": "gpu"}])
    objects = (node("dra"), devices("dra"), user, ended)
    used = claim("used", "gpu-0", "user")
    assert the_row(rows(*objects, used), "claims").state is State.OK
    for idle in (
        claim("idle", "gpu-1"),
        claim("idle", "gpu-1", "gone"),
        claim("idle", "gpu-1", "ended"),
    ):
        row = the_row(rows(*objects, used, idle), "claims")
        assert row.state is State.WRONG
        assert row.subject.endswith(" in team-a")
    other = claim("other", "gpu-1", "group", resource="podgroups")
    assert the_row(rows(*objects, used, other), "claims").state is State.OK
    assert the_row(rows(*objects, broken=("resourceclaims",)), "claims").state is State.NOT_KNOWN


EXPORTER = "registry.example.com/nvidia/k8s/dcgm-exporter:4.5.3"


@pytest.mark.parametrize(
    ("container", "state"),
    [
        ({}, State.WRONG),
        ({"env": [{"name": "KUBERNETES_ENABLE_DRA", "value": "false"}]}, State.WRONG),
        ({"env": [{"name": "KUBERNETES_ENABLE_DRA", "value": "true"}]}, State.OK),
        ({"args": ["-f", "/etc/counters.csv", "--kubernetes-enable-dra"]}, State.OK),
        ({"args": ["--kubernetes-enable-dra=false"]}, State.WRONG),
    ],
)
def test_exporters_that_do_not_know_claims(container: Object, state: State) -> None:
    exporter = daemon_set("exporter", EXPORTER, container=container)
    row = the_row(rows(node("dra"), devices("dra"), exporter), "GPU exporter")
    assert (row.subject, row.state) == ("daemonset/exporter in kube-system", state)


def test_exporters_of_nodes_without_claims_need_no_setting() -> None:
    exporter = daemon_set("exporter", EXPORTER, nodeSelector={"pool": "plugin"})
    nodes = (node("dra"), node("plugin", {GPU: 2}, labels={"pool": "plugin"}))
    assert "GPU exporter" not in rows(*nodes, devices("dra"), exporter)


ACCEPT = "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"
MOUNTS = "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS"
STRATEGY = "DEVICE_LIST_STRATEGY"


def variables(**values: str) -> Object:
    return {"env": [{"name": name, "value": value} for name, value in values.items()]}


@pytest.mark.parametrize(
    ("of_toolkit", "of_plugin", "state", "message"),
    [
        ({}, {}, State.OK, "only admission closes this way"),
        ({ACCEPT: "true"}, {}, State.OK, "only admission closes this way"),
        ({ACCEPT: "false"}, {}, State.WRONG, "hands out its GPUs by it: pods get none"),
        ({ACCEPT: "false"}, {STRATEGY: "envvar"}, State.WRONG, "pods get none"),
        ({ACCEPT: "false"}, {STRATEGY: "volume-mounts"}, State.WRONG, "nor by mounts"),
        (
            {ACCEPT: "false", MOUNTS: "true"},
            {STRATEGY: "volume-mounts"},
            State.OK,
            "the device plugin uses volume-mounts",
        ),
        ({ACCEPT: "false"}, {STRATEGY: "envvar, cdi-cri"}, State.OK, "uses cdi-cri"),
        ({ACCEPT: "false"}, {"CONFIG_FILE": "/config/config.yaml"}, State.NOT_KNOWN, "another"),
    ],
)
def test_what_the_toolkit_accepts_and_the_device_plugin_does(
    of_toolkit: dict[str, str], of_plugin: dict[str, str], state: State, message: str
) -> None:
    toolkit = daemon_set(
        "toolkit", "example.com/nvidia/container-toolkit:v1.19.1", container=variables(**of_toolkit)
    )
    plugin = daemon_set("plugin", NVIDIA, container=variables(**of_plugin))
    row = the_row(rows(node("n", {GPU: 1}), toolkit, plugin), "toolkit settings")
    assert row.state is state
    assert message in row.message


def test_partitions_that_could_not_be_made() -> None:
    def labels(state: str) -> dict[str, str]:
        return {"nvidia.com/mig.config": "all-1g.5g", "nvidia.com/mig.config.state": state}

    found = rows(
        node("bad", labels=labels("failed")),
        node("good", labels=labels("success")),
        node("pending", labels=labels("pending")),
    )["MIG"]
    assert states(found) == {"bad": State.WRONG, "good": State.OK}
    assert "nvidia.com/mig.config=all-1g.5g" in found[0].message


def test_pods_with_gpus_that_failed_and_that_nobody_makes_again() -> None:
    def failed(name: str, reason: str, **more: Any) -> Object:
        made = pod(name, {GPU: 1}, on="n", phase="Failed", **more)
        made["status"]["reason"] = reason
        return made

    error = "UnexpectedAdmissionError"
    found = rows(
        failed("bare", error),
        failed("of-a-job", error, owner=("Job", "train")),
        failed("ended", ""),
        {**failed("cpu", error), "spec": {"containers": [{"name": "main"}]}},
    )
    row = the_row(found, "failed pods")
    assert (row.subject, row.state) == ("pod/bare in team-a", State.WRONG)
    assert error in row.message
