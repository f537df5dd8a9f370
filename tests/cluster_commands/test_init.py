"""`gpuward init` on clusters that are described by files, and with rights missing."""

from __future__ import annotations

import io
import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from cluster.init import POLICY, PRIORITY_QUOTA, VALUES
from cluster.init.cli import main
from cluster.init.documents import write_values
from cluster.init.facts import read_facts
from cluster.source.files import FileSource
from cluster.webhooks.callers import Callers, Peer
from lint.policy.cli import main as check_policy
from policies.loading import default_policy, load_policy
from policies.profiles import built_in_profiles
from rules.finding import Action
from tests.testkit.chart.rendering import CHART, render
from tests.testkit.cluster_commands.gpu_objects import Object, listed, node, pod

PLUGINS = [{"name": "plugins", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]


def workload(kind: str, name: str, namespace: str, account: str = "default") -> Object:
    """A DaemonSet of a device plugin, or a Deployment."""
    spec: Object = {"serviceAccountName": account}
    if kind == "DaemonSet":
        spec["volumes"] = PLUGINS
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"spec": spec}},
    }


def named(kind: str, group: str, name: str, **fields: Any) -> Object:
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name}, **fields}


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> Object:
    return {"key": key, "value": value, "effect": effect}


def gpu_nodes(count: int, *taints: Object, labels: dict[str, str], **amounts: str) -> list[Object]:
    return [
        node(
            f"gpu-{i}",
            {"nvidia.com/gpu": "8", **amounts},
            labels=labels,
            spec={"taints": [*taints]},
        )
        for i in range(count)
    ]


OPERATOR = [
    node("gpu-0", {"nvidia.com/gpu": "8"}, spec={"taints": [taint("dedicated", "gpu")]}),
    node(
        "gpu-1",
        {"nvidia.com/mig-1g.5gb": "7"},
        labels={"nvidia.com/mig.strategy": "mixed", "nvidia.com/gpu.present": "true"},
        spec={"taints": [taint("dedicated", "gpu"), taint("team", "on", "NoExecute")]},
    ),
    node("gpu-2", {"nvidia.com/mig-1g.5gb": "7"}, spec={"taints": [taint("dedicated", "gpu")]}),
    node("cpu-0", spec={"taints": [taint("node.kubernetes.io/not-ready")]}),
    workload("DaemonSet", "nvidia-device-plugin-daemonset", "gpu-operator", "nvidia-device-plugin"),
    workload("DaemonSet", "dcgm-exporter", "monitoring", "dcgm-exporter"),
    workload("DaemonSet", "rdma-plugin", "network"),
    pod("plugin", namespace="gpu-operator", serviceAccountName="nvidia-device-plugin"),
    pod("prometheus", namespace="monitoring", serviceAccountName="prometheus"),
    pod("train", {"nvidia.com/gpu": 1}, schedulerName="yunikorn"),
    named("RuntimeClass", "node.k8s.io/v1", "gpu", handler="nvidia"),
    named(
        "ValidatingWebhookConfiguration",
        "admissionregistration.k8s.io/v1",
        "cert-manager-webhook",
        webhooks=[{"name": "webhook.cert-manager.io"}],
    ),
]
ACK = [
    node(
        "cn-1",
        {"aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2"},
        labels={"ack.node.gpu.schedule": "cgpu", "aliyun.accelerator/nvidia_name": "Tesla-T4"},
    ),
    node(
        "cn-2",
        {"aliyun.com/gpu-mem": "30"},
        labels={"ack.node.gpu.schedule": "cgpu-2"},
    ),
    workload("DaemonSet", "gpushare-device-plugin", "kube-system", "gpushare-device-plugin"),
]
GKE_LABELS = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
GKE = gpu_nodes(2, taint("nvidia.com/gpu", "present"), labels=GKE_LABELS)
KAI = workload("Deployment", "kai-scheduler-default", "kai-scheduler")
HAMI = [
    *gpu_nodes(4, labels={"gpu": "on"}),
    workload("DaemonSet", "hami-device-plugin", "hami-system", "hami-device-plugin"),
]
DRA = [
    named("ResourceSlice", "resource.k8s.io/v1", "s", spec={"driver": "gpu.nvidia.com"}),
    named(
        "DeviceClass",
        "resource.k8s.io/v1",
        "fast.example.com",
        spec={"extendedResourceName": "example.com/fast"},
    ),
]
EKS = [
    node(
        "ip-1", {"nvidia.com/gpu": "8"}, labels={"node.kubernetes.io/instance-type": "p5.48xlarge"}
    )
]

