"""Each cell of the tables in docs/coverage.md states the outcome that the tests observe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from rules.finding import Action
from tests.testkit.admission.registered_webhook import create
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually
from tests.testkit.coverage.fixtures import EVERY_BYPASS, runtime_classes
from tests.testkit.coverage.observed import (
    EXCLUSION_RULE,
    admission_outcome,
    exclusion_outcome,
    lint_outcomes,
)
from tests.testkit.coverage.table import (
    DOCUMENT,
    Bypass,
    bypasses,
    data,
    document,
    profiles,
    strict_policy,
)
from tests.testkit.end_to_end.steps import namespace_with_policy
from webhook.registration import RegistrationOptions, configurations

__all__ = ["runtime_classes"]
WITH_RUNTIME_CLASSES = pytest.mark.usefixtures("runtime_classes")


class Platform(NamedTuple):
    """A profile, and a namespace in mode deny whose policy has that profile."""

    profile: str
    namespace: str


@pytest.fixture(scope="module", params=list(profiles()))
def platform(
    request: pytest.FixtureRequest,
    plane: ControlPlane,
    processes: Processes,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Platform]:
    """A platform with a webhook server of its own."""
    profile = request.param
    folder = tmp_path_factory.mktemp(profile)
    policy = f"profiles: [{', '.join(profiles()[profile])}]\n"
    with namespace_with_policy(plane, processes, folder, f"gpuward-{profile}", policy) as namespace:
        yield Platform(profile, namespace)


@WITH_RUNTIME_CLASSES
@EVERY_BYPASS
def test_pods(plane: ControlPlane, platform: Platform, bypass: Bypass) -> None:
    outcome = admission_outcome(plane, platform.namespace, bypass, "Pod")
    assert outcome == bypass.cell("pods", platform.profile)


@WITH_RUNTIME_CLASSES
@EVERY_BYPASS
def test_workloads(plane: ControlPlane, platform: Platform, bypass: Bypass) -> None:
    outcome = admission_outcome(plane, platform.namespace, bypass, "Deployment")
    assert outcome == bypass.cell("workloads", platform.profile)


@pytest.fixture(scope="module")
def strict(
    plane: ControlPlane, processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A namespace in mode deny with the strict policy."""
    folder = tmp_path_factory.mktemp("strict")
    with namespace_with_policy(
        plane, processes, folder, "gpuward-strict", strict_policy()
    ) as namespace:
        yield namespace


@WITH_RUNTIME_CLASSES
@EVERY_BYPASS
def test_pods_under_the_strict_policy(plane: ControlPlane, strict: str, bypass: Bypass) -> None:
    outcome = admission_outcome(plane, strict, bypass, "Pod", ignored_rules={"image-default-all"})
    assert outcome == bypass.cell("strict")


