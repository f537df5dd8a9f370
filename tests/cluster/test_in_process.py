"""Exported policies say of pods what the rules say, word for word, on a real API server."""

from __future__ import annotations

import copy
import datetime
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import product
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from policies.loading import default_policy, load_policy
from policies.policy import Policy
from rules.gpu.components import DAEMON_SET_CONTROLLERS
from rules.inventory.inventory import Inventory, Namespace
from rules.objects.pod import MIRROR_ANNOTATION
from rules.profile.context import Context
from tests.testkit.admission.in_process import (
    ADMIN,
    Exports,
    Said,
    agree,
    context_for,
    expected,
    new_pod,
    observed,
    own_exports,
    prepared,
)
from tests.testkit.admission.largest_pods import LARGEST
from tests.testkit.admission.lint_admission_parity import pod_of, pods
from tests.testkit.admission.placed_pods import placed_pods
from tests.testkit.admission.random_pods import random_pod
from tests.testkit.admission.reviews import variable
from tests.testkit.api_subjects import wrap_in_deployment
from tests.testkit.cases import TODAY, cases
from tests.testkit.complete_manifests import TEMPLATES
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import eventually
from tests.testkit.coverage.table import bypasses
from tests.testkit.dry_runs import REFUSED
from tests.testkit.exporter import ACCOUNT, CONTROLLER, FOREIGN, OWN, exporter_pod
from webhook.in_process.objects import (
    DIGEST_ANNOTATION,
    SPEC_DIGEST_ANNOTATION,
    digest_of,
    spec_digest_of,
)
from webhook.in_process.statements import exported_rules

POLICY = default_policy()
RULES = POLICY.rule_set()
EXPORTED = {rule.name for rule in exported_rules(RULES)}
# What docs/in-process.md says that is left out.
DIFFERENCES = {
    "mps-hostpath/by-variable",
    "device-hostpath/expanded-sub-path",
    *(
        f"privileged-gpu/{name}"
        for name in ("runs-nvidia-smi", "runs-torchrun", "runs-a-launcher", "sample-image")
    ),
    *(f"privileged-gpu/{name}-runs-nvidia-smi" for name in ("hook", "probe")),
}
FORBIDDEN = 403
NOBODY: Mapping[str, str] = MappingProxyType({})
CASES = [case for case in cases() if "policy" not in case.circumstances]


@pytest.fixture(scope="module")
def exports(
    control_plane_programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Exports]:
    with own_exports(control_plane_programs, tmp_path_factory.mktemp("exports")) as made:
        yield made


@pytest.fixture(scope="module")
def api_server(exports: Exports) -> Cluster:
    return exports.plane


@pytest.fixture(scope="module")
def namespace(exports: Exports) -> str:
    return exports.add(POLICY)


def _policy(**keys: Any) -> Policy:
    text = yaml.safe_dump({"apiVersion": "gpuward.io/v1", "kind": "Policy", **keys})
    return load_policy(text, "a test")


def _differences(
    exports: Exports,
    pods: dict[str, Any],
    policy: Policy = POLICY,
    users: Mapping[str, str] = NOBODY,
) -> tuple[dict[str, tuple[Said, Said]], Counter[str]]:
    """The pods of which policy and engine differ, and how many were refused, warned about, clean.

    `users` create those that are not created by whom their owner implies. Pods that the API server
    itself refuses are left out.
    """
    differences, seen = {}, Counter[str]()
    rules = policy.rule_set()
    for name, (answer, completed) in exports.compare(pods, users).items():
        said = observed(answer)
        if said is None or completed is None:
            seen["invalid"] += 1
            continue
        context = context_for(pods[name])
        if pods[name]["kind"] == "Pod" and name in users:
            context = context._replace(user=users[name])
        engine = expected(completed, rules, context)
        seen["denied" if said.denied else "warned" if said.warned else "clean"] += 1
        if not agree(engine, said):
            differences[name] = (engine, said)
    return differences, seen


def test_what_api_servers_store_is_as_it_was_written(exports: Exports, namespace: str) -> None:
    """By the digests from which `gpuward doctor` sees changes."""
    stored = exports.stored(namespace)
    assert len({item["kind"] for item in stored}) == 2
    for item in stored:
        annotations = item["metadata"]["annotations"]
        assert annotations[DIGEST_ANNOTATION] == digest_of(item)
        assert annotations[SPEC_DIGEST_ANNOTATION] == spec_digest_of(item)