# What is certain; what is left to decide, as patterns of lines of either file; the merged values.
CLUSTERS: dict[str, tuple[list[Object], Any, list[str], Object]] = {
    "operator": (
        OPERATOR,
        [
            {
                "name": "cluster",
                "extends": ["nvidia"],
                "taints": [
                    {
                        "resources": [
                            "nvidia.com/*",
                            "deviceclass.resource.kubernetes.io/*.nvidia.com",
                        ],
                        "key": "nvidia.com/gpu",
                    },
                    {
                        "resources": ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb"],
                        "key": "dedicated",
                        "value": "gpu",
                        "effect": "NoSchedule",
                    },
                ],
                "runtimeClasses": ["gpu"],
            }
        ],
        [
            r"- \{.*key: team, value: \"on\", effect: NoExecute\}  # on node gpu-1, and not",
            r"- \{name: yunikorn, ",
            r"- \{namespaces: \[network\], serviceAccounts: \[default\]\}",
            r"- monitoring  # .*: prometheus$",
        ],
        {
            "mode": "warn",
            "registration": {"excludedNamespaces": ["gpu-operator"]},
            "certificates": {"mode": "certManager"},
            "clusterInventory": {"enabled": True},
        },
    ),
    "ack": (
        ACK,
        [{"name": "cluster", "extends": ["ack"]}],
        [r"ack.node.gpu.schedule: \{.*cgpu-2: \[aliyun.com/gpu-mem\]\}  # cgpu-2 on node cn-2"],
        {"mode": "warn"},
    ),
    "gke": (GKE, ["gke"], [], {"mode": "warn"}),
    "hami": (
        HAMI,
        ["hami"],
        [r"- hami-system  # .* is not known$"],
        {"mode": "warn"},
    ),
    "dra": (
        DRA,
        [{"name": "cluster", "extends": ["nvidia"]}],
        [r"- dra  # perhaps: DeviceClass fast.example.com", r"example.com/fast: \{vendor: other\}"],
        {"mode": "warn"},
    ),
    "eks": (EKS, ["nvidia"], [r"- eks  # instead of nvidia, perhaps: node.kube"], {"mode": "warn"}),
    "empty": (
        [node("cpu-0")],
        None,
        [r"- nvidia  # the default; nothing was seen"],
        {"mode": "warn"},
    ),
}


