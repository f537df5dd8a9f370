"""Tests of what the linter knows of other objects of the same run."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.testkit.lint_command import LintCommand

RULE = "visible-devices-configmap"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: model%s}
spec:
  containers:
    - name: main
      image: example.com/main:1
      envFrom: [{configMapRef: {name: settings}}]
"""
SETTINGS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings%s}
data: {NVIDIA_VISIBLE_DEVICES: all}
"""
IN_TEAM, IN_OTHER = ", namespace: team", ", namespace: other"


def test_a_namespace_is_known_wherever_its_objects_are(command: LintCommand) -> None:
    command.write("team/pod.yaml", POD % IN_TEAM)
    command.write("other/pod.yaml", POD % IN_OTHER)
    command.write("settings/team.yaml", SETTINGS % IN_TEAM)
    (found,) = command.json(".").report["findings"]
    assert (found["rule"], found["file"]) == (RULE, "team/pod.yaml")


def test_objects_without_a_namespace_belong_to_those_of_their_folder(
    command: LintCommand,
) -> None:
    command.write("one/pod.yaml", POD % "")
    command.write("two/pod.yaml", POD % "")
    command.write("two/settings.yaml", SETTINGS % "")
    (found,) = command.json(".").report["findings"]
    assert found["file"] == "two/pod.yaml"
    # The user says that all are of one namespace.
    assert len(command.json("-n", "team", ".").report["findings"]) == 2


def test_each_namespace_has_its_own_quota(command: LintCommand) -> None:
    """An end-to-end run over a folder with two teams."""
    for team, gpus in (("vision", 2), ("speech", 8)):
        quota = {"hard": {"requests.nvidia.com/gpu": gpus, "requests.cpu": 64}}
        command.write(f"{team}/quota.yaml", manifest("v1", "ResourceQuota", team, quota))
        resources = {"limits": {"nvidia.com/gpu": 4, "cpu": 8}}
        containers = [{"name": "main", "image": "example.com/main:1", "resources": resources}]
        pods = {"replicas": 3, "template": {"spec": {"containers": containers}}}
        command.write(f"{team}/train.yaml", manifest("apps/v1", "Deployment", team, pods))
    found = {(f["file"], f["rule"]) for f in command.json(".").report["findings"]}
    assert {entry for entry in found if "quota" in entry[1]} == {
        ("vision/train.yaml", "quota-exceeded"),
        ("speech/train.yaml", "quota-replicas"),
    }


def test_a_quota_is_compared_with_the_nodes_of_the_run(command: LintCommand) -> None:
    quota = {"hard": {"requests.nvidia.com/gpu": 8}}
    command.write("team.yaml", manifest("v1", "ResourceQuota", "team", quota))
    assert "quota-incomplete" not in command.json(".").found
    status = {"capacity": {"nvidia.com/gpu": 8, "nvidia.com/mig-1g.5gb": 7}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "status": status}
    nodes = {"apiVersion": "v1", "kind": "List", "items": [node]}
    command.write("nodes.json", json.dumps(nodes))
    assert "quota-incomplete" in command.json(".").found


def manifest(version: str, kind: str, namespace: str, spec: dict[str, Any]) -> str:
    metadata = {"name": "x", "namespace": namespace}
    return json.dumps({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})


def test_a_change_of_the_content_makes_an_object_unknown(command: LintCommand) -> None:
    command.write("pod.yaml", POD % IN_TEAM)
    command.write("production/settings.yaml", SETTINGS % IN_TEAM)
    command.write("copy/settings.yaml", SETTINGS % IN_TEAM)
    assert RULE in command.json(".").found
    command.write("test/settings.yaml", (SETTINGS % IN_TEAM).replace("all", "void"))
    assert RULE not in command.json(".").found


def test_one_text_has_an_inventory_of_its_own(command: LintCommand) -> None:
    objects = f"{SETTINGS % ''}---\n{POD % ''}"
    assert RULE in command.json("-", stdin=objects).found
    items = [yaml.safe_load(text) for text in (SETTINGS % "", POD % "")]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    assert RULE in command.json("-", stdin=listed).found


def test_the_warning_about_room_names_the_place(
    command: LintCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rules.inventory.builder.MAX_CHARACTERS_IN_NAMESPACE", 1)
    command.write("a/settings.yaml", SETTINGS % "")
    command.write("settings.yaml", SETTINGS % "")
    command.write("team.yaml", SETTINGS % IN_TEAM)
    for arguments, stdin, places in (
        (["."], "", "in namespace team, in the folder ., in the folder a"),
        (["-"], SETTINGS % "", "in standard input"),
    ):
        (remark,) = command.json(*arguments, stdin=stdin).report["remarks"]
        assert remark["message"].endswith(f"there are too many: {places}")


def test_a_patch_tells_nothing(command: LintCommand) -> None:
    command.write("pod.yaml", POD % "")
    command.write("settings.yaml", SETTINGS % "")
    command.write("kustomization.yaml", "patches: [{path: settings.yaml}]\n")
    assert RULE not in command.json(".").found


QUEUES = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: research}
spec:
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: a, resources: [{name: nvidia.com/gpu, nominalQuota: QUOTA}]}]
"""
QUEUED = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: team, namespace: ml}
spec: {clusterQueue: research}
---
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: ml, labels: {kueue.x-k8s.io/queue-name: team}}
spec:
  containers:
  - name: main
    image: example.com/train:1
    resources: {limits: {nvidia.com/gpu: 8}}