def test_every_case_is_judged_as_by_the_rules(exports: Exports, namespace: str) -> None:
    given = pods((c.name, c.manifest) for c in CASES)
    names = {name: f"case-{number}" for number, name in enumerate(given)}
    made = {name: prepared(pod_of(given[name]), namespace, names[name]) for name in given}
    differences, seen = _differences(exports, made)
    assert differences.keys() == DIFFERENCES
    assert seen["denied"] >= 60
    assert seen["warned"] >= 80
    assert seen["clean"] >= 400


def test_every_known_bypass_is_judged_as_by_the_rules(exports: Exports, namespace: str) -> None:
    """Those of docs/coverage.md, as Pods and as Deployments."""
    made: dict[str, Any] = {}
    users: dict[str, str] = {}
    for number, bypass in enumerate(bypasses()):
        for manifest in (bypass.pod, bypass.deployment):
            name = f"{bypass.name}/{manifest['kind']}"
            place = {"namespace": namespace, "name": f"bypass-{number}"}
            made[name] = {**manifest, "metadata": {**manifest["metadata"], **place}}
            if bypass.user:
                users[name] = bypass.user
    differences, seen = _differences(exports, made, users=users)
    # As docs/in-process.md says of subPathExpr and of commands.
    different = ("device-file-by-variable", "privileged-program")
    kinds = ("Pod", "Deployment")
    assert differences.keys() == {f"{name}/{kind}" for name in different for kind in kinds}
    assert seen["denied"] >= 50
    assert seen["warned"] >= 100


def test_every_workload_is_judged_as_by_the_rules(exports: Exports, namespace: str) -> None:
    given = pods((c.name, c.manifest) for c in CASES if c.rule in EXPORTED)
    made = {
        name: prepared(wrap_in_deployment(manifest), namespace, f"case-{number}")
        for number, (name, manifest) in enumerate(given.items())
    }
    for kind, (path, _) in TEMPLATES.items():
        pod = {"metadata": {}, "spec": _bypass(namespace)["spec"]}
        for step in reversed(path):
            pod = {step: pod}
        if kind == "CronJob":
            pod["spec"]["schedule"] = "0 0 * * *"
        version = {"CronJob": "batch/v1", "Job": "batch/v1", "PodTemplate": "v1"}
        workload = {"apiVersion": version.get(kind, "apps/v1"), "kind": kind, **pod}
        made[kind] = prepared(workload, namespace, f"one-{kind.lower()}")
        answer = observed(exports.submit_one(made[kind]))
        assert answer is not None
        assert answer.warned
    differences, seen = _differences(exports, made)
    assert differences.keys() == DIFFERENCES
    assert seen["denied"] == 0
    assert seen["warned"] >= 100
    assert seen["clean"] >= 50


def test_cases_with_a_policy_of_their_own_are_judged_by_it(exports: Exports) -> None:
    seen = Counter[str]()
    chosen = [
        case
        for case in cases()
        if case.rule in EXPORTED
        and "namespace" not in case.circumstances
        and any(
            name in case.circumstances.get("policy", {}).get("profiles", ())
            for name in ("amd", "kai")
        )
    ]
    by_policy: dict[str, list[Any]] = {}
    for case in chosen:
        by_policy.setdefault(str(case.circumstances["policy"]), []).append(case)
    for members in by_policy.values():
        policy = members[0].policy
        own = exports.add(policy)
        given = pods((case.name, case.manifest) for case in members)
        made = {
            name: prepared(pod_of(manifest), own, f"case-{number}")
            for number, (name, manifest) in enumerate(given.items())
        }
        differences, counted = _differences(exports, made, policy)
        exports.remove(own)
        assert differences == {}
        seen += counted
    assert seen["denied"] >= 1


@pytest.mark.parametrize("block", range(4))
def test_random_pods_are_judged_as_by_the_rules(
    exports: Exports, namespace: str, block: int
) -> None:
    made = {}
    for seed in range(block * 100, block * 100 + 100):
        random = random_pod(seed)
        metadata = {"annotations": random["annotations"], "labels": random["labels"]}
        name = f"random-{seed}"
        made[name] = new_pod(namespace, name, metadata=metadata, **random["spec"])
    differences, seen = _differences(exports, made)
    assert differences == {}
    assert seen["denied"] >= 20