def run(folder: Path, *objects: Object, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
    """The exit status, and both files."""
    source = folder / "cluster.json"
    source.write_text(json.dumps(listed(*objects)))
    status = main(["-f", str(source), "--directory", str(folder), *options])
    return status, (folder / POLICY).read_text(), (folder / VALUES).read_text()


def test_the_name_of_a_folder_does_not_command_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "of\x1b[2Jothers"
    folder.mkdir()
    for options in ((), ("--write",)):
        run(folder, options=options)
    errors = capsys.readouterr().err
    assert "wrote " in errors
    assert "is up to date" in errors
    assert "\x1b" not in errors


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_files_fit_the_cluster(cluster: str, tmp_path: Path) -> None:
    objects, profiles, decisions, values = CLUSTERS[cluster]
    status, policy_text, values_text = run(tmp_path, *objects)
    assert status == 0
    assert load_policy(policy_text, POLICY)
    assert yaml.safe_load(policy_text).get("profiles") == profiles
    assert yaml.safe_load(values_text) == values
    assert "aliyun.com/gpu-count" not in policy_text  # which no pod asks for
    for pattern in decisions:
        assert re.search(rf"^#.*{pattern}", policy_text + values_text, re.MULTILINE), pattern
    # What is decided carries what was seen.
    for text in (policy_text + values_text).splitlines():
        assert (
            "  # " in text
            or text.startswith("#")
            or text.endswith(":")
            or text
            in {
                "apiVersion: gpuward.io/v1",
                "kind: Policy",
            }
        ), text


DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = Draft7Validator(json.loads((CHART / "values.schema.json").read_text()))


def concrete(pattern: str) -> str:
    return pattern.replace("*", "1x")


@pytest.mark.parametrize("name", built_in_profiles())
def test_every_platform_gives_files_that_can_be_used(name: str, tmp_path: Path) -> None:
    raw = built_in_profiles()[name]
    resources = [concrete(key) for key in raw.get("resources", ()) if "deviceclass." not in key]
    labels = {
        concrete(key): concrete(next(iter(values), "x"))
        for key, values in raw.get("nodeLabels", {}).items()
    }
    made = node(
        "n",
        dict.fromkeys(resources[:3] or ["nvidia.com/gpu"], "1"),
        labels=labels,
        spec={"taints": [taint("a", "1e3")]},
    )
    _, policy, values = run(tmp_path, made)
    for chosen in (lambda text: text, uncommented):
        file = tmp_path / "chosen.yaml"
        file.write_text(chosen(policy))
        assert check_policy(["check", str(file)]) == 0
        merged = merge(deepcopy(DEFAULTS), yaml.safe_load(chosen(values)))
        assert [*SCHEMA.iter_errors(merged)] == []


def merge(values: Object, given: Object) -> Object:
    """`values` as helm changes them by those that a user has `given`."""
    for key, value in given.items():
        is_table = isinstance(value, dict) and isinstance(values.get(key), dict)
        values[key] = merge(values[key], value) if is_table else value
    return values


def test_a_scheduler_is_missing_only_if_somebody_looked(tmp_path: Path) -> None:
    pattern = r"^# Not seen, .* the scheduler hami-scheduler"
    others = (workload("Deployment", "web", "default"), pod("web"))
    assert re.search(pattern, run(tmp_path, *HAMI, *others)[1], re.MULTILINE)
    assert not re.search(pattern, run(tmp_path, *HAMI, options=("--write",))[1], re.MULTILINE)


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (taint("dedicated", "gpu"), r"^      - \{.*key: dedicated"),
        (taint("dedicated", "gpu", "PreferNoSchedule"), r"^#       - \{.*key: dedicated"),
        (taint("aws-node-termination-handler/spot-itn", "7"), ""),
        (taint("cloud.google.com/impending-node-termination"), ""),
        (taint("node.cilium.io/agent-not-ready"), ""),
        (taint("node.cluster.x-k8s.io/uninitialized"), ""),
    ],
)
def test_taints_that_pods_must_tolerate(found: Object, line: str, tmp_path: Path) -> None:
    _, text, _ = run(tmp_path, *gpu_nodes(1, found, labels={}))
    assert bool(re.search(line or found["key"], text, re.MULTILINE)) is bool(line)


def test_a_namespace_with_more_accounts_than_are_counted_is_not_excluded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = workload("DaemonSet", "plugin", "gpu-operator", "nvidia-device-plugin")
    pods = [
        pod(account, namespace="gpu-operator", serviceAccountName=account)
        for account in ("nvidia-a", "nvidia-b", "user")
    ]
    monkeypatch.setattr("cluster.init.facts._MAX_KEYS", 2)
    _, _, values = run(tmp_path, *OPERATOR[:1], plugin, *pods)
    assert re.search(
        r"^#     - gpu-operator  # .* to which no rule would apply", values, re.MULTILINE
    )


