"""Kyverno and Gatekeeper change pods beside gpuward in mode deny, called before it or after it."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from policies.loading import default_policy
from tests.testkit.admission.in_process import Exports
from tests.testkit.admission.registered_webhook import create
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually
from tests.testkit.controllers.controller import Controller, built
from tests.testkit.controllers.examples import (
    Example,
    job,
    job_without_gpus,
    pod,
    pod_without_gpus,
)
from tests.testkit.controllers.mutations import (
    ENGINES,
    POOL,
    REGISTRY,
    SEES_GPUS,
    TEAM,
    Engine,
)
from tests.testkit.controllers.steps import (
    MADE_BY_KUBERNETES,
    apply_again,
    events,
    forget_events,
    remove,
    repeated_writes,
    run,
)
from tests.testkit.end_to_end.steps import apply, list_pods, namespace_with_policy
from webhook.in_process.fixes import fix_objects
from webhook.in_process.objects import ExportOptions, policy_objects

pytest_plugins = ["tests.testkit.controllers.fixtures"]
NODE = "gpu-engines"
EXAMPLES = {"pod": pod, "job": job}
REFUSED = "[visible-devices-env]"


@pytest.fixture(scope="module", params=ENGINES)
def engine(
    request: pytest.FixtureRequest,
    plane: ControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Engine]:
    """An engine that changes all pods of the cluster, and a GPU node with a taint."""
    chosen = ENGINES[request.param]
    recipe = chosen.recipe
    plane.gpu_node(NODE, labels={"nvidia.com/gpu.present": "true", **dict([POOL])})
    with Controller(recipe, plane, built(chosen.build), tmp_path_factory.mktemp(recipe.name)):
        namespace = plane.namespace()

        def acts() -> bool:
            for policy in chosen.policies:
                apply(plane, "default", policy, "--server-side")
            wanted = pod_without_gpus(**dict([SEES_GPUS])).manifest
            return is_changed(create(plane, namespace, wanted, dry_run=True).body)

        eventually(acts, what=f"{recipe.name} changes pods")
        yield chosen
        for policy in chosen.policies:
            name = f"{policy['kind'].lower()}/{policy['metadata']['name']}"
            plane.kubectl("delete", name.replace("/", f".{_group(policy)}/", 1))
    plane.request("DELETE", f"/api/v1/nodes/{NODE}")


def _group(policy: dict[str, str]) -> str:
    return policy["apiVersion"].rpartition("/")[0]


def is_changed(found: dict[str, object]) -> bool:
    """Return whether a pod has everything that an engine adds to it."""
    assert isinstance(found, dict)
    assert "spec" in found, found
    text = json.dumps(found)
    return all(
        part in text
        for part in (
            json.dumps(TEAM[1]),
            json.dumps(dict([POOL]))[1:-1],
            f'"{REGISTRY}/',
            '"nvidia.com/gpu"',
            "NVIDIA_VISIBLE_DEVICES",
        )
    )


@pytest.fixture(scope="module", params=["before", "after", "policies"])
def order(request: pytest.FixtureRequest) -> str:
    """The order in which gpuward is called; `policies` are exported, and come before webhooks."""
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="module")
def guarded(
    engine: Engine,
    order: str,
    plane: ControlPlane,
    processes: Processes,
    exports: Exports,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """A namespace in mode deny."""
    with ExitStack() as stack:
        if order == "policies":
            namespace = exports.add(default_policy(), ExportOptions(), fix_objects, policy_objects)
            stack.callback(exports.remove, namespace)
        else:
            beginning = engine.before if order == "before" else engine.after
            name = f"{beginning}{engine.recipe.name}"
            folder = tmp_path_factory.mktemp(name)
            namespace = stack.enter_context(
                namespace_with_policy(plane, processes, folder, name, "")
            )
        yield namespace


@pytest.fixture
def unguarded(engine: Engine, plane: ControlPlane) -> str:
    """A namespace in which only the engine acts."""
    assert engine.policies
    return plane.namespace()


def _said_about_pods(plane: ControlPlane, namespace: str, example: Example) -> str:
    """What the user reads who creates a workload: the answer, or an event."""
    done = apply(plane, namespace, example.manifest, check=False)
    return "\n".join([done.stderr, *events(plane, namespace)])


@pytest.mark.parametrize("name", EXAMPLES)
def test_pods_run_with_what_both_add(
    plane: ControlPlane, guarded: str, unguarded: str, name: str
) -> None:
    started = datetime.datetime.now(datetime.UTC)
    example = EXAMPLES[name]()
    for made in run(plane, guarded, example):
        spec = made["spec"]
        assert spec["nodeName"] == NODE
        assert spec["nodeSelector"] == dict([POOL])
        assert made["metadata"]["labels"][TEAM[0]] == TEAM[1]
        assert spec["containers"][0]["image"].startswith(f"{REGISTRY}/")
        tolerations = [json.dumps(t, sort_keys=True) for t in spec["tolerations"]]
        assert len(tolerations) == len(set(tolerations))
        assert "nvidia.com/gpu" in {each["key"] for each in spec["tolerations"]}
        assert "nodeAffinity" in spec["affinity"]  # gpuward's own
    apply(plane, unguarded, example.manifest)
    assert apply_again(plane, guarded, example) == apply_again(plane, unguarded, example)
    assert repeated_writes(plane, guarded, started) == {}
    remove(plane, guarded, example, MADE_BY_KUBERNETES)


@pytest.mark.parametrize("make", [pod_without_gpus, job_without_gpus])
def test_what_an_engine_adds_is_refused(plane: ControlPlane, guarded: str, make: object) -> None:
    """Who wrote the pod, whose manifest is good, reads why."""
    assert callable(make)
    example: Example = make(**dict([SEES_GPUS]))
    forget_events(plane, guarded)

    def is_told() -> bool:
        assert REFUSED in _said_about_pods(plane, guarded, example)
        return True

    eventually(is_told, what="the refusal is told")
    assert not list_pods(plane, guarded)
    plane.kubectl("delete", example.resource, "-n", guarded, "--ignore-not-found")
    # The same without the label: the engine adds no variable, and the pods may be created.
    good: Example = make()
    apply(plane, guarded, good.manifest)
    eventually(lambda: list_pods(plane, guarded), what="a pod is there")
    remove(plane, guarded, good, MADE_BY_KUBERNETES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_the_user_wrote_is_refused(plane: ControlPlane, guarded: str, name: str) -> None:
    example = EXAMPLES[name](0)
    forget_events(plane, guarded)

    def is_told() -> bool:
        assert REFUSED in _said_about_pods(plane, guarded, example)
        return True

    eventually(is_told, what="the refusal is told")
    assert not list_pods(plane, guarded)
    plane.kubectl("delete", example.resource, "-n", guarded, "--ignore-not-found")
