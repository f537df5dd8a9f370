"""`gpuward why`, `gpuward gpus` and the rule `no-fitting-node` never disagree about one file."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from random import Random

import pytest

from cluster.accounting.usage import ResourceUsage, Usage
from cluster.snapshot.snapshot import Snapshot
from cluster.source.files import FileSource
from cluster.source.objects import name_of
from cluster.why.explainer import Explainer, Workload
from cluster.why.explanation import Answer, Explanation
from policies.loading import load_policy
from policies.policy import Policy
from rules.base.json_values import as_object
from rules.engine.fixing import check
from rules.profile.context import Context
from tests.testkit.cases import TODAY, inventory_of
from tests.testkit.cluster_commands.gpu_objects import Object, pod
from tests.testkit.cluster_commands.random_gpu_clusters import (
    DRIVER,
    EVERY_TAINT,
    HOST,
    MEMORY,
    WHOLE,
    random_gpu_cluster,
)
from tests.testkit.random_seeds import random_seeds

RULE = "no-fitting-node"


def policy_of(profiles: str) -> Policy:
    """A policy with these profiles."""
    return load_policy(f"apiVersion: gpuward.io/v1\nkind: Policy\n{profiles}", "default")


POLICIES = (policy_of(""), policy_of("profiles: [ack]\n"))


def snapshot_of(folder: Path, objects: Iterable[Object]) -> Snapshot:
    file = folder / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects]}))
    return Snapshot(FileSource([str(file)], io.BytesIO()), POLICIES[0].profile)


def explained(explainer: Explainer, made: Object, *beside: Object) -> Explanation:
    return explainer.explain_workload(Workload(made, 1, beside))


def findings(
    made: Object, objects: Iterable[Object], policy: Policy, *, has_all_nodes: bool
) -> list[str]:
    """What the rule says about the pod, where the cluster has these objects."""
    inventory = inventory_of(objects, policy.profile, has_all_nodes=has_all_nodes)
    context = Context(TODAY, "team-a")._replace(inventory=inventory)
    found = check(deepcopy(made), policy.rule_set(), context).findings
    return [finding.message for finding in found if finding.rule == RULE]


@pytest.mark.parametrize("seed", random_seeds(0, 4))
def test_where_the_rule_finds_no_node_why_finds_none(seed: int, tmp_path: Path) -> None:
    random = Random(seed)  # noqa: S311  # not a secret
    answers: Counter[tuple[bool, Answer]] = Counter()
    for _ in range(100):
        cluster = random_gpu_cluster(random)
        found = explained(Explainer(snapshot_of(tmp_path, cluster.objects)), cluster.pod)
        for policy in POLICIES:
            for has_all_nodes in (True, False):
                said = findings(cluster.pod, cluster.objects, policy, has_all_nodes=has_all_nodes)
                assert not said or found.answer is Answer.CANNOT, (said, found.verdict, cluster)
                answers[bool(said), found.answer] += 1
    assert answers[True, Answer.CANNOT] > 20, answers
    assert answers[False, Answer.CAN] > 3, answers


def asking(resource: str, count: int, on: str) -> tuple[Object, ...]:
    """A new pod that asks for devices of one node, and tolerates everything there.

    Those of DRIVER it gets by a claim: what follows is the template of it.
    """
    made = pod("new", {resource: count}, nodeSelector={HOST: on}, tolerations=[EVERY_TAINT])
    del made["status"]
    if resource != DRIVER:
        return (made,)
    made["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "gpus"}]
    made["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpus"}]}
    exactly = {"deviceClassName": DRIVER, "count": count}
    template: Object = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpus", "namespace": "team-a"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }
    return made, template


def without_taints(raw: Object) -> Object:
    return {**raw, "spec": {}} if raw["kind"] == "Node" else raw


def room(usage: Usage, node: str, resource: str) -> ResourceUsage | None:
    """What `gpuward gpus` says of a resource of a node; None if it offers its cards twice."""
    found = [one for one in usage.nodes if one.name == node]
    if any(
        resource in (*twice.resources, twice.driver) for n in found for twice in n.offered_twice
    ):
        return None
    rows = (row for one in found for row in one.resources if row.resource == resource)
    return next(rows, ResourceUsage(resource, 0, 0))


@pytest.mark.parametrize("seed", random_seeds(0, 4))
def test_gpus_has_room_for_what_why_says_can_run(seed: int, tmp_path: Path) -> None:
    random = Random(seed)  # noqa: S311  # not a secret
    known: Counter[str] = Counter()
    for _ in range(40):
        cluster = random_gpu_cluster(random)
        # gpus counts what is on a node that takes no pods as not available.
        open_cluster = snapshot_of(tmp_path, map(without_taints, cluster.objects))
        usage = open_cluster.usage(open_cluster.count())
        explainer = Explainer(snapshot_of(tmp_path, cluster.objects))
        served = [as_object(raw.get("spec")).get("extendedResourceName") for raw in cluster.others]
        # What a class serves, nodes may offer by their drivers.
        for resource in (*(each for each in WHOLE if each not in served), MEMORY, DRIVER):
            for name in map(name_of, cluster.nodes):
                used = room(usage, name, resource)
                if used is None or not used.total:
                    continue
                count = used.free + used.stranded
                if resource == MEMORY:
                    if used.stranded or used.free_on_card is None:
                        continue
                    count = used.free_on_card
                known[resource] += count > 0
                for asked in {1, int(count), int(count) + 1} - {0}:
                    found = explained(explainer, *asking(resource, asked, name))
                    assert (found.answer is Answer.CAN) == (asked <= count), (used, found, cluster)
    assert all(known[each] > 3 for each in (*WHOLE, MEMORY, DRIVER)), known