@pytest.fixture(scope="module")
def exclusion(
    plane: ControlPlane, processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A namespace in mode deny whose pods without a GPU are kept off GPU nodes."""
    folder, policy = (
        tmp_path_factory.mktemp("exclusion"),
        f"rules: {{{EXCLUSION_RULE}: {{action: deny}}}}\n",
    )
    with namespace_with_policy(plane, processes, folder, "gpuward-exclusion", policy) as namespace:
        yield namespace


@WITH_RUNTIME_CLASSES
@EVERY_BYPASS
def test_pods_kept_off_gpu_nodes(plane: ControlPlane, exclusion: str, bypass: Bypass) -> None:
    assert exclusion_outcome(plane, exclusion, bypass) == bypass.cell("exclusion")


@pytest.fixture
def only_gpu_nodes(plane: ControlPlane, exclusion: str) -> Iterator[dict[str, str]]:
    """A label of a node with GPUs, which no other node has."""
    selector = {"exclusion-test": exclusion}
    name = f"{exclusion}-gpus"
    plane.gpu_node(name, labels={"nvidia.com/gpu.present": "true", **selector}, taint=False)
    yield selector
    plane.kubectl("delete", "pods", "--all", "-n", exclusion, "--force")
    plane.request("DELETE", f"/api/v1/nodes/{name}")


@WITH_RUNTIME_CLASSES
def test_the_scheduler_never_places_a_pod_that_is_kept_off_on_a_gpu_node(
    plane: ControlPlane, exclusion: str, only_gpu_nodes: dict[str, str]
) -> None:
    names = set()
    for number, bypass in enumerate(bypasses()):
        pod = {"apiVersion": "v1", "kind": "Pod", **bypass.pod}
        if bypass.cell("exclusion") != "kept off":
            continue
        # Of a pod with nodeName the kubelet decides (tests/real_node/test_exclusion.py), and one
        # whose owner does not exist is deleted.
        if pod["spec"].get("nodeName") or pod["metadata"]["ownerReferences"]:
            continue
        pod["metadata"]["name"] = f"kept-off-{number}"
        pod["spec"]["nodeSelector"] = only_gpu_nodes
        assert create(plane, exclusion, pod, user=bypass.user).status == 201, bypass.name
        names.add(pod["metadata"]["name"])
    assert len(names) >= 30

    def unschedulable() -> set[str]:
        made = plane.request("GET", f"/api/v1/namespaces/{exclusion}/pods").body["items"]
        return {
            pod["metadata"]["name"]
            for pod in made
            for condition in pod["status"].get("conditions", [])
            if condition.get("reason") == "Unschedulable"
        }

    eventually(lambda: unschedulable() == names, what="the scheduler finds no node for any")


@pytest.mark.parametrize("profile", profiles())
def test_lint(profile: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    outcome = lint_outcomes(tmp_path_factory.mktemp("manifests"), bypasses(), profiles()[profile])
    assert outcome == {bypass.name: bypass.cell("lint", profile) for bypass in bypasses()}


@pytest.fixture(scope="module")
def without_gpuward(plane: ControlPlane) -> str:
    """A namespace that no webhook evaluates."""
    return plane.namespace()


@pytest.fixture(scope="module")
def baseline(plane: ControlPlane) -> str:
    """A namespace that only Pod Security evaluates."""
    return plane.namespace({"pod-security.kubernetes.io/enforce": "baseline"})


@WITH_RUNTIME_CLASSES
@EVERY_BYPASS
def test_kubernetes_alone(
    plane: ControlPlane, without_gpuward: str, baseline: str, bypass: Bypass
) -> None:
    for column, namespace in (("kubernetes", without_gpuward), ("baseline", baseline)):
        assert admission_outcome(plane, namespace, bypass, "Pod") == bypass.cell(column), column


def test_the_document_says_what_the_data_say() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == document(text), "run `python -m tests.testkit.coverage.table`"


@EVERY_BYPASS
def test_every_bypass_that_is_not_stopped_names_a_mitigation(bypass: Bypass) -> None:
    cells = {bypass.cell("pods", profile) for profile in profiles()}
    assert bool(bypass.mitigations) == bool(cells & {"announced", "not stopped"})


def test_every_bypass_that_is_not_stopped_off_gpu_nodes_says_why() -> None:
    remaining = {bypass.name for bypass in bypasses() if bypass.remains}
    assert remaining == {
        bypass.name
        for bypass in bypasses()
        if bypass.cell("exclusion") in ("announced", "not stopped")
    }
    assert {bypass.remains for bypass in bypasses()} == {"", *data()["remaining"]}


def test_every_mitigation_is_described_and_used() -> None:
    used_names = [name for bypass in bypasses() for name in bypass.mitigations]
    used_names += [
        name for entry in data()["circumstances"] for name in entry.get("mitigations", "").split()
    ]
    assert set(used_names) == set(data()["mitigations"])


def test_the_objects_that_gpuward_does_not_check_are_not_registered() -> None:
    registered = configurations(
        "gpuward", lambda path: {"url": path}, RegistrationOptions(Action.DENY)
    )
    rules = [r for c in registered for hook in c["webhooks"] for r in hook["rules"]]
    core = {name for rule in rules if rule["apiGroups"] == [""] for name in rule["resources"]}
    pods = {name for name in core if name.partition("/")[0] == "pods"}
    assert pods == {"pods", "pods/ephemeralcontainers"}
    assert not {"nodes", "nodes/status", "bindings", "persistentvolumes", "configmaps"} & core
    dynamic = [rule["resources"] for rule in rules if "resource.k8s.io" in rule["apiGroups"]]
    assert {name for names in dynamic for name in names} == {
        "resourceclaims",
        "resourceclaimtemplates",
    }
