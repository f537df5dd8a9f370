"""Reads what counts for pods from a cluster, or from files with what is in one."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

from cluster.accounting.account import CountedPod
from cluster.snapshot.snapshot import Snapshot
from cluster.source.files import FileSource
from cluster.source.objects import (
    CLAIM_TEMPLATES,
    CLAIMS,
    CLUSTER_QUEUES,
    CLUSTER_TRAINING_RUNTIMES,
    CSI_CAPACITIES,
    CSI_DRIVERS,
    CSI_NODES,
    DEVICE_CLASSES,
    JOBS,
    KUEUE_WORKLOADS,
    LIMIT_RANGES,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_GROUPS,
    PRIORITY_CLASSES,
    QUOTAS,
    RESOURCE_FLAVORS,
    RUNTIME_CLASSES,
    SLICES,
    STORAGE_CLASSES,
    TAINT_RULES,
    TOPOLOGIES,
    TRAINING_RUNTIMES,
    VOLUME_ATTACHMENTS,
    MissingRightError,
    NotServedError,
    Object,
    Resource,
    SourceError,
    group_name,
    name_of,
    namespace_in,
)
from cluster.why.admission import admit
from cluster.why.cards.card_rooms import KAI_KEYS
from cluster.why.cards.divided_cards import SELECTING
from cluster.why.declared_features import needed_features
from cluster.why.devices.allocator import DeviceAllocator
from cluster.why.devices.pod_devices import claims_in, is_claim
from cluster.why.explanation import (
    DEFAULT_SCHEDULER,
    Classes,
    Explanation,
    Namespace,
    explain,
    nominated_ahead,
    scheduler_message,
    uncounted_resources,
)
from cluster.why.filters import Wanted
from cluster.why.hurdles import Hurdle
from cluster.why.nodes import Node, read_node
from cluster.why.own_webhook import OwnWebhook
from cluster.why.placed.affinity import label_marks
from cluster.why.placed.disks import disks_of
from cluster.why.placed.label_selectors import labels_of
from cluster.why.placed.pods import PlacedPods
from cluster.why.placed.topology_spread import label_keys, spread_marks
from cluster.why.queueing.kueue import Kueue, is_admitted, is_called, is_held_by_kueue
from cluster.why.queueing.pod_groups import PodGroup
from cluster.why.queueing.queues import QueueHurdles, Queues, find_queue_hurdles
from cluster.why.volumes.known import Known, KnownVolumes
from cluster.why.volumes.pod_volumes import Volumes
from policies.loading import default_policy
from reports.formats import some
from rules.base.json_values import as_object, as_objects, as_text
from rules.gpu.quotas import is_queued_kind
from rules.inventory.inventory import EMPTY_INVENTORY, Inventory
from rules.objects.object_ref import BUILT_IN_GROUPS, group_of
from rules.placement.node_labels import GPU_COUNT
from rules.profile.platforms.accounting_marks import QUEUE_LABEL
from rules.profile.platforms.records import parse_version
from rules.workloads.future_pods import future_pods, has_final_pods
from rules.workloads.kinds import is_train_job
from rules.workloads.referred_objects import add_objects, new_builder

_LOOKED_AT = (
    *("affinity", "nodeSelector", "overhead", "resourceClaims", "resources", "schedulerName"),
    *("preemptionPolicy", "priority", "priorityClassName", "schedulingGates", "schedulingGroup"),
    *("tolerations", "topologySpreadConstraints"),
)
"""The fields of a pod's spec that an explanation looks at, beside containers and volumes."""
_PLAIN_VOLUMES = frozenset(
    {"configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret"}
)
"""The kinds of volumes that every node can give a pod."""


class Workload(NamedTuple):
    """Pods that do not exist yet: how many run at the same time; None if that is not known.

    `beside` are the claims and templates of claims of the same file. `queued` is the object that
    has to wait in a queue of Kueue, if one does, and `template` the stable path of the pod's spec
    in it.
    """

    pod: Object
    pods: int | None
    beside: tuple[Object, ...] = ()
    queued: Object | None = None
    template: str = "spec"


