"""The limits for GPUs that quotas, and the queues of Kueue, set."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice, product
from typing import Any, NamedTuple

from rules.base.json_values import Path, as_object, as_objects, as_text, display
from rules.base.quantity import Quantity, parse
from rules.base.text_matching import matches_any
from rules.gpu.claims import is_gpu_class, is_gpu_resource
from rules.gpu.devices import DEVICE_CLASS_PREFIX
from rules.inventory.inventory import (
    ClusterQueue,
    DeviceClass,
    Inventory,
    LocalQueue,
    NodeGroup,
    QuotaScope,
    ResourceQuota,
)
from rules.objects.kubernetes_objects import (
    LIMITS_PREFIX,
    REQUESTS_PREFIX,
    KubernetesObject,
    Quota,
)
from rules.objects.object_ref import BUILT_IN_GROUPS
from rules.objects.pod import Pod
from rules.profile.platforms.accounting_marks import ADMISSION_GATE, QUEUE_LABEL
from rules.profile.profile import Profile

DEVICE_CLASS_KEY_SUFFIX = ".deviceclass.resource.k8s.io/devices"
CLAIM_COUNT_KEY = "count/resourceclaims.resource.k8s.io"
MAX_GPU_SOURCES = 300


def quota_keys_by_gpu_source(
    inventory: Inventory, profile: Profile
) -> Mapping[str, tuple[str, ...]]:
    """The keys of quotas that limit GPUs, by what pods get them from: a resource or a device class.

    Messages name these sources. Empty if there are more than MAX_GPU_SOURCES, because a rule
    compares all of them with every quota.
    """
    return inventory.compute_once(_quota_keys_by_gpu_source, profile)


def quotas_beside(quota: Quota, inventory: Inventory) -> Mapping[str, ResourceQuota]:
    """The quotas of the namespace of `quota`, itself among them, by name.

    None at all if it is not known, or if it is no ResourceQuota.
    """
    known = inventory.all_in(ResourceQuota, quota.object.namespace)
    itself = known.get(quota.object.name) if quota.is_resource_quota else None
    if itself is None:
        return {}
    # A fix may have given it other keys than the inventory knows.
    has_changed = itself.hard != quota.hard
    return {**known, quota.object.name: itself._replace(hard=quota.hard)} if has_changed else known


def counts_claims(key: str) -> bool:
    """Return whether Kubernetes counts ResourceClaims by the key, which has no effect in scopes."""
    return key == CLAIM_COUNT_KEY or key.endswith(DEVICE_CLASS_KEY_SUFFIX)


def counting_keys(quota: ResourceQuota) -> Iterator[str]:
    """The keys of the quota, without those of claims if it has scopes."""
    return (key for key in quota.hard if not (quota.scopes and counts_claims(key)))


def first_gpu_key(quota: ResourceQuota, profile: Profile, inventory: Inventory) -> str:
    """The first key of the quota that limits GPUs; empty if there is none."""
    for key in counting_keys(quota):
        device_class = key.removesuffix(DEVICE_CLASS_KEY_SUFFIX)
        if device_class != key and is_gpu_class(device_class, profile, inventory):
            return key
        if key.startswith(REQUESTS_PREFIX) and is_gpu_resource(
            key.removeprefix(REQUESTS_PREFIX), profile
        ):
            return key
    return ""


def _quota_keys_by_gpu_source(
    inventory: Inventory, profile: Profile
) -> Mapping[str, tuple[str, ...]]:
    found = list(islice(_gpu_sources(inventory, profile), MAX_GPU_SOURCES + 1))
    return dict(found) if len(found) <= MAX_GPU_SOURCES else {}


def _gpu_sources(inventory: Inventory, profile: Profile) -> Iterator[tuple[str, tuple[str, ...]]]:
    groups = inventory.all_in(NodeGroup, None).values()
    offered = {name for group in groups for name in group.resources}
    for name in sorted(offered):
        resource = profile.resource(name)
        if resource is None or offered.isdisjoint(resource.companions):
            is_counted = matches_any(profile.limit_quotas, name)
            keys = (
                f"{REQUESTS_PREFIX}{name}",
                *((f"{LIMITS_PREFIX}{name}",) if is_counted else ()),
            )
            yield display(name), keys
    for name, known in sorted(inventory.all_in(DeviceClass, None).items()):
        if is_gpu_class(name, profile, inventory):
            stands_for = (f"{DEVICE_CLASS_PREFIX}{name}", known.extended_resource)
            keys = (
                f"{name}{DEVICE_CLASS_KEY_SUFFIX}",
                *(f"{REQUESTS_PREFIX}{each}" for each in stands_for),
                CLAIM_COUNT_KEY,
            )
            yield f"the device class {display(name)}", keys


class QuotaLimit(NamedTuple):
    """The number of devices that a quota allows, and its name."""

    value: int
    name: str


def smallest_quota(inventory: Inventory, namespace: str, resource: str) -> QuotaLimit | None:
    """The smallest limit of the GPU resource in the quotas that count every pod; None if unknown.

    The API server rounds up to thousandths before it stores a quota, and counts whole devices.
    """
    limits = [
        QuotaLimit(amount.thousandths // 1000, name)
        for name, quota in inventory.all_in(ResourceQuota, namespace).items()
        if not quota.scopes
        and isinstance(amount := parse(quota.hard.get(f"requests.{resource}", "")), Quantity)
    ]
    return min(limits, default=None)


# Kueue neither queues these nor copies their label to their pods.
UNQUEUED_KINDS = frozenset({"DaemonSet", "ReplicaSet", "ReplicationController"})


def queue_name(pod: Pod) -> str:
    """The name of the LocalQueue by which Kueue queues the pod or its workload; empty if none."""
    of_owner = None if pod.object.kind in UNQUEUED_KINDS else pod.owner_labels.get(QUEUE_LABEL)
    return as_text(of_owner or pod.labels.get(QUEUE_LABEL))


_VOLCANO_JOB = ("batch.volcano.sh", "Job")
_VOLCANO_SCHEDULER = "volcano"
_VOLCANO_QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"


def is_volcano_job(pod: Pod) -> bool:
    """Return whether the pod is a template of Volcano's Job."""
    return (pod.object.group, pod.object.kind) == _VOLCANO_JOB


