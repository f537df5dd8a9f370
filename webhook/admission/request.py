"""The question of a review, and the part of the object that may be fixed."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rules.base.json_values import as_object, as_objects, as_text
from rules.base.traits import RESERVATION_LABEL
from rules.engine.bounds import StepLimit
from rules.finding import Action
from rules.gpu.allocation_keys import PAYER_LABELS
from rules.gpu.components import CONTROLLER_MANAGER, is_controller
from rules.inventory.inventory import Inventory
from rules.objects.container import CONTAINER_LISTS
from rules.profile.context import Context
from rules.profile.platforms.accounting_marks import JOB_LABELS, is_mark
from rules.relevance.pods import key_traits
from webhook.admission.review import AdmissionReview

EVALUATED_OPERATIONS = ("CREATE", "UPDATE")
EPHEMERAL_FIELD = "ephemeralContainers"
# What the API server writes itself, and no update can set. Nothing that a user changes is here.
BOOKKEEPING_FIELDS = frozenset(
    {
        *("managedFields", "resourceVersion", "generation", "selfLink"),
        *("deletionTimestamp", "deletionGracePeriodSeconds"),
    }
)
NAMESPACE_LIMIT_KINDS = ("LimitRange", "ResourceQuota")
# The users that make claims from templates.
CLAIM_CONTROLLERS = (
    "system:serviceaccount:kube-system:resource-claim-controller",
    CONTROLLER_MANAGER,
)


class AdmissionRequest(NamedTuple):
    """A review that needs a decision.

    `object` and `old` are the objects of the review with their kind; `old` is None for a new
    object. `steps` limits the work of the decision.
    """

    review: AdmissionReview
    object: Any
    old: Any
    context: Context
    mode: Action
    steps: StepLimit | None = None

    @property
    def is_pod(self) -> bool:
        """Return whether a pod itself is created or changed."""
        return self.review.is_pod

    @property
    def is_namespace_limit(self) -> bool:
        """Return whether a ResourceQuota or a LimitRange is created or changed."""
        return self.review.kind in NAMESPACE_LIMIT_KINDS and not self.review.group

    @property
    def is_claim(self) -> bool:
        """Return whether a claim for devices is created, or a template of one."""
        return self.review.is_claim

    @property
    def is_validated(self) -> bool:
        """Return whether gpuward may refuse the object. About all others it only warns."""
        return self.is_pod or self.is_namespace_limit or self.is_claim

    @property
    def is_harmless_update(self) -> bool:
        """Return whether an update is harmless, however large the pod. It is then not evaluated.

        It changes nothing but labels by which no GPU is given or counted, and owners: it takes
        some away, or a controller adds some.
        """
        if self.old is None:
            return False
        is_by_controller = is_controller(self.context.user or "", self.review.namespace)
        if not is_by_controller and _adds_owner(_metadata(self.object), _metadata(self.old)):
            return False
        new, old = (_read_parts(pod, _counts_gpus) for pod in (self.object, self.old))
        return new == old


def admission_request(
    review: AdmissionReview, mode: Action, today: datetime.date, inventory: Inventory
) -> AdmissionRequest | None:
    """The request in `review`; None if gpuward has nothing to decide about it."""
    raw = review.object
    if (
        mode is Action.OFF
        or review.operation not in EVALUATED_OPERATIONS
        or not isinstance(raw, dict)
    ):
        return None
    is_new = review.operation == "CREATE"
    if not is_new and review.is_pod and _is_same_for_rules(raw, as_object(review.old)):
        return None  # such as one without a finalizer, which must always go
    operation: Literal["CREATE", "UPDATE"] = "CREATE" if is_new else "UPDATE"
    context = Context(today, review.namespace, review.user, operation, inventory=inventory)
    old = None if is_new else _with_kind(as_object(review.old), review)
    request = AdmissionRequest(review, _with_kind(raw, review), old, context, mode)
    if request.is_pod and old is not None:
        before = _metadata(old), as_object(old.get("spec"))
        context = context._replace(old_metadata=before[0], old_spec=before[1])
        return request._replace(context=context)
    if request.is_pod or request.is_namespace_limit:
        return request
    if _is_made_by_controller(request):
        return None
    # The user who applies a component's workload is not the one who will create its pods.
    user = context.user if request.is_claim else None
    return request._replace(context=context._replace(user=user))


def _is_same_for_rules(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Return whether an update leaves everything of a pod as it was that rules may read.

    A pod that is being deleted keeps its GPU until it has ended, so it is evaluated like any other.
    """
    one, other = _metadata(new), _metadata(old)
    if one.get("ownerReferences") != other.get("ownerReferences"):
        return False
    return _read_parts(new) == _read_parts(old)