class Explainer:
    """Explains pods by the nodes of a cluster, what their pods take, and what else counts for them.

    With `namespace`, only pods of that one are explained. `named` are the pods with the `name`, and
    `owned` those of an object that is called so, of any kind or of one in lower case: `job/train`.
    Raises SourceError if nodes or pods cannot be listed.
    """

    def __init__(self, snapshot: Snapshot, *, namespace: str | None = None, name: str = "") -> None:
        self._snapshot, self._namespace = snapshot, namespace
        self._kind, _, self._name = name.rpartition("/")
        self._waiting: list[Object] = []
        self.named: list[Object] = []
        self.owned: list[Object] = []
        self._bound_of_groups: Counter[tuple[str, str]] = Counter()
        self._waiting_of_groups: dict[tuple[str, str], list[Object]] = defaultdict(list)
        self._are_equal_by_group: dict[tuple[str, str], bool] = {}
        self._placed = PlacedPods(self._labels_of_namespace)
        snapshot.objects(NODES)
        if isinstance(error := snapshot.missing.get(NODES), MissingRightError):
            raise error
        account = snapshot.count(on_pod=self._add)
        self._nodes = [read_node(raw, load) for raw, load in account.nodes()]
        self._classes = Classes(
            lambda: snapshot.by_name(RUNTIME_CLASSES), lambda: snapshot.by_name(PRIORITY_CLASSES)
        )
        self._webhook = OwnWebhook(snapshot)
        self._queues_of_homes: dict[str, Queues] = {}
        self._judged: tuple[Object, QueueHurdles] | None = None
        self._homes_of_claims: set[str] = set()
        self._known_objects: dict[tuple[Resource, str | None], Known] = {}
        self._volumes = KnownVolumes(
            self._claims_in,
            lambda: self._known(PERSISTENT_VOLUMES),
            lambda: self._known(STORAGE_CLASSES),
            lambda: self._known(CSI_DRIVERS),
            lambda: self._known(CSI_NODES),
            self._attachments_of,
            lambda: self._known(CSI_CAPACITIES),
        )

    def _add(self, pod: Object, counted: CountedPod | None) -> None:
        if counted is not None and (group := group_name(pod)):
            key = counted.namespace, group
            if counted.node:
                self._bound_of_groups[key] += 1
            else:
                self._waiting_of_groups[key].append(pod)
        if counted is not None and counted.node:
            self._placed.add(pod, counted.requests)
        elif counted is not None:
            self._waiting.append(pod)
            self._placed.nominate(pod, counted.requests)
        if self._name and self._is_asked_for(pod):
            if name_of(pod) == self._name and self._kind in {"", "pod"}:
                self.named.append(pod)
            elif counted is not None and _is_owned(pod, self._kind, self._name):
                self.owned.append(pod)

    def _is_asked_for(self, pod: Object) -> bool:
        return self._namespace is None or namespace_in(pod) in {self._namespace, ""}

    def explain(self, pod: Object) -> Explanation:
        """Return why a pod of the cluster is Pending."""
        return self._explain_existing(pod)

    def explain_pending(self) -> Iterator[Explanation]:
        """Return why each pod that waits for a node does so, in the order of the list."""
        return self._explain_each(filter(self._is_asked_for, self._waiting))

    @property
    def waiting_owned(self) -> list[Object]:
        """Return those of `owned` that wait for a node."""
        return [pod for pod in self.owned if not as_object(pod.get("spec")).get("nodeName")]

    def explain_owned(self) -> list[Explanation]:
        """Return why the pods of an object wait; if none does, where they are."""
        _only_one_namespace(self.owned, self._name)
        return [*self._explain_each(self.waiting_owned or self.owned)]

    def _explain_each(self, pods: Iterable[Object]) -> Iterator[Explanation]:
        known: dict[str, Explanation] = {}
        for pod in pods:
            metadata = as_object(pod.get("metadata"))
            key = _key(pod, self._placed)
            key += as_text(as_object(pod.get("spec")).get("nodeName"))
            if is_held_by_kueue(pod):
                key += repr(self._kueue.hurdles_of_pod(pod))
            found = known.get(key)
            if found is None:
                scope = self._namespace
                found = known[key] = self._explain_existing(pod, scope)
            yield found._replace(
                namespace=namespace_in(pod),
                name=name_of(pod),
                scheduler=scheduler_message(pod),
                since=as_text(metadata.get("creationTimestamp")),
            )

    def _explain_existing(self, pod: Object, scope: str | None = "") -> Explanation:
        """Return why a pod is Pending, or the first of its PodGroup without room beside others."""
        group = self._group_of(pod)
        explain = partial(self._explain, pod, exists=True, scope=scope, group=group)
        found = explain()
        if group is None or group.missing <= 1 or not found.fitting or found.hurdles or found.node:
            return found
        found = found._replace(group=group.name)
        if self._has_equal_pods(namespace_in(pod), group.name):
            return self._beside_equals(pod, group.missing, found, explain, exists=True)
        doubt = (
            f"whether {group.missing:,} pods of its PodGroup {group.name}, which are not alike, "
            "find room at the same time"
        )
        return found._replace(unchecked=(*found.unchecked, doubt))

    def _has_equal_pods(self, namespace: str, group: str) -> bool:
        """Return whether the pods of a PodGroup that wait for a node are alike."""
        key = namespace, group
        if key not in self._are_equal_by_group:
            keys = {_key(pod, self._placed) for pod in self._waiting_of_groups[key]}
            self._are_equal_by_group[key] = len(keys) == 1
        return self._are_equal_by_group[key]

    def _group_of(self, pod: Object) -> PodGroup | None:
        """Return the PodGroup of a pod of kube-scheduler; None without one, or if it is not known.

        Other schedulers may read such a group in other ways.
        """
        name, home = group_name(pod), namespace_in(pod)
        if not name or as_object(pod.get("spec")).get("schedulerName") != DEFAULT_SCHEDULER:
            return None
        raw = self._snapshot.by_name(POD_GROUPS, home).get(name)
        if raw is None and POD_GROUPS in self._snapshot.missing:
            return None
        bound = self._bound_of_groups[home, name]
        return PodGroup(name, raw, bound + len(self._waiting_of_groups[home, name]), bound)

    def explain_held(self) -> list[Explanation]:
        """Return why there are no pods of the object that is asked for: Kueue, or a Job, says it.

        Empty if neither does. Raises SourceError if several namespaces have one.
        """
        kind, name, home = self._kind, self._name, self._namespace
        waiting = self._kueue.workloads_of(kind, name, home)
        if not waiting and kind in {"", "job"}:
            jobs = [raw for raw in self._snapshot.objects(JOBS, home) if name_of(raw) == name]
            _only_one_namespace(jobs, name)
            held = [self._kueue.workload_of(job) for job in jobs]
            if None in held or not jobs:
                return [found for job in jobs for found in self._explain_job(job)]
            waiting = [raw for raw in held if raw is not None]  # of what has made the Job
        _only_one_namespace(waiting, name)
        found = []
        for raw in waiting:
            for pods in self._kueue.pod_sets(raw):
                one = self.explain_workload(Workload(pods.pod, pods.pods))
                if is_admitted(raw):
                    # Its pods may be what fills the nodes and the quotas.
                    doubt = "where its pods are: ask for one by its name, or for all that wait"
                    one = one._replace(
                        hurdles=(),
                        groups=(),
                        fitting=(),
                        placed=None,
                        unchecked=(doubt,),
                        is_admitted=True,
                    )
                hurdles = (*self._kueue.hurdles(raw), *one.hurdles)
                found.append(one._replace(hurdles=hurdles))
        return found

    def _explain_job(self, job: Object) -> Iterator[Explanation]:
        """Yield why a Job has no pods; whether Kueue knows it is not asked here."""
        pods = [*future_pods(job, default_policy().profile, self._namespace)]
        if not pods:
            return  # no API server accepts a Job without a template
        spec = as_object(job.get("spec"))
        made = {**as_object(pods[0].manifest)}
        queue = _queue_of(job)
        queued = job if queue else None
        workload = Workload(made, _count("Job", spec), (), queued, pods[0].stable_path)
        found = self.explain_workload(workload)
        if over := _how_it_ended(job):
            hurdle = Hurdle(f"the Job {name_of(job)} has ended: {over}", "create another one")
            found = found._replace(hurdles=(hurdle,))
        elif spec.get("suspend") is True:
            name = name_of(job)
            where = f"{name} -n {namespace_in(job)}"
            remedy = f'resume it: kubectl patch job {where} -p \'{{"spec":{{"suspend":false}}}}\''
            if queue:
                remedy = f"it waits in the queue {queue} of Kueue, which has no Workload of it"
                if not self._kueue.is_known:
                    remedy = (
                        f"it waits in the queue {queue} of Kueue, whose Workload is not known here"
                    )
            hurdle = Hurdle(f"the Job {name} is suspended: it has no pods", remedy)
            # A queue that never admits it is the reason why it stays so.
            hurdles = (*found.hurdles, hurdle) if queue else (hurdle, *found.hurdles)
            found = found._replace(hurdles=hurdles)
        yield found

    def explain_workload(self, workload: Workload) -> Explanation:
        """Return why the first of the pods cannot run, or the first without room beside others."""
        home = self._namespace_of_new(workload.pod)
        admitted = admit(workload.pod, home.name, home.limit_ranges, self._classes.runtime).pod
        reviewed = self._webhook.review(workload.pod, admitted, home.name)
        found = self._explain_workload(workload._replace(pod=reviewed.pod))
        found = found._replace(
            hurdles=(*reviewed.hurdles, *found.hurdles),
            defaults=(*found.defaults, *reviewed.changes),
            unchecked=(*found.unchecked, *filter(None, (reviewed.unknown,))),
            is_unfinished=bool(reviewed.unknown),
        )
        if workload.queued is not None and self._has_kueue:
            queue = _queue_of(workload.queued)
            judged = self._hurdles_of_queue(workload.queued, queue, home.name)
            hurdles = judged.for_pods_of(workload.template)
            doubt = f"whether Kueue admits it from the queue {queue}"
            found = found._replace(
                hurdles=(*hurdles, *found.hurdles),
                unchecked=(*found.unchecked, doubt),
                placed=None if hurdles else found.placed,
            )
        return found

    def _hurdles_of_queue(self, queued: Object, queue: str, namespace: str) -> QueueHurdles:
        """Return why Kueue never admits an object: its pods are asked about one after another."""
        if self._judged is None or self._judged[0] is not queued:
            if namespace not in self._queues_of_homes:
                self._queues_of_homes[namespace] = self._queues(namespace)
            queues = self._queues_of_homes[namespace]
            if is_train_job(as_text(queued.get("kind")), group_of(queued)):
                runtimes = self.training_runtimes(namespace)
                queues = replace(queues, others=(*queues.others, *runtimes))
            found = find_queue_hurdles(queued, queue, queues)
            self._judged = queued, found
        return self._judged[1]

    def _queues(self, namespace: str) -> Queues:
        flavors, topologies = map(self._snapshot.objects, (RESOURCE_FLAVORS, TOPOLOGIES))
        local = self._snapshot.by_name(LOCAL_QUEUES, namespace)
        clusters = self._snapshot.by_name(CLUSTER_QUEUES)
        are_read = not {LOCAL_QUEUES, CLUSTER_QUEUES} & self._snapshot.missing.keys()
        are_all = are_read and self._snapshot.source.is_complete
        return Queues(namespace, local, clusters, (*flavors, *topologies), are_all)

    def training_runtimes(self, namespace: str | None) -> Iterator[Object]:
        """Yield the runtimes of TrainJobs in a namespace, as far as they are known."""
        yield from self._snapshot.objects(TRAINING_RUNTIMES, namespace)
        yield from self._snapshot.objects(CLUSTER_TRAINING_RUNTIMES)

    def _explain_workload(self, workload: Workload) -> Explanation:
        pod, count, beside = workload.pod, workload.pods, workload.beside
        found = self._explain(pod, exists=False, beside=beside)
        if count is None or count <= 1 or not found.fitting or found.node:
            return found._replace(wanted=count)
        home = self._namespace_of_new(pod)
        made = admit(pod, home.name, home.limit_ranges, self._classes.runtime).pod
        explain = partial(self._explain, pod, exists=False, beside=beside)
        return self._beside_equals(made, count, found, explain, exists=False)

    def _beside_equals(
        self,
        made: Object,
        count: int,
        found: Explanation,
        explain: Callable[..., Explanation],
        *,
        exists: bool,
    ) -> Explanation:
        """Return how many of `count` pods like `made` have room, and why the next one has none.

        `found` is the answer about one of them, and `explain` gives it about other nodes and placed
        pods.
        """
        uncounted = uncounted_resources(made, self._nodes, {}, exists=exists)
        ahead = nominated_ahead(made, self._placed, self._classes)
        wanted = Wanted(made, uncounted, nodes=self._nodes, placed=self._placed, ahead=ahead)
        copies = self._copies(wanted, frozenset(found.fitting), count)
        placed = sum(copies.values())
        if not placed or as_object(made.get("spec")).get("resourceClaims"):
            unchecked = (*found.unchecked, "for how many of its pods there are devices")
            found = found._replace(unchecked=unchecked)
        if not placed:  # nodes need not offer the devices of a DeviceClass
            return found._replace(wanted=count)
        if placed < count:
            nodes = [
                node._replace(load=node.load.with_pods(wanted.requests, copies.get(node.name, 0)))
                for node in self._nodes
            ]
            others = self._placed.with_copies(made, copies)
            found = explain(nodes=nodes, placed=others)._replace(group=found.group)
        elif wanted.asks_of_a_card:
            found = found._replace(unchecked=(*found.unchecked, "how its pods fit on the cards"))
        if _are_of_one_pod(Volumes(made, self._volumes, self._placed, exists=exists), made):
            doubt = "how many of its pods a node can have, because of their volumes"
            found = found._replace(unchecked=(*found.unchecked, doubt))
        if wanted.is_about_itself:
            unchecked = (*found.unchecked, "where its pods are, which decides about the next ones")
            found = found._replace(unchecked=unchecked)
        return found._replace(wanted=count, placed=placed)

    def _copies(self, wanted: Wanted, fitting: frozenset[str], count: int) -> Mapping[str, int]:
        """Return how many of `count` equal pods each of the fitting nodes has room for."""
        copies: dict[str, int] = {}
        for node in self._nodes:
            if node.name in fitting and count:
                copies[node.name] = min(wanted.copies(node), count)
                count -= copies[node.name]
        return copies

    def _explain(
        self,
        pod: Object,
        *,
        exists: bool,
        nodes: list[Node] | None = None,
        placed: PlacedPods | None = None,
        scope: str | None = "",
        beside: Iterable[Object] = (),
        group: PodGroup | None = None,
    ) -> Explanation:
        """`scope` is the namespace whose claims are read; None for all.

        `beside` are claims and templates that will exist too, and `group` is that of the pod.
        """
        claims = templates = None
        if as_object(pod.get("spec")).get("resourceClaims"):
            home = self._home(pod)
            made = claims_in(home, beside)
            if not exists:
                listed = self._snapshot.by_name(CLAIM_TEMPLATES, home)
                templates = {**listed, **made.templates}
            known = self._snapshot.objects(CLAIMS, home if scope == "" else scope)
            claims = {**made.made}
            claims |= {name_of(raw): raw for raw in known if namespace_in(raw) in {home, ""}}
        namespace = Namespace() if exists else self._namespace_of_new(pod)
        if exists and is_held_by_kueue(pod):
            namespace = namespace._replace(kueue=tuple(self._kueue.hurdles_of_pod(pod)))
        return explain(
            pod,
            self._nodes if nodes is None else nodes,
            namespace=namespace._replace(claims=claims, templates=templates, group=group),
            devices=lambda: self._devices,
            placed=self._placed if placed is None else placed,
            classes=self._classes,
            volumes=self._volumes,
            exists=exists,
        )

    def _home(self, pod: Object) -> str:
        named = as_text(as_object(pod.get("metadata")).get("namespace"))
        return named or self._namespace or "default"

    def _namespace_of_new(self, pod: Object) -> Namespace:
        home = self._home(pod)
        quotas, ranges = (self._snapshot.objects(each, home) for each in (QUOTAS, LIMIT_RANGES))
        return Namespace(None, tuple(quotas), tuple(ranges), home)

    @cached_property
    def _devices(self) -> DeviceAllocator | None:
        """Return what is known of devices; None if the cluster has no DeviceClass."""
        classes = self._snapshot.objects(DEVICE_CLASSES)
        if not classes:
            return None
        claims, slices, rules = map(self._snapshot.objects, (CLAIMS, SLICES, TAINT_RULES))
        version = parse_version(self._snapshot.source.server_version())
        return DeviceAllocator(slices, classes, claims, rules, version=version)

    @cached_property
    def _kueue(self) -> Kueue:
        workloads: list[Object] | None = self._snapshot.objects(KUEUE_WORKLOADS, self._namespace)
        if not workloads and KUEUE_WORKLOADS in self._snapshot.missing:
            workloads = None
        if not workloads:
            return Kueue(workloads, {}, {}, self._nodes)
        queues = self._snapshot.objects(LOCAL_QUEUES, self._namespace)
        return Kueue(
            workloads,
            self._snapshot.by_name(RESOURCE_FLAVORS),
            {(namespace_in(raw), name_of(raw)): raw for raw in queues},
            self._nodes,
        )

    @property
    def _has_kueue(self) -> bool:
        """Return whether Kueue is there, or may be."""
        self._snapshot.objects(LOCAL_QUEUES, self._namespace)
        return not isinstance(self._snapshot.missing.get(LOCAL_QUEUES), NotServedError)

    def _labels_of_namespace(self, namespace: str) -> Mapping[str, str] | None:
        return self._namespace_labels.get(namespace)

    @cached_property
    def _namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        return {name_of(raw): labels_of(raw) for raw in self._snapshot.objects(NAMESPACES)}

    def _known(self, resource: Resource, namespace: str | None = None) -> Known:
        """Return the objects of a resource by name; None if it is not known which there are.

        Files need not have all that is in a cluster, and an account may lack the right to list.
        """
        scope = resource, namespace
        if scope not in self._known_objects:
            found = self._snapshot.by_name(resource, namespace)
            is_complete = self._snapshot.source.is_complete
            if isinstance(self._snapshot.missing.get(resource), MissingRightError):
                is_complete = False
            self._known_objects[scope] = found if found or is_complete else None
        return self._known_objects[scope]

    def _claims_in(self, namespace: str) -> Known:
        """Return the claims for volumes of a namespace: of the second one on, all are listed."""
        self._homes_of_claims.add(namespace)
        if len(self._homes_of_claims) == 1 or self._all_claims is None:
            return self._known(PERSISTENT_VOLUME_CLAIMS, namespace)
        found = self._all_claims.get(namespace, {})
        return found if found or self._snapshot.source.is_complete else None

    @cached_property
    def _all_claims(self) -> Mapping[str, Mapping[str, Object]] | None:
        """Return the claims for volumes by namespace; None if not all may be listed."""
        found = self._snapshot.objects(PERSISTENT_VOLUME_CLAIMS)
        if not found:
            return None
        by_home: dict[str, dict[str, Object]] = {}
        for raw in found:
            by_home.setdefault(namespace_in(raw), {})[name_of(raw)] = raw
        return by_home

    def _attachments_of(self, node: str) -> Known:
        by_node = self._attachments
        return None if by_node is None else by_node.get(node, {})

    @cached_property
    def _attachments(self) -> Mapping[str, Mapping[str, Object]] | None:
        known = self._known(VOLUME_ATTACHMENTS)
        if known is None:
            return None
        by_node: dict[str, dict[str, Object]] = {}
        for name, raw in known.items():
            node = as_text(as_object(raw.get("spec")).get("nodeName"))
            by_node.setdefault(node, {})[name] = raw
        return by_node


