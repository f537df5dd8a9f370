"""docs/coverage.md says what is so: each of its cells is tried."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from registration.configurations import RegistrationOptions, configurations
from rules.finding import Action
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes
from tests.testkit.coverage.fixtures import EVERY, runtime_classes
from tests.testkit.coverage.observed import admitted, linted
from tests.testkit.coverage.table import (
    DOCUMENT,
    Channel,
    channels,
    data,
    document,
    profiles,
    strict_policy,
)
from tests.testkit.end_to_end.steps import judging

__all__ = ["runtime_classes"]
AT_THE_API_SERVER = pytest.mark.usefixtures("runtime_classes")


class Platform(NamedTuple):
    """A profile, and a namespace that is judged under it in mode deny."""

    profile: str
    namespace: str


@pytest.fixture(scope="module", params=list(profiles()))
def platform(
    request: pytest.FixtureRequest,
    plane: ControlPlane,
    processes: Processes,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Platform]:
    """Each platform, with a server of its own."""
    profile = request.param
    folder = tmp_path_factory.mktemp(profile)
    policy = f"profiles: [{', '.join(profiles()[profile])}]\n"
    with judging(plane, processes, folder, f"gpuward-{profile}", policy) as namespace:
        yield Platform(profile, namespace)


@AT_THE_API_SERVER
@EVERY
def test_pods(plane: ControlPlane, platform: Platform, channel: Channel) -> None:
    seen = admitted(plane, platform.namespace, channel, "Pod")
    assert seen == channel.cell("pods", platform.profile)


@AT_THE_API_SERVER
@EVERY
def test_workloads(plane: ControlPlane, platform: Platform, channel: Channel) -> None:
    seen = admitted(plane, platform.namespace, channel, "Deployment")
    assert seen == channel.cell("workloads", platform.profile)


@pytest.fixture(scope="module")
def strict(
    plane: ControlPlane, processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A namespace that is judged by the strict policy."""
    folder = tmp_path_factory.mktemp("strict")
    with judging(plane, processes, folder, "gpuward-strict", strict_policy()) as namespace:
        yield namespace


@AT_THE_API_SERVER
@EVERY
def test_pods_under_the_strict_policy(plane: ControlPlane, strict: str, channel: Channel) -> None:
    seen = admitted(plane, strict, channel, "Pod", unheard={"image-default-all"})
    assert seen == channel.cell("strict")


@pytest.mark.parametrize("profile", profiles())
def test_lint(profile: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    seen = linted(tmp_path_factory.mktemp("manifests"), channels(), profiles()[profile])
    assert seen == {channel.name: channel.cell("lint", profile) for channel in channels()}


@pytest.fixture(scope="module")
def alone(plane: ControlPlane) -> str:
    """A namespace that nobody judges."""
    return plane.namespace()


@pytest.fixture(scope="module")
def baseline(plane: ControlPlane) -> str:
    """A namespace that nobody judges but Pod Security."""
    return plane.namespace({"pod-security.kubernetes.io/enforce": "baseline"})


@AT_THE_API_SERVER
@EVERY
def test_kubernetes_alone(plane: ControlPlane, alone: str, baseline: str, channel: Channel) -> None:
    for door, namespace in (("kubernetes", alone), ("baseline", baseline)):
        assert admitted(plane, namespace, channel, "Pod") == channel.cell(door), door


def test_the_document_says_what_the_data_say() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == document(text), "run `python -m tests.testkit.coverage.table`"


@EVERY
def test_what_is_not_stopped_says_what_closes_it(channel: Channel) -> None:
    cells = {channel.cell("pods", profile) for profile in profiles()}
    assert bool(channel.closing) == bool(cells & {"announced", "not stopped"})


def test_every_closing_is_explained_and_used() -> None:
    used = [word for channel in channels() for word in channel.closing]
    used += [w for each in data()["circumstances"] for w in each.get("closing", "").split()]
    assert set(used) == set(data()["closings"])


def test_what_nobody_looks_at_is_not_registered() -> None:
    registered = configurations(
        "gpuward", lambda path: {"url": path}, RegistrationOptions(Action.DENY)
    )
    rules = [r for c in registered for hook in c["webhooks"] for r in hook["rules"]]
    core = {name for rule in rules if rule["apiGroups"] == [""] for name in rule["resources"]}
    pods = {name for name in core if name.partition("/")[0] == "pods"}
    assert pods == {"pods", "pods/ephemeralcontainers"}
    assert not {"nodes", "nodes/status", "bindings", "persistentvolumes", "configmaps"} & core
    assert "resource.k8s.io" not in {group for rule in rules for group in rule["apiGroups"]}