def _read_parts(
    pod: Mapping[str, Any], is_kept_label: Callable[[str], bool] | None = None
) -> Mapping[str, Any]:
    """Return the parts of a pod that rules may read, but its owners.

    It leaves out only what no rule is known to read. With `is_kept_label`, only the labels for
    which it is true.
    """
    metadata = _metadata(pod)
    parts = {key: value for key, value in metadata.items() if key not in _OWN_TESTS}
    labels = as_object(metadata.get("labels"))
    if is_kept_label is not None:
        labels = {key: value for key, value in labels.items() if is_kept_label(key)}
    finalizers: list[str] = []
    if not metadata.get("deletionTimestamp"):  # else they only keep the pod from going
        finalizers = [f for f in _texts(metadata.get("finalizers")) if is_mark(f)]
    others = {key: value for key, value in pod.items() if key not in _OTHER_FIELDS}
    return {**others, "metadata": parts, "labels": labels, "finalizers": finalizers}


# The status is the kubelet's, and is not updated with the pod. A pod stays a pod.
_OTHER_FIELDS = frozenset({"apiVersion", "kind", "metadata", "status"})
# What of the metadata is compared in another way.
_OWN_TESTS = BOOKKEEPING_FIELDS | {"ownerReferences", "finalizers", "labels"}


def _counts_gpus(label: str) -> bool:
    """Return whether GPUs are given or counted by the label."""
    counting = PAYER_LABELS | JOB_LABELS | {RESERVATION_LABEL[0]}
    return bool(key_traits(label)) or label in counting or is_mark(label)


def _adds_owner(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    before = [owner for _, owner in as_objects(old.get("ownerReferences"))]
    return any(owner not in before for _, owner in as_objects(new.get("ownerReferences")))


def _texts(value: Any) -> Sequence[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else ()


def _is_made_by_controller(request: AdmissionRequest) -> bool:
    """Return whether a controller makes the object from another one, which was evaluated itself.

    Any user may write a controller into the owners of an object, so the user who sends it must be a
    controller too. For a claim it must be one of those of Kubernetes: it has no pods, which are
    evaluated in any case.
    """
    review = request.review
    if request.is_claim:
        return review.kind == "ResourceClaim" and review.user in CLAIM_CONTROLLERS
    owners = as_objects(_metadata(request.object).get("ownerReferences"))
    is_owned = any(owner.get("controller") is True for _, owner in owners)
    return is_owned and is_controller(review.user, review.namespace)


def _metadata(raw: Any) -> Mapping[str, Any]:
    return as_object(as_object(raw).get("metadata"))


def _with_kind(raw: Mapping[str, Any], review: AdmissionReview) -> Mapping[str, Any]:
    """`raw` with the kind of the review, which the rules need, if it has none itself."""
    if raw.get("kind") and raw.get("apiVersion"):
        return raw
    version = f"{review.group}/v1" if review.group else "v1"
    return {**raw, "apiVersion": version, "kind": review.kind}


def fixable_containers(request: AdmissionRequest) -> frozenset[str] | None:
    """The names of the containers that may be changed; None for everything in a new pod."""
    if request.review.operation == "CREATE":
        return None
    if request.review.resource != "pods/ephemeralcontainers":
        return frozenset()
    # A finding about the whole pod has no container's name either. API servers refuse such names.
    return _ephemeral_names(request.object) - _ephemeral_names(request.old) - {""}


def containers_with_new_image(request: AdmissionRequest) -> frozenset[str]:
    """The names of the containers that an update of a pod gives another image."""
    before = _images(request.old)
    new = _images(request.object).items()
    return frozenset(name for name, image in new if before.get(name, image) != image)


def _images(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = as_object(pod.get("spec"))
    listed = (as_objects(spec.get(field)) for field in CONTAINER_LISTS)
    return {as_text(c.get("name")): c.get("image") for each in listed for _, c in each}


def _ephemeral_names(pod: Mapping[str, Any]) -> frozenset[str]:
    containers = as_objects(as_object(pod.get("spec")).get(EPHEMERAL_FIELD))
    return frozenset(as_text(container.get("name")) for _, container in containers)