def volcano_queue_name(pod: Pod) -> str:
    """The Queue of Volcano that the Job, or a pod of Volcano's scheduler, names; empty if none."""
    if is_volcano_job(pod):
        return as_text(pod.owner_spec.get("queue"))
    is_placed = pod.scheduler == _VOLCANO_SCHEDULER
    return as_text(pod.annotations.get(_VOLCANO_QUEUE_ANNOTATION)) if is_placed else ""


# Kueue queues the pods of these, each when it has been created.
_KINDS_QUEUED_AS_PODS = frozenset({"Pod", "Deployment", "StatefulSet"})
# Group -> the other kinds that Kueue queues; of a CronJob, its Jobs.
# https://kueue.sigs.k8s.io/docs/tasks/run/
_KINDS_QUEUED_BY_TEMPLATE = {
    "batch": frozenset({"CronJob", "Job"}),
    "jobset.x-k8s.io": frozenset({"JobSet"}),
    "kubeflow.org": frozenset(
        {"JAXJob", "MPIJob", "MXJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"}
    ),
    "leaderworkerset.x-k8s.io": frozenset({"LeaderWorkerSet"}),
    "ray.io": frozenset({"RayCluster", "RayJob", "RayService"}),
    "sparkoperator.k8s.io": frozenset({"SparkApplication"}),
    "trainer.kubeflow.org": frozenset({"TrainJob"}),
    "workload.codeflare.dev": frozenset({"AppWrapper"}),
}


