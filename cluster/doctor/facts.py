"""The facts for the checks: the objects of a cluster, and why some could not be listed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from cluster.accounting.account import CountedPod
from cluster.accounting.device_status import device_statuses
from cluster.accounting.pod_requests import effective_requests
from cluster.accounting.usage import Usage
from cluster.api.errors import ClusterError
from cluster.doctor.rows import Row, not_known
from cluster.snapshot.snapshot import NotInFilesError, Snapshot
from cluster.source.objects import (
    CLAIMS,
    CLUSTER_POLICIES,
    DAEMON_SETS,
    DEVICE_CLASSES,
    ENDPOINTS,
    GPU_CLUSTERS,
    KUEUE_WORKLOADS,
    MUTATING,
    MUTATING_BINDINGS,
    MUTATING_POLICIES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SLICES,
    TAINT_RULES,
    VALIDATING,
    VALIDATING_BINDINGS,
    VALIDATING_POLICIES,
    MissingRightError,
    NotServedError,
    Object,
    ObjectReader,
    Resource,
    SourceError,
    matches,
)
from cluster.source.registered import is_own
from cluster.source.release import Release, find_release
from policies.policy import Policy
from rules.base.json_values import as_object, as_objects, as_text
from rules.gpu.images import full_repository, image_name
from rules.objects.pod import DEFAULT_SCHEDULER
from rules.placement.node_labels import GPU_MEM
from rules.profile.platforms.programs import KUBE_SCHEDULER_IMAGE, program_of
from rules.profile.platforms.records import Version, parse_version
from rules.profile.profile import Profile

OPTIONAL = frozenset(
    (
        *(SLICES, CLAIMS, DEVICE_CLASSES, TAINT_RULES, CLUSTER_POLICIES, GPU_CLUSTERS),
        *(VALIDATING_POLICIES, VALIDATING_BINDINGS, MUTATING_POLICIES, MUTATING_BINDINGS),
        *(PRIORITY_CLASSES, KUEUE_WORKLOADS),
    )
)
"""Resources that many clusters do not have: without any, nothing is wrong or unknown."""
LISTED = (
    *(NODES, SLICES, CLAIMS, DEVICE_CLASSES, MUTATING, VALIDATING, NAMESPACES, DAEMON_SETS),
    *(ENDPOINTS, CLUSTER_POLICIES, GPU_CLUSTERS, VALIDATING_POLICIES, VALIDATING_BINDINGS),
    *(MUTATING_POLICIES, MUTATING_BINDINGS, PRIORITY_CLASSES, TAINT_RULES, KUEUE_WORKLOADS),
)
"""The resources that are listed, besides pods."""
# In the names of the pods of every scheduler that profiles know, or of their containers or images.
_SCHEDULER_WORD = "sched"
_AUTOSCALERS = ("cluster-autoscaler", "karpenter")

Request = Callable[[str], str]
"""Gets the text at a path of the API server. Raises ClusterError."""


class FailedPod(NamedTuple):
    """A pod with GPUs that has failed: how rows name it, why, and whether something replaces it."""

    subject: str
    reason: str
    has_owner: bool


class GivenDevice(NamedTuple):
    """A device that a kubelet has given to a pod, as the pod's status says since Kubernetes 1.36.

    `device` is the ID that the device plugin uses for it, `health` what the plugin says of it.
    """

    node: str
    resource: str
    device: str
    subject: str
    health: str


class PodFacts:
    """The facts about pods, which are not kept.

    - `images`: the pods of each image that belongs to a GPU platform, or is a scheduler's or an
      autoscaler's, without pods that have terminated.
    - `schedulers`: those that these pods name.
    - `waiting`: of these schedulers, but for the default one, the pods without a node.
    - `placing`: those that have given a pod its node.
    - `scheduler_words`: the names of pods that seem to run a scheduler, and of what is in them.
    - `failed`: the pods that asked for GPUs and have failed, and are still there.
    - `given`: the devices that running pods have, where their status says which.
    """

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self.images: dict[str, list[str]] = {}
        self.schedulers: set[str] = set()
        self.waiting: dict[str, list[str]] = {}
        self.placing: set[str] = set()
        self.scheduler_words: set[str] = set()
        self.failed: list[FailedPod] = []
        self.given: list[GivenDevice] = []

    def add(self, pod: Object, counted: CountedPod | None) -> None:
        """Note what counts of `pod`; `counted` is None if it has terminated."""
        metadata = as_object(pod.get("metadata"))
        namespace, name = (as_text(metadata.get(field)) for field in ("namespace", "name"))
        subject = f"pod/{name} in {namespace}"
        if counted is None:
            self._add_failed(pod, subject)
            return
        spec = as_object(pod.get("spec"))
        self._add_scheduler(spec, subject)
        containers = [
            container
            for field in ("initContainers", "containers")
            for _, container in as_objects(spec.get(field))
        ]
        own = {as_text(container.get("image")) for container in containers}
        words = {name, *map(image_name, own), *(as_text(c.get("name")) for c in containers)}
        if any(_SCHEDULER_WORD in word for word in words):
            self.scheduler_words |= words | _named_schedulers(containers)
        for image in own:
            if (
                image_name(image) == KUBE_SCHEDULER_IMAGE
                or program_of(image)
                or autoscaler_of(image)
            ):
                self.images.setdefault(image, []).append(subject)
        self.given.extend(
            GivenDevice(
                node=counted.node,
                resource=one.resource,
                device=one.device,
                subject=subject,
                health=one.health,
            )
            for one in device_statuses(pod)
        )

    def _add_scheduler(self, spec: Mapping[str, Any], subject: str) -> None:
        scheduler = as_text(spec.get("schedulerName"))
        self.schedulers.add(scheduler)
        if scheduler in {"", DEFAULT_SCHEDULER}:
            return
        if spec.get("nodeName"):
            self.placing.add(scheduler)
        else:
            self.waiting.setdefault(scheduler, []).append(subject)

    def _add_failed(self, pod: Object, subject: str) -> None:
        status = as_object(pod.get("status"))
        if status.get("phase") != "Failed":
            return
        if any(self._profile.resource(name) is not None for name in effective_requests(pod)):
            owners = as_objects(as_object(pod.get("metadata")).get("ownerReferences"))
            is_owned = any(owner.get("controller") is True for _, owner in owners)
            self.failed.append(
                FailedPod(subject=subject, reason=as_text(status.get("reason")), has_owner=is_owned)
            )


def _named_schedulers(containers: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the names that options such as `--scheduler-name=volcano` give to schedulers."""
    found = set()
    for container in containers:
        for field in ("command", "args"):
            words = container.get(field)
            for word in words if isinstance(words, list) else ():
                option, _, value = as_text(word).partition("=")
                if _SCHEDULER_WORD in option and value:
                    found.add(value)
    return found