def read_workloads(
    file: str,
    namespace: str | None,
    training_runtimes: Callable[[], Iterable[Object]] = tuple,
) -> list[Workload]:
    """The pods of the objects in a file: of Pods, and of what makes pods.

    `training_runtimes` are asked for if there is a TrainJob. Raises SourceError if there are no
    pods.
    """
    found: list[Workload] = []
    beside: list[Object] = []
    profile = default_policy().profile
    objects = [*FileSource([file], sys.stdin.buffer).list_all({}, None, _raise)]
    runtimes: Inventory | None = None
    why = "there is no Pod, and no object that makes pods"
    for raw in objects:
        kind, group = as_text(raw.get("kind")), as_text(raw.get("apiVersion")).rpartition("/")[0]
        if (kind, group) == ("Pod", ""):
            found.append(Workload(raw, 1, queued=raw if _queue_of(raw) else None))
        elif is_claim(raw):
            beside.append(raw)
        elif has_final_pods(kind, group) or is_train_job(kind, group):
            if runtimes is None and is_train_job(kind, group):
                runtimes = _inventory((*objects, *training_runtimes()), namespace)
            made = future_pods(raw, profile, namespace, runtimes or EMPTY_INVENTORY)
            pods = [({**as_object(pod.manifest)}, pod.stable_path) for pod in made]
            if not pods and is_train_job(kind, group):
                why = f"what runtime the TrainJob {name_of(raw)} has is not known"
            is_counted = len(pods) == 1 and group in BUILT_IN_GROUPS
            count = _count(kind, as_object(raw.get("spec"))) if is_counted else None
            queued = raw if _queue_of(raw) else None
            found += (Workload(pod, count, (), queued, path) for pod, path in pods)
    if not found:
        raise SourceError(f"{file}: {why}")
    return [workload._replace(beside=tuple(beside)) for workload in found]