def is_queued_kind(kind: str, group: str) -> bool:
    """Return whether Kueue itself queues objects of the kind, or their pods."""
    is_queued_as_pod = group in BUILT_IN_GROUPS and kind in _KINDS_QUEUED_AS_PODS
    return is_queued_as_pod or kind in _KINDS_QUEUED_BY_TEMPLATE.get(group, ())


def is_queued_by_template(pod: Pod) -> bool:
    """Return whether Kueue compares its flavors with the template, when there is no pod yet.

    What is added to Pods when they are created then comes too late for it.
    """
    kinds = _KINDS_QUEUED_BY_TEMPLATE.get(pod.object.group, ())
    return pod.object.kind in kinds and QUEUE_LABEL in pod.owner_labels


class ClusterQueueOfPod(NamedTuple):
    """The LocalQueue `name` of a pod, and the ClusterQueue `queue`, called `target`, behind it."""

    name: str
    target: str
    queue: ClusterQueue


def cluster_queue_of(pod: Pod, inventory: Inventory) -> ClusterQueueOfPod | None:
    """The ClusterQueue that decides when the pod starts; None if it is not known, or has decided.

    Kueue has decided about the pods of a cluster that it does not hold back.
    """
    name = queue_name(pod)
    local = inventory.find(LocalQueue, name, pod.object.namespace) if name else None
    queue = inventory.find(ClusterQueue, local.cluster_queue) if local else None
    if local is None or queue is None or (pod.exists and not waits_for_admission(pod)):
        return None
    return ClusterQueueOfPod(name, local.cluster_queue, queue)


def waits_for_admission(pod: Pod) -> bool:
    """Return whether Kueue's scheduling gate holds the pod back."""
    return any(
        gate.get("name") == ADMISSION_GATE
        for _, gate in as_objects(pod.spec.get("schedulingGates"))
    )


QUEUE_AMOUNT_FIELDS = ("nominalQuota", "borrowingLimit", "lendingLimit")


class QueueAmount(NamedTuple):
    """An amount of a resource in a flavor."""

    path: Path
    resource: str
    value: Any


def covered_resources(queue: KubernetesObject) -> Iterator[tuple[Path, str]]:
    """The names in `coveredResources` and in the quotas of flavors, with their paths."""
    for path, group in _resource_groups(queue):
        covered = group.get("coveredResources")
        for index, name in enumerate(covered if isinstance(covered, list) else ()):
            yield (*path, "coveredResources", index), as_text(name)
        for place, resource in _flavor_resources(group, path):
            yield (*place, "name"), as_text(resource.get("name"))


def queue_amounts(queue: KubernetesObject) -> Iterator[QueueAmount]:
    """Every amount of every resource, in the order of the manifest."""
    for path, group in _resource_groups(queue):
        for place, resource in _flavor_resources(group, path):
            for field in QUEUE_AMOUNT_FIELDS:
                if resource.get(field) is not None:
                    name = as_text(resource.get("name"))
                    yield QueueAmount((*place, field), name, resource[field])


def _resource_groups(queue: KubernetesObject) -> Iterator[tuple[Path, Any]]:
    listed = as_object(queue.raw.get("spec")).get("resourceGroups")
    for index, group in as_objects(listed):
        yield (*queue.path, "spec", "resourceGroups", index), group


