"""`gpuward why` says of each node what kube-scheduler's own filters say of it.

What it says that would change that is tried, too.
"""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from tests.testkit.control_plane.build import scheduler_filters
from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.random_seeds import random_seeds
from tests.testkit.scheduling.filters import AT_ALL, ask_kube_scheduler, differences
from tests.testkit.scheduling.random_clusters import random_scenario
from tests.testkit.scheduling.remedies import after_all_remedies, broken_promises
from tests.testkit.skipping import skip_missing

# What the filters say; without one of them the scenarios would show less than they seem to.
REASONS = {
    "Insufficient cpu",
    "Insufficient example.com/nic",
    "Insufficient memory",
    "Insufficient nvidia.com/gpu",
    "Too many pods",
    "csi.test CSI driver is not installed on the node",
    "driver of an older kind is not installed on the node",
    "node(s) did not have enough free storage",
    "node(s) didn't have free ports for the requested pod ports",
    "node(s) didn't find available persistent volumes to bind",
    "node(s) didn't match PersistentVolume's node affinity",
    "node(s) didn't match Pod's node affinity/selector",
    "node(s) didn't match Pod's required features",
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't match pod topology spread constraints",
    "node(s) didn't match pod topology spread constraints (missing required label)",
    "node(s) didn't satisfy existing pods anti-affinity rules",
    "node(s) didn't satisfy plugin(s) [NodeAffinity]",
    "node(s) exceed max volume count",
    "node(s) had no available disk",
    "node(s) had no available volume zone",
    "node(s) had untolerated taint(s)",
    (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod"
    ),
    "node(s) were unschedulable",
    "pod affinity terms conflict",
}


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return scheduler_filters()
    except BuildError as error:
        skip_missing(str(error))


@pytest.mark.parametrize("seed", random_seeds(0, 10, fast=2))
def test_both_give_each_node_the_same_reasons(program: Path, seed: int) -> None:
    random = Random(seed)  # noqa: S311  # not a secret
    assert [*differences(program, [random_scenario(random) for _ in range(200)])] == []


@pytest.mark.parametrize("seed", random_seeds(100, 10, fast=2))
def test_kube_scheduler_takes_a_pod_once_the_named_remedies_are_applied(
    program: Path, seed: int
) -> None:
    random = Random(seed)  # noqa: S311  # the same
    scenarios = [random_scenario(random) for _ in range(200)]
    assert [*broken_promises(program, scenarios)] == []


@pytest.mark.parametrize("seed", random_seeds(200, 3))
def test_remedies_lead_to_a_node_in_the_end(program: Path, seed: int) -> None:
    """Where one remedy alone would not do, the next answer names the next."""
    random = Random(seed)  # noqa: S311  # the same
    scenarios = [random_scenario(random) for _ in range(200)]
    ends = [after_all_remedies(scenario) for scenario in scenarios]
    reached = [end for end in ends if end is not None]
    assert len(reached) > 190
    for end, refused in zip(reached, ask_kube_scheduler(program, reached), strict=True):
        assert len(refused) < len(end.nodes)


def test_the_scenarios_show_every_reason(program: Path) -> None:
    random = Random(0)  # noqa: S311  # the same
    scenarios = [random_scenario(random) for _ in range(1000)]
    answers = ask_kube_scheduler(program, scenarios)
    found = {
        re.sub(r"^(?!csi\.test)\S+ CSI driver", "driver of an older kind", reason)
        for answer in answers
        for reasons in answer.values()
        for reason in reasons
    }
    assert found == {*REASONS, *AT_ALL}
    fitting = [len(one.nodes) - len(answer) for one, answer in zip(scenarios, answers, strict=True)]
    assert fitting.count(0) in range(300, 800)
