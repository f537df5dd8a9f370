"""Applies the remedies that `gpuward why` names to a scenario, as somebody who reads them would.

Of a remedy that names alternatives, the first is applied that a scenario can show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cluster.accounting.pod_requests import amount_of, effective_requests
from cluster.source.objects import Object
from cluster.why.explanation import Answer, Explanation
from cluster.why.groups import NodeGroup
from rules.base.json_values import as_object
from tests.testkit.scheduling.filters import Refusals, ask_kube_scheduler, explain_scenario
from tests.testkit.scheduling.random_clusters import Scenario

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_MAX_ROUNDS = 20


class UnknownRemedyError(Exception):
    """No change of a scenario is known for a remedy."""


class Trial(NamedTuple):
    """A scenario to which the remedies of a group of nodes were applied.

    `nodes` are those that have to take the pod then; empty if the answer says that something else
    is in the way.
    """

    before: Scenario
    after: Scenario
    remedies: tuple[str, ...]
    nodes: tuple[str, ...]

    def is_kept(self, refusals: Refusals) -> bool:
        """Return whether kube-scheduler's answer is what was promised."""
        return not self.nodes or any(node not in refusals for node in self.nodes)


def trials(scenario: Scenario) -> Iterator[Trial]:
    """Yield a trial for each group of nodes that has a remedy; for all hurdles, one."""
    found = explain_scenario(scenario)
    if found.answer is Answer.CAN:
        return
    if found.hurdles:
        remedies = tuple(f"{one.what} -> {one.remedy}" for one in found.hurdles)
        yield Trial(scenario, apply(scenario, remedies, scenario.nodes), remedies, ())
        return
    for group in found.groups:
        if group.remedies:
            after = apply(scenario, group.remedies, _nodes_of(group, scenario))
            nodes = () if group.further else group.names
            yield Trial(scenario, after, group.remedies, nodes)


def broken_promises(program: Path, scenarios: Iterable[Scenario]) -> Iterator[Trial]:
    """The trials after which kube-scheduler still refuses the pod."""
    tried = [trial for scenario in scenarios for trial in trials(scenario)]
    answers = ask_kube_scheduler(program, [trial.after for trial in tried])
    for trial, refused in zip(tried, answers, strict=True):
        if not trial.is_kept(refused):
            yield trial


def after_all_remedies(scenario: Scenario) -> Scenario | None:
    """Apply the remedies of the nearest nodes, and of what the next answers say, to the end.

    None if there is an answer without a remedy, as where no node offers any device.
    """
    for _ in range(_MAX_ROUNDS):
        found = explain_scenario(scenario)
        if found.fitting and not found.hurdles:
            break
        remedies = _first_remedies(found)
        if not remedies:
            return None
        about = scenario.nodes if found.hurdles else _nodes_of(found.groups[0], scenario)
        scenario = apply(scenario, remedies, about)
    return scenario


def _first_remedies(found: Explanation) -> tuple[str, ...]:
    if found.hurdles:
        return tuple(f"{one.what} -> {one.remedy}" for one in found.hurdles)
    return found.groups[0].remedies if found.groups else ()


def _nodes_of(group: NodeGroup, scenario: Scenario) -> list[dict[str, Any]]:
    return [node for node in scenario.nodes if node["metadata"]["name"] in group.names]


def apply(
    scenario: Scenario, remedies: Sequence[str], nodes: Sequence[Mapping[str, Any]]
) -> Scenario:
    """The scenario with all `remedies`, which are about `nodes`."""
    made = Scenario(**json.loads(json.dumps(scenario._asdict())))  # deepcopy takes half the time
    names = {node["metadata"]["name"] for node in nodes}
    about = [node for node in made.nodes if node["metadata"]["name"] in names]
    for remedy in remedies:
        for pattern, change in _CHANGES:
            if match := re.fullmatch(pattern, remedy):
                change(made, about, *match.groups())
                break
        else:
            raise UnknownRemedyError(remedy)
    return made


