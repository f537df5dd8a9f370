"""The objects that gpuward reads from commands are those that kubectl makes of them."""

from __future__ import annotations

import copy
import json
import random
import shlex
from typing import Any

import pytest

from sources.kubectl_commands import objects_of_commands
from tests.testkit.control_plane.cluster import Cluster

CASES = 20  # of each seed
ENVIRONMENT = ("NVIDIA_VISIBLE_DEVICES=all", "A=b", "B=", "C=x=y", "D=a,b")
OVERRIDES = (
    '{"spec": {"runtimeClassName": "nvidia"}}',
    '{"metadata": {"labels": {"a": "b"}}}',
    '{"spec": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "x", "operator": "Exists"}]}}',
    '{"apiVersion": "v1", "spec": {"hostPID": true}}',
    '{"spec": {"containers": [{"name": "p", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}',
    '{"spec": {"containers": [{"name": "p", "securityContext": {"privileged": true}}]}}',
)
PATCHES = (
    '[{"op": "add", "path": "/spec/runtimeClassName", "value": "nvidia"}]',
    '[{"op": "replace", "path": "/spec/containers/0/image", "value": "z"}]',
    '[{"op": "add", "path": "/spec/containers/0", "value": {"name": "q", "image": "z"}}]',
    '[{"op": "add", "path": "/spec/containers/-", "value": {"name": "q", "image": "z"}}]',
    '[{"op": "add", "path": "/spec/containers/0/resources/limits", "value": {"cpu": "1"}}]',
)
OPTIONS: tuple[tuple[tuple[str, ...], ...], ...] = (
    *(((f"--env={one}",), ("--env", one)) for one in ENVIRONMENT),
    (("-l", "a=b"), ("--labels=a=b,c=d",), ("-la=b",), ("-l=a=b",)),
    (("--privileged",), ("--privileged=true",), ("--privileged=false",)),
    (
        ("--restart=Never",),
        ("--restart", "Never"),
        ("--port=80",),
        ("--image-pull-policy", "Never"),
    ),
    (("--annotations=a=b",), ("--annotations", "c=d")),
    *(((f"--overrides={one}",), ("--overrides", one)) for one in OVERRIDES),
    *((("--override-type=strategic", "--overrides", one),) for one in OVERRIDES),
    *((("--override-type", "json", f"--overrides={one}"),) for one in PATCHES),
    (("--command",), ("--v=0",), ("--show-managed-fields",), ("--disable-compression",)),
    (("--request-timeout", "60s"), ("--field-manager", "x"), ("--allow-missing-template-keys",)),
    (("-v", "0"), ("-v0",), ("--quiet",), ("-q",), ("--grace-period=-1",), ("--as-group", "x")),
)
# Which kubectl writes by itself, or which concern no rule
OWN_FIELDS = {
    "status": ..., "creationTimestamp": ..., "restartPolicy": ..., "dnsPolicy": ...,
    "imagePullPolicy": ..., "ports": ...,
}  # fmt: skip


def flat(options: list[list[str]]) -> list[str]:
    return [word for option in options for word in option]


def run_command(chooser: random.Random) -> list[str]:
    """The words of a random `kubectl run`."""
    options = [list(chooser.choice(chooser.choice(OPTIONS))) for _ in range(chooser.randint(0, 5))]
    if any("--overrides" in word for option in options for word in option):
        # Of several, the last counts for all.
        options = options[:1] + [each for each in options[1:] if "--override" not in each[0]]
    options.append(chooser.choice([["--image=i"], ["--image", "nvidia/cuda"]]))
    chooser.shuffle(options)
    middle = chooser.randint(0, len(options))
    before, after = options[:middle], options[middle:]
    rest = chooser.choice([[], [], ["--", "sh", "-c", "nvidia-smi --x"], ["sh", "x"]])
    return ["run", *flat(before), "p", *flat(after), *rest]


def quota_command(chooser: random.Random) -> list[str]:
    """The words of a random `kubectl create quota`."""
    hard = ["requests.nvidia.com/gpu=1", "cpu=1", "pods=5,memory=1Gi", "requests.amd.com/gpu=0"]
    options = [
        chooser.choice([[f"--hard={one}"], ["--hard", one]])
        for one in chooser.sample(hard, chooser.randint(0, 2))
    ]
    options += chooser.sample([["--scopes=NotTerminating"], ["--validate=false"]], 1)
    chooser.shuffle(options)
    return ["create", chooser.choice(["quota", "resourcequota"]), "q", *flat(options)]