def _inventory(objects: Iterable[Object], namespace: str | None) -> Inventory:
    builder = new_builder(default_policy().profile)
    for raw in objects:
        add_objects(builder, raw, namespace)
    return builder.inventory()


def _are_of_one_pod(volumes: Volumes, pod: Object) -> bool:
    """Return whether volumes of `pod` cannot be shared with others, or count for each pod."""
    spec = as_object(pod.get("spec"))
    is_made = any(volume.get("ephemeral") for _, volume in as_objects(spec.get("volumes")))
    return volumes.is_for_one_pod or is_made or not all(d.is_read_only for d in disks_of(spec))


def _queue_of(raw: Object) -> str:
    """Return the LocalQueue of Kueue in which an object waits; empty if it waits in none.

    The Jobs of a CronJob have the labels of its template.
    """
    kind = as_text(raw.get("kind"))
    if not is_queued_kind(kind, group_of(raw)):
        return ""
    made = as_object(as_object(raw.get("spec")).get("jobTemplate")) if kind == "CronJob" else raw
    return labels_of(made).get(QUEUE_LABEL, "")


def _how_it_ended(job: Object) -> str:
    """Return the condition with which a Job has ended; empty if it has not."""
    for _, condition in as_objects(as_object(job.get("status")).get("conditions")):
        kind = as_text(condition.get("type"))
        if kind in {"Complete", "Failed"} and condition.get("status") == "True":
            return kind
    return ""