"""


@pytest.mark.parametrize("folder", ["a-first", "overlay"])
def test_an_object_that_a_patch_changes_is_unknown(command: LintCommand, folder: str) -> None:
    command.write("base/queue.yaml", QUEUES.replace("QUOTA", "2"))
    command.write("base/train.yaml", QUEUED)
    command.write(f"{folder}/queue.yaml", QUEUES.replace("QUOTA", "16"))
    assert "quota-exceeded" in command.json("base").found
    command.write(
        f"{folder}/kustomization.yaml", "resources: [../base]\npatches: [{path: queue.yaml}]\n"
    )
    assert "quota-exceeded" not in command.json(".").found


def test_a_patch_hides_no_variable_of_a_config_map(command: LintCommand) -> None:
    command.write("pod.yaml", POD % IN_TEAM)
    command.write("settings.yaml", SETTINGS % IN_TEAM)
    part = (SETTINGS % IN_TEAM).replace("NVIDIA_VISIBLE_DEVICES: all", "LEVEL: info")
    command.write("overlay/part.yaml", part)
    command.write("overlay/kustomization.yaml", "patches: [{path: part.yaml}]\n")
    assert RULE in command.json(".").found


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_processes_share_the_inventory(command: LintCommand, jobs: str) -> None:
    for number in range(300):
        command.write(f"pods/{number}.yaml", POD % IN_TEAM)
    command.write("settings.yaml", SETTINGS % IN_TEAM)
    report = command.json("--jobs", jobs, ".").report
    assert [f["rule"] for f in report["findings"]] == [RULE] * 300


def test_what_cannot_be_read_is_reported_once(command: LintCommand) -> None:
    command.write("pod.yaml", POD % "")
    command.write("bad.yaml", "kind: RuntimeClass\napiVersion: [")
    done = command.json(".")
    assert (done.status, len(done.report["not_evaluated"])) == (3, 1)


@pytest.mark.parametrize("names", [["all.yaml"], ["pod.yaml", "settings.yaml"]])
def test_a_bug_hides_only_what_depends_on_other_objects(
    command: LintCommand, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    pod = POD % IN_TEAM + "      env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]\n"
    texts = [pod, SETTINGS % IN_TEAM]
    for name, text in zip(names, texts if len(names) > 1 else ["---\n".join(texts)], strict=True):
        command.write(name, text)

    def fail(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("lint.manifest_inventory.add_objects", fail)
    outcome = command.json(".")
    assert outcome.status == 3
    (missing,) = outcome.report["not_evaluated"]
    assert "please report it: KeyError: 'x'" in missing["message"]
    assert [finding["rule"] for finding in outcome.report["findings"]] == ["visible-devices-env"]


def test_pods_that_share_cards_are_compared_with_those_of_other_files(
    command: LintCommand,
) -> None:
    memory = {"aliyun.com/gpu-mem": 2}
    for name, limits in (
        ("small", memory),
        ("big", memory | {"aliyun.com/gpu-core.percentage": 5}),
    ):
        containers = [{"name": "main", "image": "i:1", "resources": {"limits": limits}}]
        selector = {"ack.node.gpu.schedule": "core_mem"}
        pods = {"template": {"spec": {"nodeSelector": selector, "containers": containers}}}
        text = manifest("batch/v1", "Job", "team", pods)
        command.write(f"{name}/job.yaml", text.replace('"x"', f'"{name}"'))
    found = command.json("--profile", "ack", ".").report["findings"]
    assert [(f["rule"], f["file"]) for f in found] == [("job-type-mixing", "small/job.yaml")]


def test_labels_of_nodes_are_compared_with_the_configuration_of_the_mig_manager(
    command: LintCommand,
) -> None:
    text = "version: v1\nmig-configs:\n  halves:\n    - devices: all\n"
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mig"}}
    command.write("config.yaml", yaml.safe_dump({**config, "data": {"config.yaml": text}}))
    for name, value in (("one", "halves"), ("two", "halfs")):
        labels = {"nvidia.com/mig.config": value}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        command.write(f"{name}.yaml", yaml.safe_dump(node))
    (found,) = command.json(".").report["findings"]
    assert (found["rule"], found["file"]) == ("unknown-mig-config", "two.yaml")


MIG_CONFIG = "version: v1\nmig-configs:\n  halves:\n    - devices: all\n"
MIG_VALUES = {"migManager": {"config": {"create": True, "data": {"config.yaml": MIG_CONFIG}}}}


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("values.yaml", MIG_VALUES),
        (
            "release.yaml",
            {
                "apiVersion": "helm.toolkit.fluxcd.io/v2",
                "kind": "HelmRelease",
                "metadata": {"name": "gpu-operator"},
                "spec": {"values": MIG_VALUES},
            },
        ),
        (
            "application.yaml",
            {
                "apiVersion": "argoproj.io/v1alpha1",
                "kind": "Application",
                "metadata": {"name": "gpu-operator"},
                "spec": {"source": {"helm": {"valuesObject": MIG_VALUES}}},
            },
        ),
    ],
)
def test_the_configuration_of_the_mig_manager_may_be_in_the_values_of_its_chart(
    file: str, content: dict[str, Any], command: LintCommand
) -> None:
    command.write(f"operator/{file}", yaml.safe_dump(content))
    for name, value in (("one", "halves"), ("two", "halfs")):
        labels = {"nvidia.com/mig.config": value}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        command.write(f"{name}.yaml", yaml.safe_dump(node))
    (found,) = command.json(".").report["findings"]
    assert (found["rule"], found["file"]) == ("unknown-mig-config", "two.yaml")


CLUSTERS = """\
apiVersion: gpuward.io/v1
kind: Policy
perPath:
  - {paths: clusters/a, profiles: [nvidia]}
  - {paths: clusters/b, profiles: [gke]}
  - {paths: clusters/b/team, rules: {zero-gpu: {action: warn}}}
