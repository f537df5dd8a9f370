"""Tests of kept decisions for releases of a program: another tag of its image, other commands."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from policies.loading import load_policy
from rules.catalog.index import CATALOG
from rules.gpu.launchers import LAUNCHERS
from tests.testkit.admission.replicas import CONTAINER_LISTS
from tests.testkit.admission.reviews import container, gpus, pod, review_body, variable
from tests.testkit.cases import TODAY, Case, cases
from webhook.admission.answer import answer
from webhook.admission.decider import Decider
from webhook.decision_cache.cache import DecisionCache
from webhook.registration import ROUTES

POLICY = "apiVersion: gpuward.io/v1\nkind: Policy\n"
PODS = [case for case in cases() if case.manifest.get("kind") == "Pod"]
# The only rule that tells all images apart; it needs options.
ABOUT_EVERY_IMAGE = "untrusted-gpu-image"
OPTIONS = {"gpu-namespace": {"options": {"namespaces": ["ml"]}}}
EVERY_RULE = Decider(
    load_policy(
        json.dumps(
            {
                "apiVersion": "gpuward.io/v1",
                "kind": "Policy",
                "rules": {
                    r.name: {"action": "warn", **OPTIONS.get(r.name, {})}
                    for r in CATALOG
                    if r.name != ABOUT_EVERY_IMAGE
                },
            }
        ),
        "policy",
    )
)
IMAGES = (
    "registry.example.com/vision/train:v1",
    "registry.example.com/vision/train:v2",
    "registry.example.com:5000/vision/train@sha256:" + "0" * 64,
    "train:3",
    "train",
    "train:latest",
    "Train:1",
    "",
    "<image>",
    "{{ image }}:1",
    "train:$(TAG)",
    "ordinary-image-?????:1",
    "x" * 1100,
    "nvidia/cuda:12.4.1-base",
    "nvcr.io/nvidia/k8s/dcgm-exporter:4.1",
    "nvcr.io/nvidia/gpu-operator:v25",
    "pytorch/pytorch:2.5-cuda12",
    "pytorch/pytorch:2.5-cpu",
    "rocm/pytorch:latest",
    "registry.example.com/rocm/pytorch:6",
    "vault.habana.ai/gaudi-docker/train:1",
    "registry.example.com/neuron/train:1",
    "registry.example.com/ascend/train:1",
    "vllm/vllm-openai:v0.10",
    "registry.example.com/vllm-openai:v0.10",
    "ghcr.io/huggingface/text-generation-inference:3",
)
COMMANDS: tuple[dict[str, Any], ...] = (
    {},
    {"command": ["python", "train.py"], "args": ["--rate", "0.1"]},
    {"command": ["python", "train.py"], "args": ["--rate", "0.2"]},
    {"args": ["--tensor-parallel-size", "4"]},
    {"command": ["vllm", "serve", "--tensor-parallel-size=4"]},
    {"command": ["python"], "args": ["-m", "torch.distributed.run", "--nproc-per-node=9"]},
    {"command": ["python", "fit.py", "--trainer.devices=16"]},
    {"command": ["sleep", "infinity"]},
    {"command": ["sh", "-c"], "args": ["tail -f /dev/null"]},
    {"args": ["--rmm-managed-memory"]},
    {"command": ["sh", "-c", "CUDA_VISIBLE_DEVICES=0 python train.py & wait"]},
    {"args": ["--device", "MIG-5c89852c"]},
    {"args": ["$(WHICH)"]},
    {"command": ["docker", "run", "--gpus", "all", "train"]},
    *(
        {"args": [*start, f"{launcher.size_options[0][0]}=9"]}
        for launcher in LAUNCHERS
        for start in launcher.start_words
    ),
    {"command": "text", "args": {"odd": 1}},
)


def new_cache() -> DecisionCache:
    return DecisionCache(5_000, 60_000)


def encoded(manifest: Any, **circumstances: Any) -> bytes:
    return json.dumps(review_body(manifest, **circumstances), separators=(",", ":")).encode()


def containers_of(manifest: Any) -> Iterator[dict[str, Any]]:
    for field in CONTAINER_LISTS:
        listed = manifest["spec"].get(field)
        for item in listed if isinstance(listed, list) else ():
            if isinstance(item, dict):
                yield item


def changed(manifest: Any, choices: random.Random) -> Any:
    """A copy of a pod, with other images and commands in some containers."""
    copied = json.loads(json.dumps(manifest))
    for item in containers_of(copied):
        if choices.random() < 3 / 4:
            item["image"] = choices.choice(IMAGES)
        if choices.random() < 1 / 2:
            item.pop("command", None)
            item.pop("args", None)
            item.update(choices.choice(COMMANDS))
    return copied


@pytest.mark.parametrize("case", PODS, ids=lambda case: case.name)
def test_whatever_the_image_and_the_command_the_answer_is_that_of_the_engine(case: Case) -> None:
    choices = random.Random(case.name)  # noqa: S311
    manifest = {"apiVersion": "v1", **case.manifest}
    namespace = case.context.namespace or "team-vision"
    for decider in (Decider(case.policy), EVERY_RULE):
        cache = new_cache()
        for path in ("/mutate/deny", "/validate/deny"):
            for _ in range(4):
                body = encoded(changed(manifest, choices), namespace=namespace)
                found = cache.answer(decider, TODAY, path, body)
                assert found in (None, answer(decider, ROUTES[path], body, TODAY))


def is_kept(first: Any, second: Any, policy: str = POLICY, path: str = "/validate/deny") -> bool:
    """Whether the decision about the pod `first` serves for `second` as well."""
    decider, cache = Decider(load_policy(policy, "policy")), new_cache()
    for manifest in (first, second):
        body = encoded(manifest)
        assert cache.answer(decider, TODAY, path, body) == answer(
            decider, ROUTES[path], body, TODAY
        )
    return cache.hits == 1


def trainer(image: str, *command: str, **fields: Any) -> Any:
    """A pod that is refused."""
    return pod(container(image=image, command=[*command], **variable("all"), **fields))


@pytest.mark.parametrize(
    "image", ["train:v2", "registry.example.com/vision/eval:v1", "train@sha256:" + "1" * 64]
)
def test_a_decision_serves_for_another_ordinary_image(image: str) -> None:
    assert is_kept(trainer("train:v1"), trainer(image))


@pytest.mark.parametrize("image", ["train", "nvidia/cuda:12.4.1-base", "rocm/pytorch:6"])
def test_it_does_not_serve_for_an_image_that_rules_know(image: str) -> None:
    assert not is_kept(trainer("train:v1"), trainer(image))


WORDS_OF_INTEREST = (
    *("torchrun", "trainer.devices=2", "CUDA_VISIBLE_DEVICES=0", "MIG-5c89852c"),
    *("--rmm-managed-memory", "sleep", "tail"),
)


@pytest.mark.parametrize(
    ("option", "kept"), [("--rate=0.2", True), *((word, False) for word in WORDS_OF_INTEREST)]
)
def test_it_serves_for_another_command_that_rules_do_not_know(option: str, *, kept: bool) -> None:
    first, second = (
        trainer("train:v1", "python", text, resources=gpus(limits=1)["resources"])
        for text in ("--rate=0.1", option)
    )
    assert is_kept(first, second) is kept


@pytest.mark.parametrize("escaped", [b"\\u0073leep", b"\\u002D-tp", b"$\\u0028N)", b"\\u007E"])
def test_a_pod_in_which_names_may_be_escaped_is_decided_without_the_cache(escaped: bytes) -> None:
    """API servers escape no letters, which rules look for."""
    manifest = trainer("train:v1", "WORD", "infinity", resources=gpus(limits=1)["resources"])
    body = encoded(manifest).replace(b"WORD", escaped)
    assert new_cache().answer(EVERY_RULE, TODAY, "/validate/deny", body) is None


def test_a_decision_serves_for_another_script_as_api_servers_write_it() -> None:
    cache, path = new_cache(), "/validate/deny"
    manifest = trainer("train:v1", "sh", "-c", "SCRIPT", resources=gpus(limits=1)["resources"])
    for script in (b"./a \\u0026\\u0026 ./b", b'./a \\u003e \\u003cb\\n\\u2028 \\"x\\"'):
        body = encoded(manifest).replace(b"SCRIPT", script)
        found = cache.answer(EVERY_RULE, TODAY, path, body)
        assert found == answer(EVERY_RULE, ROUTES[path], body, TODAY)
    assert cache.hits == 1


@pytest.mark.parametrize("name", ["gpu", "nvidia.com.gpu", "nvidia.com/gpu"])
def test_the_command_of_a_container_with_a_misspelt_gpu_is_read(name: str) -> None:
    """In mode warn, rules say what would be left after the fix."""
    policy = f"{POLICY}rules: {{idle-gpu-holder: {{action: warn}}}}\n"
    busy, idle = (
        trainer("train:v1", "sleep", time, resources={"limits": {name: 1}})
        for time in ("5", "infinity")
    )
    assert not is_kept(busy, idle, policy, "/validate/warn")


def test_the_command_of_a_container_with_a_part_of_a_gpu_is_read() -> None:
    """Annotations of the pod ask for the part, beside a card of another container."""
    policy = f"{POLICY}profiles: [kai]\nrules: {{liveness-without-startup: {{action: warn}}}}\n"
    trained = container(resources=gpus(limits=1)["resources"])
    server = container("server", livenessProbe={"httpGet": {"port": 8000}})
    first, second = (
        pod(trained, {**server, "command": command}, schedulerName="kai-scheduler")
        for command in (["serve"], ["vllm", "serve"])
    )
    for manifest in (first, second):
        keys = {"gpu-fraction": "0.5", "gpu-fraction-container-name": "server"}
        manifest["metadata"]["annotations"] = keys
    assert not is_kept(first, second, policy)


def excepting(image: str, *others: str, namespace: str = "team-vision") -> str:
    patterns = json.dumps([image, *others])
    match = f"namespace: [{namespace}], image: {patterns}"
    return (
        f"{POLICY}exceptions:\n- {{rules: [visible-devices-env], reason: r, match: {{{match}}}}}\n"
    )


def test_an_exception_for_an_image_is_for_that_image_alone() -> None:
    policy = excepting("registry.example.com/vision/*")
    inside, outside = "registry.example.com/vision/train:v1", "registry.example.com/train:v1"
    assert not is_kept(trainer(outside), trainer(inside), policy)
    assert not is_kept(trainer(inside), trainer(outside), policy)
    assert is_kept(trainer(outside), trainer("train:v2"), policy)


@pytest.mark.parametrize(
    ("pattern", "inside"),
    [("*:1", "train:1"), ("*-*", "pre-train:v1"), ("*image*", "image:v1"), ("o*", "o:v1")],
)
def test_an_exception_for_a_part_of_a_name_is_for_images_with_that_part(
    pattern: str, inside: str
) -> None:
    policy = excepting(pattern)
    assert not is_kept(trainer("train:v1"), trainer(inside), policy)
    assert not is_kept(trainer(inside), trainer("train:v1"), policy)


def test_with_very_many_exceptions_for_images_each_image_is_decided_on() -> None:
    policy = excepting(*(f"registry.example.com/{number}" for number in range(101)))
    assert not is_kept(trainer("train:v1"), trainer("train:v2"), policy)


def test_in_a_pod_of_very_many_containers_each_image_is_decided_on() -> None:
    policy = excepting(*(f"registry.example.com/{'x' * 50}/{number}" for number in range(100)))
    containers = [container(f"c{number}", **variable("all")) for number in range(10)]
    manifest, larger = pod(*containers[:5]), pod(*containers)
    for small, kept in ((manifest, True), (larger, False)):
        other = json.loads(json.dumps(small).replace(":1", ":2"))
        assert is_kept(small, other, policy) is kept


def test_exceptions_for_images_in_another_namespace_tell_no_images_apart() -> None:
    policy = excepting("*:v1", *map(str, range(101)), namespace="team-audio")
    assert is_kept(trainer("train:v1"), trainer("train:v2"), policy)


def test_where_only_some_images_are_trusted_each_image_is_decided_on() -> None:
    options = "{action: deny, options: {repositories: ['registry.example.com/*']}}"
    policy = f"{POLICY}rules:\n  {ABOUT_EVERY_IMAGE}: {options}\n"
    resources = gpus(limits=1)["resources"]
    trusted, other = (
        trainer(image, resources=resources) for image in ("registry.example.com/a:1", "a:1")
    )
    assert not is_kept(trusted, other, policy)
    assert not is_kept(other, trusted, policy)


def test_a_pod_of_very_many_containers_keeps_its_images() -> None:
    """To look at each of them would take longer than to evaluate the pod."""
    first, second = (
        pod(*(container(f"c{number}", image=f"train:{tag}") for number in range(101)))
        for tag in ("v1", "v2")
    )
    assert not is_kept(first, second)