def _is_owned(pod: Object, kind: str, name: str) -> bool:
    owners = as_objects(as_object(pod.get("metadata")).get("ownerReferences"))
    return any(is_called(owner, kind, name) for _, owner in owners)


def _only_one_namespace(found: Iterable[Object], name: str) -> None:
    """Raise SourceError if objects are in several namespaces."""
    homes = sorted({namespace_in(raw) for raw in found})
    if len(homes) > 1:
        raise SourceError(f"several namespaces have {name!r}: give one of {some(homes)} by -n")


def _raise(error: SourceError) -> None:
    raise error


def _count(kind: str, spec: Mapping[str, Any]) -> int | None:
    """Return how many pods of a built-in workload run at the same time; None if it is not known."""
    match kind:
        case "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController":
            return _number(spec.get("replicas"), 1)
        case "Job":
            parallelism = _number(spec.get("parallelism"), 1)
            return min(parallelism, _number(spec.get("completions"), parallelism))
    return None


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) and 0 <= value < 10**9 else default


def _key(pod: Object, placed: PlacedPods) -> str:
    """Return a key of what an explanation looks at: pods with the same key have the same answer."""
    metadata, spec = as_object(pod.get("metadata")), as_object(pod.get("spec"))
    containers = [
        [field, *map(container.get, ("resources", "ports", "restartPolicy"))]
        for field in ("containers", "initContainers")
        for _, container in as_objects(spec.get(field))
    ]
    listed = (volume for _, volume in as_objects(spec.get("volumes")))
    volumes = [volume for volume in listed if _PLAIN_VOLUMES.isdisjoint(volume)]
    status = as_object(pod.get("status"))
    claims = status.get("resourceClaimStatuses")
    # Labels and annotations differ from pod to pod of a Job: only these matter.
    labels, annotations = (as_object(metadata.get(key)) for key in ("labels", "annotations"))
    named = [
        metadata.get("namespace"),
        labels.get(GPU_COUNT),
        *map(annotations.get, (*KAI_KEYS, *SELECTING)),
    ]
    if any(volume.get("ephemeral") for _, volume in as_objects(spec.get("volumes"))):
        named.append(metadata.get("name"))  # its claims have names of their own
    if status.get("nominatedNodeName"):
        named.append(metadata.get("name"))  # room is kept for itself
    named += [labels.get(key) for key in label_keys(pod)]
    named += needed_features(spec)
    marks = [*label_marks(pod, placed), *spread_marks(pod)]
    looked_at = [spec.get(key) for key in _LOOKED_AT]
    parts = [named, marks, looked_at, containers, volumes, claims]
    return json.dumps(parts, sort_keys=True, default=str)