def test_pods_are_kept_off_gpu_nodes_as_by_the_rules(exports: Exports) -> None:
    nodes = ["nvidia.com/gpu.present=true", "zone=a", "zone=b", "example.com/pool"]
    settings = {"action": "deny", "options": {"nodes": nodes}}
    policy = _policy(rules={"gpu-node-without-request": settings})
    own = exports.add(policy)
    known = [
        case
        for case in cases()
        if case.rule == "gpu-node-without-request" and "inventory" not in case.circumstances
    ]
    manifests = pods((case.name, case.manifest) for case in known)
    made = {
        name: prepared(pod_of(manifest), own, f"case-{number}")
        for number, (name, manifest) in enumerate(manifests.items())
    }
    differences, seen = _differences(exports, made | placed_pods(own, 200), policy)
    exports.remove(own)
    assert differences == {}
    assert seen["denied"] >= 50


def _stored(plane: Cluster, pod: Any) -> Any:
    """`pod`, which is created for real; no scheduler places it."""
    pod["spec"]["schedulerName"] = "nobody"
    return plane.create(f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod)


def _update(plane: Cluster, pod: Any, subresource: str = "") -> Any:
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
    return plane.request("PUT", f"{path}{subresource}?dryRun=All", pod)


def _update_context(old: Any) -> Context:
    metadata = old["metadata"]
    before = {"old_metadata": metadata, "old_spec": old["spec"]}
    return Context(TODAY, metadata["namespace"], ADMIN, "UPDATE", **before)


def test_an_update_is_about_what_it_adds(api_server: Cluster, namespace: str) -> None:
    old = _stored(api_server, new_pod(namespace, "updated"))
    new = {**old, "metadata": {**old["metadata"], "annotations": {"nvidia.cdi.k8s.io/pod": "a"}}}
    answer = _update(api_server, new)
    said = observed(answer)
    assert said == expected(new, RULES, _update_context(old), old)
    assert said is not None
    assert said.denied
    labelled = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}
    assert _update(api_server, labelled).status < REFUSED


def test_an_update_may_keep_what_was_there(
    api_server: Cluster, exports: Exports, namespace: str
) -> None:
    # The pod is made before the policies act.
    own = exports.namespace_like(namespace, **{"gpuward.io/mode": "off"})
    bad = new_pod(own, "kept", metadata={"annotations": {"nvidia.cdi.k8s.io/pod": "a"}})
    old = _eventually_stored(api_server, bad)
    on = {"metadata": {"labels": {"gpuward.io/mode": "deny"}}}
    merge = "application/merge-patch+json"
    path = f"/api/v1/namespaces/{own}"
    assert api_server.request("PATCH", path, on, content_type=merge).status < REFUSED
    exports.wait(own)
    new = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}
    assert observed(_update(api_server, new)) == Said(frozenset(), frozenset())


GROUP = "scheduling.k8s.io/group-name"
# Annotations and labels before and after an update, and who makes it.
UPDATES: tuple[tuple[dict[str, Any], dict[str, Any], str], ...] = (
    ({"annotations": {"hami.io/vgpu-ids-new": "a"}}, {"annotations": {}}, ADMIN),
    ({"annotations": {"hami.io/vgpu-ids-new": "a"}}, {"annotations": {"x": "y"}}, "own"),
    ({}, {"annotations": {"hami.io/vgpu-ids-new": "b"}}, ADMIN),
    ({}, {"annotations": {"hami.io/vgpu-ids-new": ""}}, ADMIN),
    ({}, {"annotations": {"hami.io/vgpu-ids-new": "b"}}, "own"),
    ({}, {"annotations": {"hami.io/vgpu-ids-new": "b"}}, "system:serviceaccount:hami:hami"),
    (
        {"annotations": {"hami.io/vgpu-ids-new": "a"}},
        {"annotations": {"hami.io/vgpu-ids-new": "b"}},
        ADMIN,
    ),
    ({"annotations": {"gpu-fraction": "0.5"}}, {"annotations": {"gpu-fraction": "0.1"}}, ADMIN),
    ({"labels": {"runai-gpu-group": "a"}}, {"labels": {}}, ADMIN),
    ({"annotations": {GROUP: "a"}}, {"annotations": {GROUP: "b"}}, ADMIN),
    (
        {"annotations": {"tensor-fusion.ai/index": "1"}, "labels": {}},
        {
            "annotations": {"tensor-fusion.ai/index": "1"},
            "labels": {"tensor-fusion.ai/component": "worker"},
        },
        ADMIN,
    ),
    ({}, {"labels": {"tensor-fusion.ai/disable-features": "gpu-limiter"}}, ADMIN),
    ({}, {"labels": {"a": "b"}}, ADMIN),
)