@pytest.mark.parametrize(
    ("labelled", "chosen"), [(1, "nvidia"), (19, "nvidia"), (20, "gke"), (39, "gke"), (40, "gke")]
)
def test_a_platform_that_few_nodes_are_labelled_for_is_not_chosen(
    tmp_path: Path, labelled: int, chosen: str
) -> None:
    """Most of the cluster would lose the tolerations of its own platform."""
    nodes = gpu_nodes(40, taint("nvidia.com/gpu", "present"), labels={})
    for made in nodes[:labelled]:
        made["metadata"]["labels"] = GKE_LABELS
    _, text, _ = run(tmp_path, *nodes, *(node(f"cpu-{n}") for n in range(100)))
    assert yaml.safe_load(text)["profiles"] in (
        [chosen],
        [{"name": "cluster", "extends": [chosen]}],
    )
    assert load_policy(text, POLICY).profile.taints
    if labelled < 40:
        line = next(line for line in text.splitlines() if "- gke  #" in line)
        assert line.endswith(f": {labelled} of 40 nodes")
        assert ("instead of nvidia, perhaps: " in line) == (chosen == "nvidia")


def test_an_own_resource_is_enough_on_one_node(tmp_path: Path) -> None:
    """Pods can ask for it, so the policy must know it."""
    nodes = gpu_nodes(40, labels={})
    other = node("odd", {"amd.com/gpu": "8"})
    _, text, _ = run(tmp_path, *nodes, other)
    assert yaml.safe_load(text)["profiles"] == ["amd", "nvidia"]


def test_profiles_of_the_same_resources_become_one(tmp_path: Path) -> None:
    _, text, _ = run(tmp_path, *GKE, KAI)
    assert yaml.safe_load(text)["profiles"][0]["extends"] == ["gke", "kai"]
    both = load_policy(text, POLICY).profile
    gke, kai = default_policy(["gke"]).profile, default_policy(["kai"]).profile
    assert (both.taints, both.affinities) == (gke.taints, gke.affinities)
    assert both.schedulers == kai.schedulers


def test_a_profile_of_two_keeps_what_both_say(tmp_path: Path) -> None:
    cards = [node("a", {"nvidia.com/gpu": "8"}), node("b", {"amd.com/gpu": "8"})]
    _, text, _ = run(tmp_path, *cards)
    assert yaml.safe_load(text)["profiles"] == ["amd", "nvidia"]
    runtime_class = named("RuntimeClass", "node.k8s.io/v1", "gpu", handler="nvidia")
    _, text, _ = run(tmp_path, *cards, runtime_class, options=("--write",))
    found, both = load_policy(text, POLICY).profile, default_policy(["amd", "nvidia"]).profile
    assert (found.taints, found.affinities) == (both.taints, both.affinities)
    assert "gpu" in found.runtime_classes


def uncommented(text: str) -> str:
    """The file of a user who takes every decision; sentences stay comments."""
    return re.sub(
        r"^# (?= *(-|[A-Za-z][\w./-]*: ))|^# (?= *[A-Za-z]+:$)", "", text, flags=re.MULTILINE
    )


@pytest.mark.parametrize("cluster", ["operator", "ack", "hami", "empty"])
def test_what_is_commented_out_fits_in(cluster: str, tmp_path: Path) -> None:
    _, policy, values = run(tmp_path, *CLUSTERS[cluster][0])
    assert uncommented(policy + values) != policy + values
    load_policy(uncommented(policy), POLICY)
    (tmp_path / POLICY).write_text(uncommented(policy))
    (tmp_path / VALUES).write_text(uncommented(values))
    assert render(tmp_path / VALUES, options=("--set-file", f"policyText={tmp_path / POLICY}"))


