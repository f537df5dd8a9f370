"""The reasons why Kueue holds a job or a pod back, by the Workload that it makes of it.

Source: kubernetes-sigs/kueue, `apis/kueue/v1beta2/workload_types.go`, `pkg/controller/core/`
`workload_controller.go` and `pkg/scheduler/flavorassigner/flavorassigner.go`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cluster.source.objects import Object, name_of, namespace_in
from cluster.why.hurdles import KUEUE_GATES, Hurdle
from cluster.why.nodes import Node
from reports.formats import some
from rules.base.json_values import as_object, as_objects, as_text

_WORKLOAD = "kueue.x-k8s.io/workload"
_MISMATCH = re.compile(r"flavor (\S+) doesn't match node affinity")
_OTHER_NODES = (
    "select nodes of the flavor {} in the template of the job, or none: Kueue adds the labels of "
    "the flavor to its pods"
)
_FLAVOR = re.compile(r"in flavor ([^\s,;]+)|flavor (\S+) doesn't match node affinity")
_UNUSED = re.compile(r"insufficient unused quota for (\S+) in flavor (\S+), (\S+) more needed")
_TOO_MUCH = re.compile(r"insufficient quota for (\S+) in flavor (\S+),")
_TAINT = re.compile(r"untolerated taint (.{1,200}?) in flavor (\S+)")
_TAINT_OF_NODES = re.compile(r'; excluded: [^;]{0,2000}?taint "([^"]{1,500})"')
_NO_QUEUE = re.compile(r"LocalQueue (\S+) (?:doesn't exist|is terminating or missing)")
_STOPPED = re.compile(r"((?:Local|Cluster)Queue) (\S+) is (?:inactive|stopped)")


class PodSet(NamedTuple):
    """Equal pods of a Workload that do not exist yet: how they are called, the pod, how many."""

    name: str
    pod: Object
    pods: int


class Kueue:
    """The Workloads of Kueue; `workloads` is None if it is not known which there are.

    `flavors` are ResourceFlavors by name, and `queues` LocalQueues by namespace and name, as far as
    they are known.
    """

    def __init__(
        self,
        workloads: Iterable[Object] | None,
        flavors: Mapping[str, Object],
        queues: Mapping[tuple[str, str], Object],
        nodes: Sequence[Node],
    ) -> None:
        self.is_known = workloads is not None
        self._flavors, self._queues, self._nodes = flavors, queues, nodes
        self._workloads = [*(workloads or ())]
        # By namespace and UID: any user may write a UID of another namespace.
        self._by_owner: dict[tuple[str, str], Object] = {}
        self._by_name: dict[tuple[str, str], Object] = {}
        for raw in self._workloads:
            self._by_name[namespace_in(raw), name_of(raw)] = raw
            for owner in _owners(raw):
                if uid := as_text(owner.get("uid")):
                    self._by_owner[namespace_in(raw), uid] = raw

    def workload_of(self, pod: Object) -> Object | None:
        """The Workload that a pod is part of; None if none is known."""
        metadata = as_object(pod.get("metadata"))
        named = as_text(as_object(metadata.get("annotations")).get(_WORKLOAD))
        found = self._by_name.get((namespace_in(pod), named)) if named else None
        uids = [as_text(metadata.get("uid")), *(as_text(o.get("uid")) for o in _owners(pod))]
        places = ((namespace_in(pod), uid) for uid in uids)
        return found or next((self._by_owner[p] for p in places if p in self._by_owner), None)

    def hurdles_of_pod(self, pod: Object) -> list[Hurdle]:
        """Return why Kueue holds back a pod that has a gate of it."""
        gates = some(_gates_of_kueue(pod))
        waits = f"it waits for the scheduling gates {gates}"
        workload = self.workload_of(pod)
        if workload is None and not self.is_known:
            return [
                Hurdle(waits, "Kueue removes them; the Workload that says why is not known here")
            ]
        if workload is None:
            return [
                Hurdle(waits, "Kueue has made no Workload of it: look at its queue and at Kueue")
            ]
        found = [*self.hurdles(workload)]
        name = name_of(workload)
        done = (
            f"Kueue has admitted its Workload {name}, and removes them once the pod has its place"
        )
        return found or [Hurdle(waits, done)]

    def workloads_of(self, kind: str, name: str, namespace: str | None) -> list[Object]:
        """The Workloads of an object, or the one that is called so itself.

        An empty `kind` is any; without a `namespace` those of all.
        """
        return [
            raw
            for raw in self._workloads
            if namespace in {None, namespace_in(raw)}
            and (
                (kind in {"", "workload"} and name_of(raw) == name)
                or any(is_called(owner, kind, name) for owner in _owners(raw))
            )
        ]

    def hurdles(self, workload: Object) -> Iterator[Hurdle]:
        """Yield why Kueue has not admitted a Workload; nothing if it has, or if it has ended."""
        conditions = _conditions(workload)
        name = name_of(workload)
        if _is_true(conditions, "Finished"):
            said = as_text(conditions["Finished"].get("message"))
            yield Hurdle(
                f"Kueue's Workload {name} has ended{f': {said}' if said else ''}",
                "create the object again to run it again",
            )
            return
        if is_admitted(workload):
            return
        if as_object(workload.get("spec")).get("active") is False:
            why = as_text(conditions.get("Evicted", {}).get("message"))
            yield Hurdle(
                f"Kueue's Workload {name} is deactivated{f': {why}' if why else ''}",
                f"activate it once that is mended: kubectl patch workload {name} -n "
                f"{namespace_in(workload)} --type merge -p "
                """'{"spec":{"active":true}}'""",
            )
        elif _is_true(conditions, "QuotaReserved"):
            yield from _unready_checks(workload)
        else:
            message = as_text(conditions.get("QuotaReserved", {}).get("message"))
            queue = as_text(as_object(workload.get("spec")).get("queueName"))
            what = message or f"it waits in the queue {queue}, and Kueue has not said why"
            yield Hurdle(
                f"Kueue has not admitted its Workload {name}: {what}{self._nodes_of(message)}",
                self._remedy(message, workload),
            )

    def pod_sets(self, workload: Object) -> Iterator[PodSet]:
        """The pods of a Workload, with what the flavors add that Kueue has assigned to them."""
        admission = as_object(as_object(workload.get("status")).get("admission"))
        flavors = {
            as_text(one.get("name")): {*map(as_text, as_object(one.get("flavors")).values())}
            for _, one in as_objects(admission.get("podSetAssignments"))
        }
        owner = next((as_text(one.get("name")) for one in _owners(workload)), name_of(workload))
        listed = [one for _, one in as_objects(as_object(workload.get("spec")).get("podSets"))]
        for one in listed:
            template = as_object(one.get("template"))
            name, count = as_text(one.get("name")), one.get("count")
            metadata = {
                **as_object(template.get("metadata")),
                "name": owner if len(listed) == 1 else f"{owner}/{name}",
                "namespace": namespace_in(workload),
            }
            spec = self._with_flavors(as_object(template.get("spec")), flavors.get(name, set()))
            pods = count if isinstance(count, int) and count > 0 else 1
            yield PodSet(name, {"metadata": metadata, "spec": spec}, pods)

    def _with_flavors(self, spec: Mapping[str, Any], names: Iterable[str]) -> Mapping[str, Any]:
        made = {**spec}
        for name in sorted(names):
            flavor = as_object(self._flavors.get(name, {}).get("spec"))
            labels = as_object(flavor.get("nodeLabels"))
            made["nodeSelector"] = {**as_object(made.get("nodeSelector")), **labels}
            own = [one for _, one in as_objects(made.get("tolerations"))]
            added = [one for _, one in as_objects(flavor.get("tolerations"))]
            made["tolerations"] = [*own, *added]
        return made

    def _nodes_of(self, message: str) -> str:
        """The nodes of the flavors that a message names."""
        said = []
        for name in dict.fromkeys(map("".join, _FLAVOR.findall(message))):
            spec = self._flavors.get(name, {}).get("spec")
            if not isinstance(spec, dict):
                continue
            labels = as_object(spec.get("nodeLabels")).items()
            nodes = [node.name for node in self._nodes if labels <= node.labels.items()]
            said.append(f"the flavor {name} is {some(sorted(nodes)) or 'no node'}")
        return f" ({'; '.join(said)})" if said else ""

    def _remedy(self, message: str, workload: Object) -> str:
        home = namespace_in(workload)
        queue = as_text(as_object(workload.get("spec")).get("queueName"))
        found = as_object(self._queues.get((home, queue), {}).get("spec"))
        of = f"the ClusterQueue {name}" if (name := found.get("clusterQueue")) else "its queue"
        if unused := _UNUSED.search(message):
            resource, flavor, missing = unused.groups()
            return (
                f"wait until {missing} {resource} of the flavor {flavor} is given back, or raise "
                f"the quota of {of}"
            )
        if too_much := _TOO_MUCH.search(message):
            resource, flavor = too_much.groups()
            return f"ask for less {resource}, or raise the quota of the flavor {flavor} in {of}"
        if taint := _TAINT.search(message) or _TAINT_OF_NODES.search(message):
            flavor = f"the flavor {taint[2]}" if taint.re is _TAINT else "the flavor of these nodes"
            return (
                f"add a toleration for {taint[1]} to the template of the job, or to {flavor}: "
                "Kueue judges the template, before a webhook adds to its pods"
            )
        if missing_queue := _NO_QUEUE.search(message):
            return f"create the LocalQueue {missing_queue[1]}, or correct its name in the job"
        if stopped := _STOPPED.search(message):
            where = f" -n {home}" if stopped[1] == "LocalQueue" else ""
            return f"look why: kubectl describe {stopped[1].lower()} {stopped[2]}{where}"
        mismatch = _MISMATCH.search(message)
        look = f"look at it: kubectl describe workload {name_of(workload)} -n {home}"
        return _OTHER_NODES.format(mismatch[1]) if mismatch else look


def is_admitted(workload: Object) -> bool:
    """Return whether Kueue has admitted a Workload: then its pods may run."""
    return _is_true(_conditions(workload), "Admitted")


def is_called(owner: Mapping[str, Any], kind: str, name: str) -> bool:
    """Return whether a reference names the object `name` of a `kind` in lower case, or of any."""
    of_kind = not kind or as_text(owner.get("kind")).lower() == kind
    return of_kind and as_text(owner.get("name")) == name


def is_held_by_kueue(pod: Object) -> bool:
    """Return whether a pod has a scheduling gate of Kueue."""
    return bool(_gates_of_kueue(pod))


def _gates_of_kueue(pod: Object) -> list[str]:
    gates = as_objects(as_object(pod.get("spec")).get("schedulingGates"))
    names = (as_text(gate.get("name")) for _, gate in gates)
    return [name for name in names if name.startswith(KUEUE_GATES)]


def _unready_checks(workload: Object) -> Iterator[Hurdle]:
    checks = as_objects(as_object(workload.get("status")).get("admissionChecks"))
    for _, check in checks:
        name, state = as_text(check.get("name")), as_text(check.get("state"))
        if state != "Ready":
            said = f": {message}" if (message := as_text(check.get("message"))) else ""
            yield Hurdle(
                f"Kueue has reserved its quota, and the admission check {name} is {state}{said}",
                f"look at the check: kubectl describe admissioncheck {name}",
            )
            return
    name = name_of(workload)
    yield Hurdle(
        f"Kueue has reserved the quota of its Workload {name}, and has not admitted it yet",
        f"look at it: kubectl describe workload {name} -n {namespace_in(workload)}",
    )


def _conditions(workload: Object) -> Mapping[str, Mapping[str, Any]]:
    listed = as_objects(as_object(workload.get("status")).get("conditions"))
    return {as_text(one.get("type")): one for _, one in listed}


def _is_true(conditions: Mapping[str, Mapping[str, Any]], kind: str) -> bool:
    return conditions.get(kind, {}).get("status") == "True"


def _owners(raw: Object) -> list[Mapping[str, Any]]:
    return [o for _, o in as_objects(as_object(raw.get("metadata")).get("ownerReferences"))]