def test_updates_of_what_schedulers_count_are_judged_as_by_the_rules(
    api_server: Cluster, exports: Exports, namespace: str
) -> None:
    off = exports.namespace_like(namespace, **{"gpuward.io/mode": "off"})
    seen = Counter[str]()
    made = []
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "main", "image": "x", "resources": limits}
    for number, (before, _, _) in enumerate(UPDATES):
        pod = new_pod(off, f"p-{number}", metadata=before, containers=[container])
        pod["spec"]["schedulerName"] = "volcano"
        path = f"/api/v1/namespaces/{off}/pods"
        made.append(_eventually_created(api_server, path, pod))
    on = {"metadata": {"labels": {"gpuward.io/mode": "deny"}}}
    merge = "application/merge-patch+json"
    path = f"/api/v1/namespaces/{off}"
    assert api_server.request("PATCH", path, on, content_type=merge).status < REFUSED
    exports.wait(off)
    for old, (_, after, user) in zip(made, UPDATES, strict=True):
        name = f"system:serviceaccount:{off}:default" if user == "own" else user
        metadata = {k: v for k, v in old["metadata"].items() if k not in ("annotations", "labels")}
        new = {**old, "metadata": {**metadata, **after}}
        answer = exports.update_one(new, name)
        said = observed(answer)
        context = _update_context(old)._replace(user=name)
        assert said is not None, answer.body
        assert agree(expected(new, RULES, context, old), said), (after, user, said)
        seen["denied" if said.denied else "warned" if said.warned else "clean"] += 1
    assert seen == {"denied": 9, "warned": 2, "clean": 2}


OF_GPU_NODES = {"key": "nvidia.com/gpu", "operator": "Exists"}
EVERY_TAINT: dict[str, Any] = {"operator": "Exists"}
SPOT = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
CLAIMS = [{"name": "card", "resourceClaimName": "card"}]
# The tolerations of a pod and what else it has, those that an update adds, and what is said.
TOLERATION_UPDATES: tuple[tuple[list[Any], dict[str, Any], list[Any], str], ...] = (
    ([], {}, [SPOT], ""),
    ([], {}, [OF_GPU_NODES], 'tolerates the taint "nvidia.com/gpu"'),
    ([], {}, [EVERY_TAINT], "tolerates every taint"),
    ([SPOT], {}, [{**EVERY_TAINT, "effect": "NoSchedule"}], "tolerates every taint"),
    ([OF_GPU_NODES], {}, [SPOT], ""),
    ([OF_GPU_NODES, EVERY_TAINT], {}, [], ""),  # only a label and a finalizer change
    ([OF_GPU_NODES] * 99, {}, [EVERY_TAINT] * 99, "tolerates every taint"),  # the largest pod
    ([], {}, [{**OF_GPU_NODES, "effect": "NoExecute"}], ""),
    ([OF_GPU_NODES], {}, [{**OF_GPU_NODES, "effect": "NoSchedule"}], "tolerates the taint"),
    ([], {"resourceClaims": CLAIMS}, [OF_GPU_NODES], ""),
    ([], {"nodeName": "n"}, [OF_GPU_NODES], "tolerates the taint"),
    ([], {"nodeSelector": {"nvidia.com/gpu.present": "true"}}, [EVERY_TAINT], "tolerates every"),
)