"""


@pytest.fixture
def clusters(command: LintCommand) -> LintCommand:
    """Two clusters, of which one has a ConfigMap that gives GPUs, and what both have."""
    command.write("gpuward.yaml", CLUSTERS)
    for name, value in (("a", "all"), ("b", "none")):
        text = (SETTINGS % IN_TEAM).replace("all", value)
        command.write(f"clusters/{name}/settings.yaml", text)
        command.write(f"clusters/{name}/team/pod.yaml", POD % IN_TEAM)
    command.write("all/pod.yaml", POD % ", namespace: every")
    command.write("all/settings.yaml", SETTINGS % ", namespace: every")
    command.write("clusters/a/every.yaml", (POD % ", namespace: every"))
    return command


def test_each_cluster_has_its_own_objects_and_those_of_all(clusters: LintCommand) -> None:
    found = {f["file"] for f in clusters.json(".").report["findings"] if f["rule"] == RULE}
    assert found == {"clusters/a/team/pod.yaml", "clusters/a/every.yaml", "all/pod.yaml"}


def test_a_profile_for_all_clusters_is_announced(clusters: LintCommand) -> None:
    said = "--profile replaces the profiles in perPath too"
    assert said not in clusters(".").errors + clusters(".").out
    done = clusters("--profile", "nvidia", ".")
    assert said in done.out + done.errors
    found = {f["file"] for f in clusters.json("--profile", "aks", ".").report["findings"]}
    assert "clusters/a/team/pod.yaml" in found
    assert said not in clusters("--profile", "aks", "all").out