def _flavor_resources(group: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    for index, flavor in as_objects(group.get("flavors")):
        for position, resource in as_objects(flavor.get("resources")):
            yield (*path, "flavors", index, "resources", position), resource


# Scopes of quotas: the pods that a quota counts.

PRIORITY_CLASS_SCOPE = "PriorityClass"
MAX_PRIORITY_CLASSES = 20
"""More priority classes are not compared: then fewer pods are found, and none that is counted."""
# No class has this name: names are lower case.
_UNNAMED_CLASS = "OTHER"


class PodChoices(NamedTuple):
    """The properties of a pod that scopes ask about; None if one does not matter.

    - `has_deadline`: `activeDeadlineSeconds` of the pod.
    - `is_best_effort`: no container requests or limits CPU or memory.
    - `crosses_namespaces`: a pod affinity that names namespaces.
    - `priority_class`: its name; empty if it has none.
    """

    has_deadline: bool | None
    is_best_effort: bool | None
    crosses_namespaces: bool | None
    priority_class: str | None

    def describe(self, classes: Sequence[str]) -> str:
        """The choices in words, such as "with activeDeadlineSeconds"."""
        return " and ".join(self._words(classes))

    def _words(self, classes: Sequence[str]) -> Iterator[str]:
        if self.has_deadline is not None:
            yield f"{'with' if self.has_deadline else 'without'} activeDeadlineSeconds"
        if self.is_best_effort is not None:
            yield f"{'without' if self.is_best_effort else 'with'} requests for CPU or memory"
        if self.crosses_namespaces is not None:
            preposition = "with" if self.crosses_namespaces else "without"
            yield f"{preposition} an affinity to pods of other namespaces"
        if self.priority_class == _UNNAMED_CLASS:
            yield f"with a priority class other than {', '.join(map(display, classes[:3]))}"
        elif self.priority_class is not None:
            known = f"with the priority class {display(self.priority_class)}"
            yield known if self.priority_class else "without a priority class"


class UncountedPods(NamedTuple):
    """Pods that no quota counts: the choices that make a pod one of them, and their words.

    Without any choice, no pod is counted.
    """

    choices: PodChoices
    words: str


def uncounted_pods(quotas: Iterable[tuple[QuotaScope, ...]]) -> UncountedPods | None:
    """The fewest choices by which no quota with one of these scopes counts a pod; None if none do.

    Choices of a priority class come last: a cluster can restrict who may choose which.
    """
    scopes = list(quotas)
    named = {
        value
        for each in scopes
        for scope in each
        if scope.name == PRIORITY_CLASS_SCOPE
        for value in scope.values
    }
    classes = sorted(named)[:MAX_PRIORITY_CLASSES]
    values = ((False, True), (False, True), (False, True), (_UNNAMED_CLASS, "", *classes))
    missed = [
        pod
        for pod in map(PodChoices._make, product(*values))
        if not any(all(_meets_scope(pod, scope) for scope in each) for each in scopes)
    ]
    if not missed:
        return None
    fields = range(len(values))
    subsets = [kept for size in range(len(values) + 1) for kept in combinations(fields, size)]
    for kept in sorted(subsets, key=lambda kept: (fields[-1] in kept, len(kept))):
        others = 1
        for field in fields:
            others *= 1 if field in kept else len(values[field])
        seen = Counter(tuple(pod[field] for field in kept) for pod in missed)
        for chosen, count in seen.items():
            if count == others:
                by_field = dict(zip(kept, chosen, strict=True))
                choices = PodChoices._make(by_field.get(field) for field in fields)
                return UncountedPods(choices, choices.describe(classes))
    return None


def _meets_scope(pod: PodChoices, scope: QuotaScope) -> bool:
    """Return whether the API server finds that the pod meets the scope."""
    if scope.name == PRIORITY_CLASS_SCOPE:
        return _meets_class(pod.priority_class or "", scope)
    met = {
        "Terminating": pod.has_deadline,
        "NotTerminating": not pod.has_deadline,
        "BestEffort": pod.is_best_effort,
        "NotBestEffort": not pod.is_best_effort,
        "CrossNamespacePodAffinity": pod.crosses_namespaces,
        "VolumeAttributesClass": False,  # of volumes, and never of a pod
    }
    return bool(met.get(scope.name, True))  # the API server refuses other scopes


def _meets_class(name: str, scope: QuotaScope) -> bool:
    met = {
        "Exists": bool(name),
        "DoesNotExist": not name,
        "In": name in scope.values,
        "NotIn": name not in scope.values,
    }
    return met.get(scope.operator, True)