def test_tolerations_that_an_update_adds_are_judged_as_by_the_rules(
    api_server: Cluster, exports: Exports
) -> None:
    policy = _policy(rules={"gpu-node-without-request": {"action": "deny"}})
    own = exports.add(policy)
    off = exports.namespace_like(own, **{"gpuward.io/mode": "off"})
    made = []
    for number, (tolerations, fields, _, _) in enumerate(TOLERATION_UPDATES):
        pod = new_pod(off, f"p-{number}", tolerations=tolerations, **fields)
        pod["spec"]["schedulerName"] = "nobody"
        pod["metadata"]["finalizers"] = ["example.com/own"]
        made.append(_eventually_created(api_server, f"/api/v1/namespaces/{off}/pods", pod))
    on = {"metadata": {"labels": {"gpuward.io/mode": "deny"}}}
    merge = "application/merge-patch+json"
    path = f"/api/v1/namespaces/{off}"
    assert api_server.request("PATCH", path, on, content_type=merge).status < REFUSED
    exports.wait(off)
    for old, (*_, added, words) in zip(made, TOLERATION_UPDATES, strict=True):
        tolerations = [*old["spec"].get("tolerations", ()), *added]
        new = copy.deepcopy(old)
        new["spec"]["tolerations"] = tolerations
        new["metadata"] |= {"labels": {"team": "vision"}, "finalizers": []}
        said = observed(exports.update_one(new, ADMIN))
        engine = expected(new, policy.rule_set(), _update_context(old), old)
        assert said is not None
        assert agree(engine, said), (added, engine, said)
        assert bool(words) == bool(said.denied), (added, said)
        assert words in str(said.denied)
    exports.remove(own)


QUEUE, MANAGED = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/managed"
GATES = [{"name": "kueue.x-k8s.io/admission"}, {"name": "example.com/own"}]
KUEUES: dict[str, Any] = {"labels": {QUEUE: "a", MANAGED: "true"}, "finalizers": [MANAGED]}
# A controller that exists: the garbage collector deletes pods without one.
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "controller": True}
OF_JOB: dict[str, Any] = {
    "labels": {"kueue.x-k8s.io/podset": "main", "job-name": "j"},
    "ownerReferences": [OWNER],
}
KUEUE = "system:serviceaccount:kueue-system:kueue-controller-manager"
# The metadata before and after an update, how many of GATES it leaves, and who makes it.
QUEUE_UPDATES: tuple[tuple[dict[str, Any], dict[str, Any], int, str], ...] = (
    (KUEUES, {}, 0, ADMIN),
    (KUEUES, KUEUES, 1, ADMIN),
    (KUEUES, {**KUEUES, "finalizers": []}, 2, ADMIN),
    (KUEUES, KUEUES, 0, "own"),
    (KUEUES, {}, 0, KUEUE),
    (KUEUES, {**KUEUES, "labels": {QUEUE: "b", MANAGED: "true"}}, 2, ADMIN),
    (KUEUES, {**KUEUES, "labels": {QUEUE: "b", MANAGED: "true"}}, 0, ADMIN),
    (KUEUES, {**KUEUES, "labels": {QUEUE: "", MANAGED: "true"}}, 2, ADMIN),
    (KUEUES, {**KUEUES, "annotations": {"kueue.x-k8s.io/role-hash": "x"}}, 2, ADMIN),
    (KUEUES, {**KUEUES, "annotations": {"kueue.x-k8s.io/retriable-in-group": "x"}}, 2, ADMIN),
    (OF_JOB, {**OF_JOB, "labels": {**OF_JOB["labels"], "job-name": "k"}}, 2, ADMIN),
    (OF_JOB, {**OF_JOB, "ownerReferences": []}, 2, ADMIN),
    (OF_JOB, {**OF_JOB, "labels": {**OF_JOB["labels"], "team": "vision"}}, 2, ADMIN),
)