class DoctorFacts(NamedTuple):
    """The facts about a cluster that the checks look at.

    - `snapshot`: has the objects of the resources in LISTED.
    - `missing`: the resources that could not be listed, and why.
    - `usage`: the account of its GPUs; None if pods could not be listed.
    - `request`: asks the API server for more; None if the objects are from files.
    - `metrics`: what the API server counts, or why it cannot be read; None if gpuward is not
      installed.
    - `release`: gpuward's own; None if the registered webhooks name no Service, or if there are
      none.
    """

    snapshot: Snapshot
    missing: Mapping[Resource, SourceError]
    usage: Usage | None
    pods: PodFacts
    policy: Policy
    request: Request | None
    release: Release | None
    metrics: str | ClusterError | None

    def objects(self, resource: Resource) -> list[Object]:
        """The objects of a resource; none if it could not be listed."""
        return self.snapshot.objects(resource)

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """One more object, as `ObjectReader.get` reads it."""
        return self.snapshot.source.get(resource, namespace, name)


def read_facts(source: ObjectReader, policy: Policy, request: Request | None) -> DoctorFacts:
    """List everything that the checks look at.

    Without `request` the objects are from files. What is not in files is not known to be absent,
    except what is OPTIONAL. Raises SourceError if files cannot be
    read, or if an API server lists nothing for another reason than a right.
    """
    snapshot = Snapshot(source, policy.profile, keep_going=request is not None)
    for resource in LISTED:
        snapshot.objects(resource)
    pods, usage = PodFacts(policy.profile), None
    missing = {
        resource: error
        for resource, error in snapshot.missing.items()
        if not (resource in OPTIONAL and isinstance(error, NotServedError | NotInFilesError))
    }
    try:
        usage = snapshot.usage(snapshot.count(on_pod=pods.add))
    except SourceError as error:
        missing[PODS] = error
    failures = (e for e in missing.values() if not isinstance(e, MissingRightError))
    if snapshot.missing.keys() >= {*LISTED} and usage is None and (failure := next(failures, None)):
        raise failure
    own = [
        item for each in (MUTATING, VALIDATING) for item in snapshot.objects(each) if is_own(item)
    ]
    is_called = bool(own) or VALIDATING in missing
    return DoctorFacts(
        snapshot=snapshot,
        missing=missing,
        usage=usage,
        pods=pods,
        policy=policy,
        request=request,
        release=find_release(source, own),
        metrics=_metrics(request) if request is not None and is_called else None,
    )