def test_pods_without_a_gpu_may_be_kept_off_gpu_nodes(tmp_path: Path) -> None:
    agents = [
        workload("DaemonSet", "node-exporter", "monitoring", "exporter"),
        workload("DaemonSet", "cilium", "kube-system", "cilium"),
        workload("DaemonSet", "dcgm", "gpu-operator", "nvidia-dcgm"),
    ]
    image = {"containers": [{"name": "m", "image": "quay.io/prometheus/node-exporter:v1"}]}
    agents[0]["spec"]["template"]["spec"] |= image
    _, proposed, _ = run(tmp_path, *GKE, node("cpu-0"), *agents)
    policy = load_policy(uncommented(proposed), POLICY)
    assert policy.rules["gpu-node-without-request"].action is Action.DENY
    (exception,) = policy.exceptions
    assert (
        "{namespace: monitoring, serviceAccount: exporter, "
        'image: ["quay.io/prometheus/node-exporter:*"]}'
    ) in proposed
    assert exception.rules == ("gpu-node-without-request",)
    assert not load_policy(proposed, POLICY).rules
    others = node("cpu-0"), node("cpu-0", labels=GKE_LABELS)
    for nodes in (GKE, [*GKE, others[1]], [*gpu_nodes(1, labels={}), others[0]]):
        assert "gpu-node-without-request" not in run(tmp_path, *nodes, options=("--write",))[1]


def test_where_the_profile_names_no_such_label_that_of_the_node_pools_is_proposed(
    tmp_path: Path,
) -> None:
    pool = "eks.amazonaws.com/nodegroup"
    gpus = [node(f"gpu-{n}", {"nvidia.com/gpu": "8"}, labels={pool: n}) for n in ("a100", "l4")]
    _, proposed, _ = run(tmp_path, *gpus, node("cpu-0", labels={pool: "cpu"}))
    settings = load_policy(uncommented(proposed), POLICY).rules["gpu-node-without-request"]
    assert settings.options["nodes"] == (f"{pool}=a100", f"{pool}=l4")
    mixed = node("cpu-0", labels={pool: "l4"})
    assert "gpu-node-without-request" not in run(tmp_path, *gpus, mixed, options=("--write",))[1]


def test_hostile_names_change_nothing(tmp_path: Path) -> None:
    evil = 'x\nmode: "off" # {{ }} \u2028\u0085'
    _, *clean = run(tmp_path, *HAMI)
    hostile = [
        node(evil, {evil: "1", f"nvidia.com/{evil}": "1"}),
        node(
            "cpu",
            labels={evil: evil, "gpu": evil},
            spec={"taints": [taint(evil), taint("a", evil)]},
        ),
        workload("DaemonSet", evil, evil, evil),
        workload("DaemonSet", "x" * 10_000, "y" * 10_000),
        named("RuntimeClass", "node.k8s.io/v1", evil, handler="nvidia"),
        named("RuntimeClass", "node.k8s.io/v1", "other", handler=evil),
        named("DeviceClass", "resource.k8s.io/v1", evil, spec={"extendedResourceName": evil}),
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": 7, "labels": []}, "spec": 3},
    ]
    (tmp_path / "other").mkdir()
    _, *found = run(tmp_path / "other", *HAMI, *hostile)
    for before, after in zip(clean, found, strict=True):
        assert yaml.safe_load(after) == yaml.safe_load(before)
        assert "off" not in after
        assert len(after) < len(before) + 500


def test_a_second_run_shows_what_differs_and_keeps_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, before, values = run(tmp_path, *GKE)
    assert run(tmp_path, *GKE) == (0, before, values)
    assert capsys.readouterr().out == ""
    (tmp_path / VALUES).unlink()  # one that is missing is written, also then
    assert run(tmp_path, *HAMI)[:2] == (1, before)
    shown = capsys.readouterr().out
    assert "\n-  - gke  #" in shown
    assert "\n+  - hami  #" in shown
    status, after, _ = run(tmp_path, *HAMI, options=("--write",))
    assert (status, yaml.safe_load(after)["profiles"]) == (1, ["hami"])
    assert "\n-  - gke  #" in capsys.readouterr().out  # what is replaced is not lost unseen
    assert run(tmp_path, *HAMI)[0] == 0