def test_updates_that_leave_a_queue_are_judged_as_by_the_rules(
    api_server: Cluster, exports: Exports, namespace: str
) -> None:
    off = exports.namespace_like(namespace, **{"gpuward.io/mode": "off"})
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "main", "image": "x", "resources": limits}
    path = f"/api/v1/namespaces/{off}"
    owner = api_server.create(f"{path}/configmaps", {"metadata": {"name": OWNER["name"]}})
    uid = owner["metadata"]["uid"]
    made = []
    for number, (before, *_) in enumerate(QUEUE_UPDATES):
        fields = {"containers": [container], "schedulingGates": GATES}
        pod = new_pod(off, f"p-{number}", metadata=_with_uid(before, uid), **fields)
        made.append(_eventually_created(api_server, f"{path}/pods", pod))
    on = {"metadata": {"labels": {"gpuward.io/mode": "deny"}}}
    merge = "application/merge-patch+json"
    path = f"/api/v1/namespaces/{off}"
    assert api_server.request("PATCH", path, on, content_type=merge).status < REFUSED
    exports.wait(off)
    seen = Counter[str]()
    for old, (before, after, gates, user) in zip(made, QUEUE_UPDATES, strict=True):
        name = f"system:serviceaccount:{off}:default" if user == "own" else user
        metadata = {k: v for k, v in old["metadata"].items() if k not in before}
        spec = {**old["spec"], "schedulingGates": GATES[2 - gates :]}
        new = {**old, "metadata": {**metadata, **_with_uid(after, uid)}, "spec": spec}
        answer = exports.update_one(new, name)
        said = observed(answer)
        context = _update_context(old)._replace(user=name)
        assert said is not None, answer.body
        assert agree(expected(new, RULES, context, old), said), (after, gates, user, said)
        seen["denied" if said.denied else "clean"] += 1
    assert seen == {"denied": 9, "clean": 4}


def test_options_about_namespaces_hold_by_name_and_by_label(exports: Exports) -> None:
    """API servers know the labels of a namespace, and need no inventory."""
    options = {"namespaces": ["ml-*"], "labels": ["gpus=allowed*", "shared-gpus"]}
    settings = {"action": "deny", "options": options}
    policy = _policy(
        profiles=["kai"],
        rules={"gpu-namespace": settings, "gpu-share-namespace": {"action": "deny"}},
    )
    without = exports.add(policy)
    homes = {
        "no label": without,
        "another value": exports.namespace_like(without, gpus="denied"),
        "value": exports.namespace_like(without, gpus="allowed-for-vision"),
        "key": exports.namespace_like(without, **{"shared-gpus": ""}),
    }
    requests: dict[str, dict[str, Any]] = {
        "gpu": {"limits": {"nvidia.com/gpu": "1"}},
        "share": {"limits": {"nvidia.com/gpu.shared": "1"}},
        "cpu": {"limits": {"cpu": "1"}},
    }
    made = {}
    for (title, home), (kind, resources) in product(homes.items(), requests.items()):
        containers = [{"name": "main", "image": "x", "resources": resources}]
        made[f"{title}: {kind}"] = new_pod(home, f"{kind}-pod", containers=containers)
    claims = [{"name": f"no-{n}", "resourceClaimTemplateName": "one-gpu"} for n in range(2)]
    for title, home in homes.items():  # no container uses the claims
        made[f"{title}: claim"] = new_pod(home, "claim-pod", resourceClaims=claims)
    records = {name: Namespace(exports.labels_of(home)) for name, home in homes.items()}
    inventory = Inventory({Namespace: {"": {homes[n]: record for n, record in records.items()}}})
    for name, (answer, completed) in exports.compare(made, {}).items():
        said = observed(answer)
        assert said is not None, answer.body
        context = context_for(made[name])._replace(inventory=inventory)
        assert agree(expected(completed, policy.rule_set(), context), said), (name, said)
        title, _, kind = name.partition(": ")
        may_have_gpus = title in {"value", "key"}
        asks_for_gpu = kind in {"gpu", "claim"}
        assert bool(said.denied) is (kind == "share" or (asks_for_gpu and not may_have_gpus)), name


def _with_uid(metadata: dict[str, Any], uid: str) -> dict[str, Any]:
    owners = [{**owner, "uid": uid} for owner in metadata.get("ownerReferences", ())]
    return {**metadata, "ownerReferences": owners}


def _eventually_created(plane: Cluster, path: str, pod: Any) -> Any:
    return eventually(lambda: plane.create(path, pod), what="a pod in a namespace in mode off")


def _eventually_stored(plane: Cluster, pod: Any) -> Any:
    return eventually(lambda: _stored(plane, pod), what="a pod in a namespace in mode off")