def without_own_fields(value: Any) -> Any:
    """`value` without what kubectl writes by itself, and without what is empty."""
    if isinstance(value, list):
        return [without_own_fields(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {k: without_own_fields(v) for k, v in value.items() if k not in OWN_FIELDS}
    if "labels" in found:
        found["labels"] = {k: v for k, v in found["labels"].items() if k != "run"}
    return {k: v for k, v in found.items() if v not in ({}, [], None, "")}


@pytest.mark.parametrize("seed", range(8))
def test_an_object_is_the_one_that_kubectl_makes(api_server: Cluster, seed: int) -> None:
    chooser = random.Random(seed)  # noqa: S311  # no secret
    made = 0
    for _ in range(CASES):
        words = chooser.choice([run_command, run_command, quota_command])(chooser)
        end = words.index("--") if "--" in words else len(words)
        dry = ["--dry-run=client", "--output=json"]
        done = api_server.kubectl(*words[:end], *dry, *words[end:], check=False)
        if done.returncode:  # such as two kinds of overrides
            continue
        made += 1
        text = shlex.join(["kubectl", *words]) + "\n"
        found = [copy.deepcopy(one.manifest) for one in objects_of_commands(text)]
        wanted = json.loads(done.stdout)
        wanted["metadata"].pop("namespace", None)
        assert [without_own_fields(each) for each in found] == [without_own_fields(wanted)], text
    assert made > CASES / 2


LABELS = ("nvidia.com/gpu.present=true", "pool=gpu", "empty=", "own-", "ack.node.gpu.schedule=cgpu")
TAINTS = (
    "nvidia.com/gpu=present:NoSchedule",
    "nvidia.com/gpu:NoExecute",
    "key=a.b:PreferNoSchedule",
    "own-",
)
NODE_OPTIONS = (
    *(["--overwrite"], ["--overwrite=true"], ["-v", "0"], ["-v0"], ["--field-manager", "x"]),
    *(["--request-timeout=60s"], ["--show-managed-fields"], ["--as-group", "x", "--as=admin"]),
)


def node_command(chooser: random.Random, verb: str, node: str) -> list[str]:
    """The words of a random `kubectl label` or `kubectl taint` of a node."""
    changes = chooser.sample({"label": LABELS, "taint": TAINTS}[verb], chooser.randint(1, 2))
    subject = chooser.choice([["nodes", node], ["node", node], ["no", node], [f"node/{node}"]])
    options = flat(chooser.sample(NODE_OPTIONS, chooser.randint(0, 2)))
    parts = [*subject, *changes]
    place = chooser.randint(0, 1) * len(parts)
    return [verb, *parts[:place], *options, *parts[place:]]


@pytest.mark.parametrize("verb", ["label", "taint"])
def test_a_node_is_changed_as_kubectl_changes_it(api_server: Cluster, verb: str) -> None:
    chooser = random.Random(verb)  # noqa: S311  # no secret
    node = f"node-of-{verb}"
    taint = {"key": "own", "value": "x", "effect": "NoSchedule"}
    own = {"metadata": {"name": node, "labels": {"own": "x"}}, "spec": {"taints": [taint]}}
    api_server.request("POST", "/api/v1/nodes", own)
    before = api_server.request("GET", f"/api/v1/nodes/{node}").body
    made = 0
    for _ in range(30):
        words = node_command(chooser, verb, node)
        done = api_server.kubectl(*words, "--dry-run=client", "--output=json", check=False)
        if done.returncode:  # such as a label that is there already
            continue
        made += 1
        text = shlex.join(["kubectl", *words]) + "\n"
        (found,) = objects_of_commands(text)
        changed = json.loads(done.stdout)
        assert found.manifest["metadata"]["name"] == node, text
        if verb == "label":
            added = changed["metadata"]["labels"].items() - before["metadata"]["labels"].items()
            assert found.manifest["metadata"]["labels"].items() == added, text
        else:
            # The API server has one of its own, or none yet.
            known = ("own", "node.kubernetes.io/not-ready")
            every = changed["spec"].get("taints", ())
            taints = [each for each in every if each["key"] not in known]
            wanted = {(each["key"], each.get("value", ""), each["effect"]) for each in taints}
            given = found.manifest["spec"]["taints"]
            assert {(t["key"], t["value"], t["effect"]) for t in given} == wanted, text
    assert made > 10