def test_a_second_run_says_if_only_the_evidence_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, before, _ = run(tmp_path, *GKE)
    more = gpu_nodes(3, taint("nvidia.com/gpu", "present"), labels=GKE_LABELS)
    assert run(tmp_path, *more)[:2] == (0, before)
    output = capsys.readouterr()
    assert (
        "+  - gke  # cloud.google.com/gke-accelerator=nvidia-l4 on nodes gpu-0, gpu-1, gpu-2"
        in (output.out)
    )
    said = f"{POLICY} differs only in comments about what was seen, and was not changed"
    assert said in output.err
    (tmp_path / POLICY).write_text(before.replace("- gke", "- aks"))
    assert run(tmp_path, *GKE)[0] == 1


def test_without_a_call_of_the_webhook_the_file_says_the_next_step(tmp_path: Path) -> None:
    _, _, values = run(tmp_path, *GKE)
    assert "networkPolicy" not in yaml.safe_load(values)
    step = (
        r"^#   webhookFrom: \[\]  # if it is empty, any client may call .* `gpuward doctor` says it"
    )
    assert re.search(step, values, re.MULTILINE)


def test_named_callers_stay_if_no_call_can_be_seen(tmp_path: Path) -> None:
    """Else the next upgrade would let any client call the webhook."""
    _, _, values = run(tmp_path, *GKE)
    before, _, _ = values.partition("# networkPolicy:")
    named = f"{before}networkPolicy:\n  webhookFrom:\n    - {{ipBlock: {{cidr: 10.0.0.0/28}}}}\n"
    (tmp_path / VALUES).write_text(named)
    assert run(tmp_path, *GKE, options=("--write",))[2] == named


AGENT = Peer("10.244.1.7", "agent-x2x", "kube-system", {"k8s-app": "agent"})


@pytest.mark.parametrize(
    ("callers", "is_certain"),
    [
        (Callers((Peer("10.0.0.5"),), 1), True),
        (Callers((AGENT,), 3), True),
        (Callers((Peer("10.0.0.5"),), 3), False),
        (Callers((Peer("10.0.0.5"),), 0), False),
    ],
    ids=["one API server", "a tunnel", "one of several", "of an unknown number"],
)
def test_callers_are_certain_if_no_api_server_calls_from_elsewhere(
    callers: Callers, *, is_certain: bool, tmp_path: Path
) -> None:
    source = FileSource([str(tmp_path / "cluster.json")], io.BytesIO(), lambda _: None)
    (tmp_path / "cluster.json").write_text(json.dumps(listed(*GKE)))
    profile = default_policy().profile
    lines = write_values(read_facts(source, profile), profile, callers)
    given = yaml.safe_load("\n".join(lines)).get("networkPolicy")
    wanted = {"webhookFrom": [peer.selector for peer in callers.peers]}
    assert given == (wanted if is_certain else None)
    assert yaml.safe_load(uncommented("\n".join(lines)))["networkPolicy"] == wanted
    merged = merge(deepcopy(DEFAULTS), {"networkPolicy": wanted})
    assert [*SCHEMA.iter_errors(merged)] == []


def test_a_file_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cluster.json").write_text(json.dumps(listed(*GKE)))
    (tmp_path / POLICY).mkdir()
    options = ["-f", str(tmp_path / "cluster.json"), "--directory", str(tmp_path)]
    assert main(options) == 2
    assert capsys.readouterr().err.endswith(f"{POLICY}: is a directory\n")
    assert not (tmp_path / VALUES).exists()


def test_the_quota_is_that_of_the_manual(tmp_path: Path) -> None:
    run(tmp_path)
    written = (tmp_path / PRIORITY_QUOTA).read_text(encoding="utf-8")
    manual = Path("docs/resilience.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", manual, re.DOTALL)
    assert written.endswith(block)
    assert {line[:1] for line in written.removesuffix(block).splitlines()} == {"#"}