def test_containers_for_debugging_are_judged_as_by_the_rules(
    api_server: Cluster, namespace: str
) -> None:
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "main", "image": "x", "resources": limits}
    old = _stored(api_server, new_pod(namespace, "debugged", containers=[container]))
    seen = set()
    for image, variables in (
        ("nvcr.io/nvidia/cuda:12", []),
        ("busybox", [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]),
        ("busybox", []),
    ):
        added = {"name": "debug", "image": image, "env": variables}
        new = {**old, "spec": {**old["spec"], "ephemeralContainers": [added]}}
        answer = _update(api_server, new, "/ephemeralcontainers")
        assert answer.status in (200, FORBIDDEN), answer.body
        said = observed(answer)
        assert said == expected(new, RULES, _update_context(old), old)
        assert said is not None
        seen.add((bool(said.denied), bool(said.warned)))
    assert seen == {(False, True), (True, False), (False, False)}


def _bypass(namespace: str, **fields: Any) -> Any:
    variables = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    container = {"name": "main", "image": "registry.example.com/app:1", "env": variables}
    return new_pod(namespace, containers=[container], **fields)


def test_the_label_of_a_namespace_chooses_the_mode(exports: Exports, namespace: str) -> None:
    seen = {}
    for mode in ("deny", "warn", "audit", "off"):
        other = exports.namespace_like(namespace, **{"gpuward.io/mode": mode})
        said = _settled(exports, _bypass(other), denied=mode == "deny", warned=mode == "warn")
        seen[mode] = (bool(said.denied), bool(said.warned))
    assert seen == {
        "deny": (True, False),
        "warn": (False, True),
        "audit": (False, False),
        "off": (False, False),
    }


def _settled(exports: Exports, pod: Any, *, denied: bool, warned: bool) -> Said:
    """Return the answers about `pod` once API servers know its namespace."""

    def said() -> list[Said]:
        found = observed(exports.submit_one(pod))
        fits = found is not None and (bool(found.denied), bool(found.warned)) == (denied, warned)
        return [found] if found is not None and fits else []

    return eventually(said)[0]


def test_exceptions_accept_what_they_name_until_their_last_day(exports: Exports) -> None:
    today = datetime.datetime.now(datetime.UTC).date()
    own = {"rules": ["visible-devices-env"], "reason": "a test"}
    policy = _policy(
        exceptions=[
            own | {"match": {"namespace": "test-*", "image": "registry.example.com/tests:*"}},
            own
            | {
                "match": {"namespace": "test-*", "container": "until-tomorrow"},
                "expires": today + datetime.timedelta(days=1),
            },
            own
            | {
                "match": {"namespace": "test-*", "container": "until-yesterday"},
                "expires": today - datetime.timedelta(days=1),
            },
        ]
    )
    named = exports.add(policy)
    refused = {}
    for container, image in (
        ("main", "registry.example.com/app:1"),
        ("main", "registry.example.com/tests:1"),
        ("until-tomorrow", "registry.example.com/app:1"),
        ("until-yesterday", "registry.example.com/app:1"),
    ):
        pod = _bypass(named)
        pod["spec"]["containers"][0] |= {"name": container, "image": image}
        refused[container, image] = exports.submit_one(pod).status == FORBIDDEN
    exports.remove(named)
    assert list(refused.values()) == [True, False, False, True]


def _policy_with_many_exceptions() -> Policy:
    """Some accept findings of the cases; a hundred more name containers that are nowhere."""
    own = {"rules": sorted(EXPORTED), "reason": "a test"}
    matches: list[dict[str, Any]] = [
        {"container": ["trainer", "worker*"]},
        {"image": ["nvcr.io/*", "registry.example.com/*"], "name": "case-1*"},
        {"image": "example.com/*", "container": "main", "name": "case-2*"},
        {"serviceAccount": ["nccl*", "default"], "name": ["case-3*", "case-4"]},
        {"kind": "Deployment", "name": "case-*"},
        {"name": ["case-5*", "case-60"]},
        *({"container": [f"none-{n}", f"*-none-{n}"], "image": f"none/{n}/*"} for n in range(100)),
    ]
    return _policy(exceptions=[own | {"match": {"namespace": "test-*", **m}} for m in matches])


@pytest.fixture(scope="module")
def namespace_with_exceptions(exports: Exports) -> Iterator[str]:
    added = exports.add(_policy_with_many_exceptions())
    yield added
    exports.remove(added)