def _metrics(request: Request) -> str | ClusterError:
    try:
        return request("/metrics")
    except ClusterError as error:
        return error


def server_version(facts: DoctorFacts) -> Version | str:
    """The version of the API server, or why it is not known."""
    if facts.request is None:
        return "the objects are from files"
    try:
        text = as_text(as_object(json.loads(facts.request("/version"))).get("gitVersion"))
    except (ClusterError, ValueError, RecursionError) as error:
        return str(error)
    return parse_version(text) or f"it says {text!r}"


def own_configurations(facts: DoctorFacts, resource: Resource) -> list[Object]:
    """The configurations of gpuward."""
    return [item for item in facts.objects(resource) if is_own(item)]


def autoscaler_of(image: str) -> str:
    """The autoscaler that an image is of; empty if it is none."""
    parts = full_repository(image).split("/")
    return next((name for name in _AUTOSCALERS if name in parts), "")


def why_missing(facts: DoctorFacts, check: str, resource: Resource) -> Row | None:
    """The row that says that a resource is not known; None if it is."""
    if resource not in facts.missing:
        return None
    error = facts.missing[resource]
    if facts.request is None:
        remedy = f"list them too: kubectl get {resource} -A -o json"
        if resource == DAEMON_SETS:  # a cluster without any can be fit for GPUs
            remedy = f"if the cluster has no {resource.kind}, nothing; otherwise {remedy}"
    elif isinstance(error, MissingRightError):
        remedy = f"grant the right to list {resource}"
    else:
        remedy = f"see whether this works, then run the command again: kubectl get {resource} -A"
    return not_known(check, resource.name, str(error), remedy)


def nodes_with_shared_cards(facts: DoctorFacts) -> list[str]:
    """The names of the nodes that offer parts of cards by ACK's cGPU or gpushare."""
    return [
        name
        for name, node in by_name(facts.objects(NODES))
        if GPU_MEM in as_object(as_object(node.get("status")).get("allocatable"))
    ]


def name_of(item: Object) -> str:
    """The name of an object."""
    return as_text(as_object(item.get("metadata")).get("name"))


def by_name(items: list[Object]) -> Iterator[tuple[str, Object]]:
    """The objects with their names, in the order of the names."""
    yield from sorted(((name_of(item), item) for item in items), key=lambda pair: pair[0])


# The DaemonSets of a cluster.


class DaemonSet(NamedTuple):
    """A DaemonSet: how rows name it, the `spec` of its pods, and its status."""

    subject: str
    pod_spec: Mapping[str, Any]
    status: Mapping[str, Any]


def daemon_sets(facts: DoctorFacts) -> Iterator[DaemonSet]:
    """All DaemonSets that could be listed, in the order of their names."""
    for name, item in by_name(facts.objects(DAEMON_SETS)):
        namespace = as_text(as_object(item.get("metadata")).get("namespace"))
        template = as_object(as_object(item.get("spec")).get("template"))
        subject = f"daemonset/{name} in {namespace}"
        yield DaemonSet(
            subject=subject,
            pod_spec=as_object(template.get("spec")),
            status=as_object(item.get("status")),
        )


def may_be_on(daemon_set: DaemonSet, labels: Mapping[str, Any]) -> bool:
    """Return whether the pods of a DaemonSet may be on a node with these labels."""
    spec = daemon_set.pod_spec
    if not matches({"matchLabels": spec.get("nodeSelector")}, labels):
        return False
    affinity = as_object(as_object(spec.get("affinity")).get("nodeAffinity"))
    required = as_object(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    terms = [term for _, term in as_objects(required.get("nodeSelectorTerms"))]
    return not terms or any(matches(term, labels) for term in terms)
