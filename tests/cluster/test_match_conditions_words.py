"""Every name by which a rule or a profile recognizes GPUs makes the API server send the pod."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import pytest

from policies.loading import default_policy
from policies.profiles import built_in_profiles
from rules.base.traits import PROGRAM_WORDS, SAMPLE_IMAGES
from rules.catalog.bypass import cdi_annotation, mig_admin_env, nri_cdi_annotation
from rules.catalog.sharing import placement_label, reserved_gpushare_keys
from rules.engine.fixing import check
from rules.gpu.allocation_keys import ALLOCATION_ANNOTATIONS, ALLOCATION_LABELS
from rules.gpu.commands.of_containers import EXEC_PATHS
from rules.gpu.images import CUDA_TAG_WORDS_BY_IMAGE, IMAGES_FOR_ANY_MAKER, NVIDIA_REGISTRIES
from rules.gpu.visibility import CUDA_VERSION
from rules.gpu.volumes import INJECTOR_DOMAINS
from rules.placement.gpu_nodes import LABELS_OF_EVERY_NODE, names_other_accelerator
from rules.placement.node_labels import GPU_COUNT
from rules.profile.context import Context
from tests.testkit.admission.reviews import container, pod, variable
from tests.testkit.cases import TODAY
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.dry_runs import ACCEPTED, DryRuns
from tests.testkit.match_conditions.chart_condition import chart_condition
from tests.testkit.match_conditions.padded_pods import PREFERRED, REQUIRED, node_affinity
from tests.testkit.match_conditions.recorder import registered_recorder

PRIVILEGED: dict[str, Any] = {"securityContext": {"privileged": True}}
MIRROR = "mirror.example.com:5000/"


def labels(raw: Mapping[str, Any]) -> dict[str, list[str]]:
    return {**{label: [] for label in raw.get("nodeModes", {})}, **raw.get("nodeLabels", {})}


_OTHER_MAKERS = re.compile("tpu|neuron|gaudi|habana|npu|ascend|amd|intel")


def node_labels() -> Iterator[tuple[str, Any]]:
    for raw in built_in_profiles().values():
        for pattern, values in labels(raw).items():
            key = pattern.replace("*", "x")
            # NVIDIA's variables mean nothing on nodes of other makers, but privileges do.
            is_nvidia = _OTHER_MAKERS.search(key) is None
            for value in (value.replace("*", "x") for value in values or ["x"]):
                is_other = not is_nvidia or names_other_accelerator(f"{key}: {value}")
                one = container(**PRIVILEGED) if is_other else container()
                yield f"{key}={value}", pod(one, nodeSelector={key: value})
                requirement = {"key": key, "operator": "In", "values": ["other", value]}
                yield f"{key} in {value}", pod(one, affinity=node_affinity([[requirement]]))
            if key in LABELS_OF_EVERY_NODE:
                continue
            one = container() if is_nvidia else container(**PRIVILEGED)
            for operator, operands in (("Exists", []), ("Gt", ["1"]), ("Lt", ["2"])):
                requirement = {"key": key, "operator": operator, "values": operands}
                yield f"{key} {operator}", pod(one, affinity=node_affinity([[requirement]]))
            spread = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
            yield f"over {key}", pod(one, topologySpreadConstraints=[spread])
            pod_affinity = {"podAffinity": {REQUIRED: [{"topologyKey": key}]}}
            yield f"near by {key}", pod(one, affinity=pod_affinity)


def hints() -> Iterator[tuple[str, Any]]:
    facts = [fact for raw in built_in_profiles().values() for fact in raw.get("taints", ())]
    taints = {fact["key"]: fact.get("value") for fact in facts}
    for raw in built_in_profiles().values():
        for pattern, values in labels(raw).items():
            key, value = pattern.replace("*", "x"), next(iter(values), "x").replace("*", "x")
            if key not in LABELS_OF_EVERY_NODE:
                taints.setdefault(key, value)
            requirement = {"key": key, "operator": "In", "values": [value]}
            preference = {"weight": 1, "preference": {"matchExpressions": [requirement]}}
            affinity = {"nodeAffinity": {PREFERRED: [preference]}}
            yield f"preferred {key}", pod(container(**PRIVILEGED), affinity=affinity)
    for key, value in taints.items():
        exists = {"key": key, "operator": "Exists"}
        toleration = exists if value is None else {"key": key, "value": value}
        yield f"toleration {key}", pod(container(**PRIVILEGED), tolerations=[toleration])


def images() -> Iterator[tuple[str, Any]]:
    for registry, tail in product(NVIDIA_REGISTRIES, ("pytorch:1", "a/b@sha256:" + "0" * 64)):
        host, _, path = (registry + tail).partition("/")
        for registry_name in (host, MIRROR + host, f"{host}:443", f"{host}:0443", host.upper()):
            yield f"{registry_name}/{path}", pod(container(image=f"{registry_name}/{path}"))
    for name, words in (
        *CUDA_TAG_WORDS_BY_IMAGE.items(),
        *dict.fromkeys(IMAGES_FOR_ANY_MAKER, ()).items(),
    ):
        for word in words or ("1",):
            for image in (f"{name}:{word}", f"{MIRROR}{name}:{word}"):
                yield image, pod(container(image=image))


def programs() -> Iterator[tuple[str, Any]]:
    for word in PROGRAM_WORDS:
        for field in ("command", "args"):
            command: Any = {field: ["sh", "-c", f"exec {word} run"]}
            yield f"{field} {word}", pod(container(**PRIVILEGED, **command))
        for path in EXEC_PATHS:
            raw: Any = {"command": ["sh", "-c", f"exec {word} run"]}
            for step in reversed(path):
                raw = {step: raw}
            yield f"{'.'.join(path)} {word}", pod(container(**PRIVILEGED, **raw))
    for name in SAMPLE_IMAGES:
        image = f"Mirror.example.com/{name}x:1"
        yield image, pod(container(**PRIVILEGED, image=image))


def keys() -> Iterator[tuple[str, Any]]:
    annotations = [f"{cdi_annotation.CDI_PREFIX}x", nri_cdi_annotation.DOMAIN]
    annotations += [nri_cdi_annotation.FOR_POD, f"{nri_cdi_annotation.FOR_CONTAINER}main"]
    annotations += INJECTOR_DOMAINS
    annotations += [pattern.replace("*", "x") for pattern in ALLOCATION_ANNOTATIONS]
    for raw in built_in_profiles().values():
        for fact in (*raw.get("fractions", ()), *raw.get("schedulers", ())):
            annotations += fact.get("annotations", ())
    metadata_keys = [("annotations", key) for key in annotations]
    switch = reserved_gpushare_keys.TENSOR_FUSION_SWITCH
    label_keys = [GPU_COUNT, placement_label.PLACEMENT_LABEL, switch]
    label_keys += [pattern.replace("/*", "/x") for pattern in ALLOCATION_LABELS]
    metadata_keys += [("labels", key) for key in label_keys]
    for field, key in metadata_keys:
        manifest = pod(container(**PRIVILEGED))
        value = "gpu-limiter" if key == switch else "x"
        manifest["metadata"][field] = {key: "/dev/nvidia0" if field == "annotations" else value}
        yield f"{field} {key}", manifest


def variables() -> Iterator[tuple[str, Any]]:
    alternative = [
        n for raw in built_in_profiles().values() for n in raw.get("alternativeVariables", ())
    ]
    visible = [n for raw in built_in_profiles().values() for n in raw.get("visibleDevices", ())]
    visibility_names = (*visible, *alternative)
    others = (*mig_admin_env.POWER_VERBS, *reserved_gpushare_keys.RESERVED_VARIABLES, CUDA_VERSION)
    for name in (*visibility_names, *others):
        yield name, pod(container(**variable("all", name)))
    for name in visibility_names:
        source = {"prefix": name[:-3], "configMapRef": {"name": "a"}}
        yield f"prefix of {name}", pod(container(envFrom=[source]))


def resources() -> Iterator[tuple[str, Any]]:
    patterns = sorted(
        {name for raw in built_in_profiles().values() for name in raw.get("resources", {})}
    )
    for name, field in product(patterns, ("limits", "requests")):
        gpu_container = container(resources={field: {name.replace("*", "x"): "1"}})
        yield f"{field} {name}", pod(gpu_container, container("other", **PRIVILEGED))


def runtime_classes() -> Iterator[tuple[str, Any]]:
    for name in sorted(
        {n for raw in built_in_profiles().values() for n in raw.get("runtimeClasses", ())}
    ):
        yield name, pod(container(), runtimeClassName=name)


@pytest.fixture
def known_runtime_classes(api_server: Cluster) -> Iterator[None]:
    """The runtime classes of all profiles; those that were not there are removed again."""
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    created = []
    for name, _ in runtime_classes():
        made = {"metadata": {"name": name}, "handler": name}
        if api_server.request("POST", path, made).status == ACCEPTED:
            created.append(name)
    yield
    for name in created:
        api_server.request("DELETE", f"{path}/{name}")


@pytest.mark.usefixtures("known_runtime_classes")
@pytest.mark.parametrize(
    "words", [node_labels, hints, images, programs, keys, variables, resources, runtime_classes]
)
def test_a_pod_with_each_name_alone_is_sent(api_server: Cluster, words: Any) -> None:
    pods = dict(words())
    names = {f"word-{number}": word for number, word in enumerate(pods)}
    runs = DryRuns(api_server)
    conditions = {"everything": "", "default": chart_condition()}
    with registered_recorder(api_server, runs.namespace, conditions) as recorder:
        runs.submit_by_name((name, pods[word]) for name, word in names.items())
        assert [word for name, word in names.items() if not _is_reported(pods[word])] == []
        assert names.keys() <= recorder.names("everything")
        sent = recorder.names("default")
        assert [word for name, word in names.items() if name not in sent] == []


def _is_reported(manifest: Any) -> bool:
    """Return whether some profile makes a rule report the pod: otherwise the name tests nothing."""
    context = Context(TODAY, "team-a", user="alice", operation="CREATE")
    sets = (default_policy([name]).rule_set() for name in built_in_profiles())
    return any(check(manifest, rules, context).findings for rules in sets)