def test_exceptions_accept_what_they_accept_of_the_rules(
    exports: Exports, namespace_with_exceptions: str
) -> None:
    given = pods((c.name, c.manifest) for c in CASES if c.rule in EXPORTED)
    made = {
        name: prepared(pod_of(given[name]), namespace_with_exceptions, f"case-{number}")
        for number, name in enumerate(given)
    }
    policy = _policy_with_many_exceptions()
    differences, seen = _differences(exports, made, policy)
    assert differences.keys() <= DIFFERENCES
    without, _ = _differences(exports, made)
    accepted = without.keys() - differences.keys()
    assert len(accepted) >= 40, accepted
    assert seen["denied"] >= 20, seen


def test_no_rule_is_run_for_mirror_pods_of_kubelets(exports: Exports, namespace: str) -> None:
    mirror = _bypass(namespace, nodeName="node-1")
    mirror["metadata"]["annotations"] = {MIRROR_ANNOTATION: "a"}
    assert exports.submit_one(mirror, "system:node:node-1").status < REFUSED
    assert exports.submit_one(mirror).status == FORBIDDEN


def test_no_rule_is_run_for_components(
    api_server: Cluster, exports: Exports, namespace: str
) -> None:
    labels = api_server.request("GET", f"/api/v1/namespaces/{namespace}").body["metadata"]["labels"]
    own = "gpu-operator"
    labels = {k: v for k, v in labels.items() if not k.startswith("kubernetes.io/")}
    api_server.create("/api/v1/namespaces", {"metadata": {"name": own, "labels": labels}})
    account = "nvidia-device-plugin"
    path = f"/api/v1/namespaces/{own}/serviceaccounts"
    api_server.create(path, {"metadata": {"name": account}})
    pod = _bypass(own, serviceAccountName=account)
    eventually(lambda: exports.submit_one(pod).status == FORBIDDEN)
    assert exports.submit_one(pod, DAEMON_SET_CONTROLLERS[0]).status < REFUSED
    api_server.request("DELETE", f"/api/v1/namespaces/{own}")


def test_rules_are_run_for_other_programs_in_the_image_of_a_component(
    api_server: Cluster, exports: Exports, namespace: str
) -> None:
    labels = api_server.request("GET", f"/api/v1/namespaces/{namespace}").body["metadata"]["labels"]
    own = "dcgm-exporter"
    labels = {k: v for k, v in labels.items() if not k.startswith("kubernetes.io/")}
    api_server.create("/api/v1/namespaces", {"metadata": {"name": own, "labels": labels}})
    api_server.create(f"/api/v1/namespaces/{own}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
    said = {}
    for number, (what, fields) in enumerate({**OWN, **FOREIGN}.items()):
        env = [*fields.get("env", ()), *variable("all")["env"]]
        made = exporter_pod({**fields, "env": env}, f"exporter-{number}")
        made["metadata"]["namespace"] = own
        said[what] = exports.submit_one(made, CONTROLLER).status
    api_server.request("DELETE", f"/api/v1/namespaces/{own}")
    assert {what for what, status in said.items() if status == FORBIDDEN} == FOREIGN.keys()
    assert all(said[what] < REFUSED for what in OWN), said


@pytest.mark.parametrize("what", LARGEST)
def test_the_largest_pod_is_evaluated_within_the_budget(
    exports: Exports, namespace: str, what: str
) -> None:
    _assert_is_evaluated(exports, new_pod(namespace, **LARGEST[what]))


@pytest.mark.parametrize("what", LARGEST)
def test_the_largest_pod_is_evaluated_with_many_exceptions(
    exports: Exports, namespace_with_exceptions: str, what: str
) -> None:
    _assert_is_evaluated(exports, new_pod(namespace_with_exceptions, **LARGEST[what]))


def _assert_is_evaluated(exports: Exports, pod: Any) -> None:
    answer = exports.submit_one(pod)
    text = str(answer.body) + str(answer.warnings)
    assert answer.status in (201, FORBIDDEN), text
    assert "cost limit" not in text
    assert "too-large" not in text


@pytest.mark.parametrize(
    "what", ["variables", "containers", "images", "mounts of paths of the node"]
)
def test_a_larger_pod_is_refused_with_the_bound(
    exports: Exports, namespace: str, what: str
) -> None:
    fields = copy.deepcopy(LARGEST[what])
    containers = fields["containers"]
    containers.append({**containers[0], "name": "one-more"})
    answer = exports.submit_one(new_pod(namespace, **fields))
    assert answer.status == FORBIDDEN, answer.body
    assert "[too-large]" in answer.body["message"]