_Nodes = Sequence[dict[str, Any]]


def _uncordon(made: Scenario, _nodes: _Nodes, name: str) -> None:
    for node in made.nodes:
        if node["metadata"]["name"] == name:
            node["spec"]["unschedulable"] = False


def _tolerate(made: Scenario, _nodes: _Nodes, taint: str) -> None:
    key, _, effect = taint.rpartition(":")
    key, _, value = key.partition("=")
    toleration = {"key": key, "operator": "Equal", "value": value, "effect": effect}
    made.pod["spec"].setdefault("tolerations", []).append(toleration)


def _make_well(_: Scenario, nodes: _Nodes) -> None:
    for node in nodes:
        spec = node["spec"]
        spec["taints"] = [
            one for one in spec["taints"] if not one["key"].startswith("node.kubernetes.io/")
        ]


def _select_any_node(made: Scenario, _nodes: _Nodes) -> None:
    made.pod["spec"].pop("nodeSelector", None)
    made.pod["spec"].get("affinity", {}).pop("nodeAffinity", None)


def _ask_for(made: Scenario, _nodes: _Nodes, amount: str, resource: str) -> None:
    """Let the containers ask for as much as there is beside the overhead."""
    spec = made.pod["spec"]
    overhead = amount_of(as_object(spec.get("overhead")).get(resource))
    asked = amount_of(amount.replace(",", "")) - overhead
    assert asked > 0, "there is nothing to ask for"
    _take_away(made.pod, resource)
    text = f"{asked // 10**6}m" if resource == "cpu" else str(asked // 10**9)
    resources = spec["containers"][0]["resources"]
    resources["requests"][resource] = text
    if "/" in resource:
        resources["limits"][resource] = text


def _take_away(pod: Mapping[str, Any], *resources: str) -> None:
    """Let the containers ask for none of `resources`."""
    for container in _containers_of(pod):
        for amounts in container["resources"].values():
            for resource in resources:
                amounts.pop(resource, None)


def _take_all_away(pod: Mapping[str, Any], resource: str) -> None:
    """Let a pod have none of a resource, also not by its overhead."""
    _take_away(pod, resource)
    pod["spec"].get("overhead", {}).pop(resource, None)


def _containers_of(pod: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for field in ("containers", "initContainers"):
        yield from pod["spec"].get(field, [])


def _ask_for_all(made: Scenario, nodes: _Nodes, amount: str, resource: str) -> None:
    """Let the pod ask for all that a node has, once no other pod has some of it."""
    _ask_for(made, nodes, amount, resource)
    for pod in (*made.pods, *made.nominated):
        _take_all_away(pod, resource)


def _release(made: Scenario, nodes: _Nodes, amount: str, resource: str) -> None:
    """Let the pods of each node have so much less of a resource, and not more."""
    released = amount_of(amount.replace(",", ""))
    for node in nodes:
        pods = [*_pods_of(made, node)]
        used = sum(effective_requests(pod).get(resource, 0) for pod in pods)
        if used < released * 0.99:  # another one of the nodes is meant
            continue
        for pod in pods:
            _take_all_away(pod, resource)
        left = max(used - released, 0)  # what is named is rounded up
        text = f"{left // 10**6}m" if resource == "cpu" else str(left // 10**9)
        pods[0]["spec"]["containers"][0]["resources"]["requests"][resource] = text


def _pods_of(made: Scenario, node: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The pods of a node, with those for which kube-scheduler keeps room there."""
    name = node["metadata"]["name"]
    yield from (pod for pod in made.pods if pod["spec"]["nodeName"] == name)
    priority = made.pod["spec"].get("priority", 0)
    for pod in made.nominated:
        if pod["status"]["nominatedNodeName"] == name and pod["spec"]["priority"] >= priority:
            yield pod


def _end_pods(_: Scenario, nodes: _Nodes, count: str) -> None:
    """Make room for so many pods: which of them end decides nothing here."""
    for node in nodes:
        amounts = node["status"]["allocatable"]
        more = 1 if count == "a" else int(count)
        amounts["pods"] = str(int(amounts["pods"]) + more)


def _ask_for_what_is_offered(made: Scenario, _nodes: _Nodes, offered: str) -> None:
    devices = {name for name in effective_requests(made.pod) if "/" in name}
    _take_away(made.pod, *(devices - {*offered.split(", ")}))


def _leave_ports_out(made: Scenario, _nodes: _Nodes) -> None:
    for container in _containers_of(made.pod):
        container.pop("ports", None)


def _raise_skew(made: Scenario, _nodes: _Nodes, label: str) -> None:
    for one in made.pod["spec"]["topologySpreadConstraints"]:
        if one["topologyKey"] == label:
            one["maxSkew"] = 1_000


def _leave_constraint_out(made: Scenario, _nodes: _Nodes, label: str) -> None:
    spec, key = made.pod["spec"], "topologySpreadConstraints"
    spec[key] = [one for one in spec[key] if one["topologyKey"] != label]


def _leave_affinity_out(field: str) -> Callable[..., None]:
    def change(made: Scenario, *_: object) -> None:
        made.pod["spec"]["affinity"].pop(field)

    return change


def _leave_their_affinity_out(made: Scenario, *_: object) -> None:
    for pod in (*made.pods, *made.nominated):
        pod["spec"].get("affinity", {}).pop("podAntiAffinity", None)


def _end_users_of_claim(made: Scenario, _nodes: _Nodes, names: str) -> None:
    """Let the pods have no claims, and detach the volumes of those that the waiting pod has too."""
    ended = {name.rpartition("/")[2] for name in names.split(", ")}
    released = set()
    for pod in (*made.pods, *made.nominated):
        if pod["metadata"]["name"] in ended:
            volumes = pod["spec"].get("volumes", [])
            pod["spec"]["volumes"] = [v for v in volumes if "persistentVolumeClaim" not in v]
            released |= {v.get("persistentVolumeClaim", {}).get("claimName") for v in volumes}
    detached = {
        claim["spec"].get("volumeName")
        for claim in _claims_of_pod(made)
        if claim["metadata"]["name"] in released
    }
    made.attachments[:] = [
        one
        for one in made.attachments
        if one["spec"]["source"]["persistentVolumeName"] not in detached
    ]


def _end_users_of_disk(made: Scenario, nodes: _Nodes, disk: str) -> None:
    for node in nodes:
        for pod in _pods_of(made, node):
            volumes = pod["spec"].get("volumes", [])
            pod["spec"]["volumes"] = [v for v in volumes if not _names_disk(v, disk)]


def _names_disk(volume: Mapping[str, Any], disk: str) -> bool:
    image = as_object(volume.get("rbd"))
    of_ceph = f"{image.get('image')}/{image.get('pool', 'rbd')}" if image else ""
    older = as_object(volume.get("gcePersistentDisk")).get("pdName")
    oldest = as_object(volume.get("awsElasticBlockStore")).get("volumeID")
    return disk in {as_object(volume.get("iscsi")).get("iqn"), of_ceph, older, oldest}


def _move_volumes(made: Scenario, _nodes: _Nodes) -> None:
    """Make the volumes of the pod anew, where any node can use them."""
    for name in _volumes_of_pod(made):
        for volume in made.volumes:
            if volume["metadata"]["name"] == name:
                volume["spec"].pop("nodeAffinity", None)
                labels = volume["metadata"]["labels"]
                volume["metadata"]["labels"] = {k: v for k, v in labels.items() if "/" not in k}


def _volumes_of_pod(made: Scenario) -> Iterator[str]:
    for claim in _claims_of_pod(made):
        yield claim["spec"].get("volumeName", "")


def _claims_of_pod(made: Scenario) -> Iterator[Object]:
    metadata = made.pod["metadata"]
    volumes = made.pod["spec"].get("volumes", [])
    names = [volume.get("persistentVolumeClaim", {}).get("claimName") for volume in volumes]
    names += [f"{metadata['name']}-{v['name']}" for v in volumes if "ephemeral" in v]
    for claim in made.claims:
        own = claim["metadata"]
        if own["namespace"] == metadata["namespace"] and own["name"] in names:
            yield claim


def _make_volume(made: Scenario, _nodes: _Nodes, storage_class: str) -> None:
    for number, claim in enumerate(_claims_of_pod(made)):
        spec = claim["spec"]
        if spec.get("storageClassName") == storage_class and "volumeName" not in spec:
            own = {key: claim["metadata"][key] for key in ("namespace", "name")}
            made.volumes.append(
                {
                    "metadata": {"name": f"made-{len(made.volumes)}-{number}", "labels": {}},
                    "spec": {
                        "accessModes": spec["accessModes"],
                        "capacity": {"storage": "100Gi"},
                        "claimRef": own,
                        "storageClassName": storage_class,
                        "volumeMode": spec.get("volumeMode", "Filesystem"),
                    },
                    "status": {"phase": "Available"},
                }
            )
            for volume in made.volumes[:-1]:  # another one that is meant for it
                if as_object(volume["spec"].get("claimRef")).items() >= own.items():
                    volume["spec"].pop("claimRef")


def _name_claim_once(made: Scenario, _nodes: _Nodes, claim: str) -> None:
    spec = made.pod["spec"]
    of_it = [v for v in spec["volumes"] if v.get("persistentVolumeClaim") == {"claimName": claim}]
    spec["volumes"] = [volume for volume in spec["volumes"] if volume not in of_it[1:]]


def _choose_again(made: Scenario, _nodes: _Nodes, claim: str) -> None:
    for one in _claims_of_pod(made):
        if one["metadata"]["name"] == claim:
            one["metadata"]["annotations"].pop("volume.kubernetes.io/selected-node")


def _make_space(made: Scenario, _nodes: _Nodes, claim: str) -> None:
    for one in _claims_of_pod(made):
        if one["metadata"]["name"] == claim:
            made.capacities.append(
                {
                    "metadata": {"name": f"space-{len(made.capacities)}", "namespace": "storage"},
                    "storageClassName": one["spec"]["storageClassName"],
                    "capacity": "100Gi",
                    "nodeTopology": {},
                }
            )


def _detach(made: Scenario, nodes: _Nodes, count: str, driver: str) -> None:
    """Let a node have so many volumes more: which of them are detached decides nothing here."""
    names = {node["metadata"]["name"] for node in nodes}
    for csi_node in made.csi_nodes:
        for one in csi_node["spec"]["drivers"]:
            if csi_node["metadata"]["name"] in names and one["name"] == driver:
                one["allocatable"]["count"] += int(count)


def _run_driver(made: Scenario, nodes: _Nodes, driver: str) -> None:
    by_name = {one["metadata"]["name"]: one for one in made.csi_nodes}
    for node in nodes:
        name = node["metadata"]["name"]
        if name not in by_name:
            by_name[name] = {"metadata": {"name": name}, "spec": {"drivers": []}}
            made.csi_nodes.append(by_name[name])
        by_name[name]["spec"]["drivers"].append({"name": driver, "nodeID": name})


def _use_another_kubelet(_: Scenario, nodes: _Nodes, feature: str) -> None:
    for node in nodes:
        declared = node["status"].get("declaredFeatures", [])
        node["status"]["declaredFeatures"] = sorted([*declared, feature])  # as API servers want it


def _create_claim(made: Scenario, _nodes: _Nodes, name: str) -> None:
    metadata = {"name": name, "namespace": made.pod["metadata"]["namespace"], "annotations": {}}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "made",
    }
    made.claims.append({"metadata": metadata, "spec": spec, "status": {}})


def _make_claim_anew(made: Scenario, nodes: _Nodes, name: str) -> None:
    old = [one for one in _claims_of_pod(made) if one["metadata"]["name"] == name]
    made.claims[:] = [one for one in made.claims if one not in old]
    _create_claim(made, nodes, name)
    pod = made.pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
    made.claims[-1]["metadata"]["ownerReferences"] = [{**owner, "controller": True}]


def _let_claim_be_bound(made: Scenario, nodes: _Nodes, name: str) -> None:
    """As what provisions its volume does, once it is mended."""
    _make_claim_anew(made, nodes, name)


_AMOUNT = r"([\d.,]+(?:[TGM]i)?) (\S+)"
_CHANGES: tuple[tuple[str, Callable[..., None]], ...] = (
    (r"use a kubelet that has the feature (\S+), or leave .* out", _use_another_kubelet),
    (r"if they may take pods again: kubectl uncordon (\S+)", _uncordon),
    (r"add a toleration for (\S+), if the pod may run there", _tolerate),
    (r"wait until the node is well: Kubernetes itself has set the taint", _make_well),
    (
        r"change nodeSelector or node affinity, or label nodes that should take it",
        _select_any_node,
    ),
    (
        rf"ask for at most {_AMOUNT} in one pod(?:, which is free now)?, and use several pods",
        _ask_for,
    ),
    (
        rf"ask for at most {_AMOUNT} in one pod, use several pods, and wait until all of it is .*",
        _ask_for_all,
    ),
    (rf"ask for at most {_AMOUNT}: the \S+ there is free, and stranded by .*", _ask_for),
    (
        r"wait until (\d+) volumes? of (\S+) (?:is|are) detached there, as pods with them end",
        _detach,
    ),
    (r"wait until ([\d.,]+(?:[TGM]i)?) more (\S+) is released there(?:: the .*)?", _release),
    (r"wait until (a|\d+) pods? there ends?", _end_pods),
    (r"ask for what these nodes offer: (.*)", _ask_for_what_is_offered),
    (r"leave hostPort out, or wait until a pod that has it ends", _leave_ports_out),
    (r"raise maxSkew for (\S+), or make room where fewer of its pods are", _raise_skew),
    (r"change the constraint, or give the nodes the label (\S+)", _leave_constraint_out),
    (r"change the affinity, or start a pod that it asks for", _leave_affinity_out("podAffinity")),
    (
        r"change the affinity, or give the nodes the label \S+",
        _leave_affinity_out("podAffinity"),
    ),
    (
        r"change the anti-affinity, or wait until such pods end",
        _leave_affinity_out("podAntiAffinity"),
    ),
    (r"change that anti-affinity, or wait until such pods end", _leave_their_affinity_out),
    (r"wait until (.*) ends, or use a claim of its own", _end_users_of_claim),
    (r"wait until the pods there that use the disk (\S+) end", _end_users_of_disk),
    (r"let it run where the volume is, or make a volume where it can run", _move_volumes),
    (
        r"make a volume of the class (\S+) for these nodes, or use another storage class",
        _make_volume,
    ),
    (
        r"let one volume of the pod be of the claim (\S+), and mount it several times",
        _name_claim_once,
    ),
    (r"wait for the volume, or choose again: kubectl annotate pvc (\S+) \S+-", _choose_again),
    (r"make space for the claim (\S+), or let it ask for less", _make_space),
    (r"let (\S+) run on these nodes", _run_driver),
    (r"the PersistentVolumeClaim (\S+) does not exist -> create it, or .*", _create_claim),
    (r"the claim (\S+) was not made for it, .* -> delete that claim, or .*", _make_claim_anew),
    (r"its claim (\S+) is not made from its template yet -> wait: .*", _make_claim_anew),
    (r"the claim (\S+) has lost its volume .* -> make a new claim", _make_claim_anew),
    (r"the claim (\S+) is being deleted -> make a new claim", _make_claim_anew),
    (r"the volume \S+ of the claim (\S+) does not exist -> make a new claim", _make_claim_anew),
    (
        r"the claim (\S+) has no volume yet, and does not wait for a pod to get one -> .*",
        _let_claim_be_bound,
    ),
)
"""What each remedy says, and what it means for a scenario."""
