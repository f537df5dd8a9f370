"""Tests of kept decisions for releases of a program: another tag of its image, other commands."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from policies.loading import load_policy
from registration.routes import ROUTES
from rules.catalog.index import CATALOG
from tests.testkit.admission.replicas import CONTAINER_LISTS
from tests.testkit.admission.reviews import container, gpus, pod, review_body, variable
from tests.testkit.cases import TODAY, Case, cases
from webhook.admission.answer import answer
from webhook.admission.decider import Decider
from webhook.decision_cache.cache import DecisionCache

POLICY = "apiVersion: gpuward.io/v1\nkind: Policy\n"
PODS = [case for case in cases() if case.manifest.get("kind") == "Pod"]
# The only rule that tells all images apart; it needs options.
ABOUT_EVERY_IMAGE = "untrusted-gpu-image"
EVERY_RULE = Decider(
    load_policy(
        json.dumps(
            {
                "apiVersion": "gpuward.io/v1",
                "kind": "Policy",
                "rules": {
                    r.name: {"action": "warn"} for r in CATALOG if r.name != ABOUT_EVERY_IMAGE
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


def is_kept(first: Any, second: Any, policy: str = POLICY) -> bool:
    """Whether the decision about the pod `first` serves for `second` as well."""
    decider, cache, path = Decider(load_policy(policy, "policy")), new_cache(), "/validate/deny"
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


@pytest.mark.parametrize(("option", "kept"), [("--rate=0.2", True), ("torchrun", False)])
def test_it_serves_for_another_command_that_rules_do_not_know(option: str, *, kept: bool) -> None:
    first, second = (
        trainer("train:v1", "python", text, resources=gpus(limits=1)["resources"])
        for text in ("--rate=0.1", option)
    )
    assert is_kept(first, second) is kept


def test_an_escaped_command_is_read() -> None:
    cache, path = new_cache(), "/validate/deny"
    resources = gpus(limits=1)["resources"]
    for word in (b"--rate=0.1", b"\\u0073leep", b"\\u0073lurp"):
        manifest = trainer("train:v1", "WORD", "infinity", resources=resources)
        body = encoded(manifest).replace(b"WORD", word)
        found = cache.answer(EVERY_RULE, TODAY, path, body)
        assert found == answer(EVERY_RULE, ROUTES[path], body, TODAY)
    assert cache.hits == 0


def excepting(image: str, *others: str) -> str:
    patterns = json.dumps([image, *others])
    match = f"namespace: [team-vision], image: {patterns}"
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


def test_where_only_some_images_are_trusted_each_image_is_decided_on() -> None:
    options = "{action: deny, options: {repositories: ['registry.example.com/*']}}"
    policy = f"{POLICY}rules:\n  {ABOUT_EVERY_IMAGE}: {options}\n"
    resources = gpus(limits=1)["resources"]
    trusted, other = (
        trainer(image, resources=resources) for image in ("registry.example.com/a:1", "a:1")
    )
    assert not is_kept(trusted, other, policy)
    assert not is_kept(other, trusted, policy)
