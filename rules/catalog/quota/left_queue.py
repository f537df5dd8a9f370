"""An update takes a GPU pod out of the hands of Kueue.

What it does
------------
Finds, at admission, updates of a pod that requests a GPU by which Kueue loses it:

- a scheduling gate of Kueue is removed, such as `kueue.x-k8s.io/admission`;
- a finalizer of Kueue is removed from a pod that is not being deleted;
- a label or an annotation of Kueue is added, changed or removed. Users may change what is theirs:
  `kueue.x-k8s.io/priority-class`, and the queue of a pod that still waits behind Kueue's gate;
- a pod with labels or annotations of Kueue loses its controller, or a label by which its Job knows
  it: the Job then makes another pod, and Kueue counts one of the two.

Kueue's controller makes such updates, as a service account of its own namespace. So this holds for
all users but those that begin with `system:`, and for service accounts of the pod's own namespace.

Finds also a new pod with a `kueue.x-k8s.io/role-hash` that Kueue has not written, if its user is
none of these. Kueue counts the pods of a group with the same value as copies of the first one,
which may ask for less. Its webhook writes a hash of eight digits into each pod that it holds back,
and keeps a value that is there. So a value of another form is found, and any value while Kueue's
gate is missing. A user who writes such a hash and the gate as well is not found.

A pod that is being deleted may lose its finalizers: it goes when its containers have ended.

Why it matters
--------------
Kueue counts a pod from its marks. A user who may patch pods can remove the gate of a queued pod,
and it runs at once. Without the label `kueue.x-k8s.io/managed` Kueue no longer looks at it: it runs
beside those that the queue has admitted, on GPUs that Kueue takes for free.

Fix safety
----------
The fix removes the annotation from a new pod, and Kueue then works out its own.

Options
-------
`controllers`: the users who may make such updates, with `*` for any text, such as
`system:serviceaccount:kueue-system:*`. No other user may then. By default the list is empty, and
the rule decides as described above: gpuward does not know where Kueue runs.

References
----------
- kubernetes-sigs/kueue, `pkg/controller/jobs/pod/pod_controller.go` (`Skip`,
  `constructGroupPodSets`), `pkg/controller/jobs/pod/pod_webhook.go`
- https://kubernetes.io/docs/concepts/scheduling-eviction/pod-scheduling-readiness/
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rules.base.json_values import as_object, as_objects, as_text, display, remove
from rules.base.text_matching import matches_any
from rules.base.traits import GPU
from rules.gpu.components import is_controller
from rules.gpu.devices import pod_requests_gpu
from rules.in_process.expression import (
    OBJECT,
    POLICY,
    REQUEST,
    Expression,
    Value,
    all_of,
    any_of,
    choose,
    get,
    is_in,
    name,
    not_,
    string,
    text,
)
from rules.in_process.statement import KEY, Statement, option, shown
from rules.profile.platforms.accounting_marks import (
    ADMISSION_GATE,
    JOB_LABELS,
    KUEUE_PREFIX,
    QUEUE_LABEL,
    ROLE_ANNOTATION,
    USERS_KEYS,
    is_mark,
)
from rules.rule import Action, Context, Finding, Findings, Fix, Pod, define_rule

KEY_FAULT = "is Kueue's, which counts by it the pod's GPUs"
JOB_LABEL_FAULT = (
    "changes: by it a Job knows the pod, and Kueue counts the pod's GPUs as a part of the Job"
)
GATE_FAULT = (
    "a scheduling gate of Kueue is removed: the pod runs before its queue admits it, and no quota "
    "counts its GPUs"
)
FINALIZER_FAULT = (
    "a finalizer of Kueue is removed from a pod that is not being deleted: Kueue does not learn "
    "how the pod ends"
)
OWNER_FAULT = (
    "the pod loses its controller, as a part of which Kueue counts it: no quota counts its GPUs"
)
ROLE_FAULT = (
    f"the annotation {display(ROLE_ANNOTATION)} is Kueue's, which counts pods with the same value "
    "as copies of the first"
)
_HASH = "[0-9a-f]{8}"
UPDATE_ADVICE = (
    "leave it to Kueue; delete the pod to give up its place. The option `controllers` names who "
    "may change it"
)
CREATE_ADVICE = "remove it: Kueue writes its own"
_NOUN_BY_FIELD = {"labels": "label", "annotations": "annotation"}


def check(pod: Pod, context: Context) -> Findings:
    """Yield what an update takes from Kueue, and what a new pod forges."""
    is_pod = pod.object.kind == "Pod"
    if not (is_pod and pod_requests_gpu(pod)) or _may_change_marks(context, pod):
        return
    if context.old_metadata is not None:
        yield from _findings_of_update(pod, context.old_metadata, context.old_spec or {})
    elif context.operation != "UPDATE" and not pod.exists and ROLE_ANNOTATION in pod.annotations:
        if ADMISSION_GATE in _gates(pod.spec) and _is_hash(pod.annotations[ROLE_ANNOTATION]):
            return
        path = (*pod.metadata_path, "annotations", ROLE_ANNOTATION)
        yield Finding(
            path=path,
            key=ROLE_ANNOTATION,
            message=ROLE_FAULT,
            help=CREATE_ADVICE,
            fix=Fix("remove the annotation", (remove(path),), safe=True),
        )


def _is_hash(value: object) -> bool:
    return re.fullmatch(_HASH, as_text(value)) is not None


def _may_change_marks(context: Context, pod: Pod) -> bool:
    user = context.user or ""
    if controllers := context.options["controllers"]:
        return matches_any(controllers, user)
    return is_controller(user, pod.object.namespace)


def _findings_of_update(pod: Pod, old: Mapping[str, Any], old_spec: Mapping[str, Any]) -> Findings:
    for where, noun in _NOUN_BY_FIELD.items():
        for key in _changed_keys(old, pod, where):
            if is_mark(key) and not _is_choice_of_queue(key, old, pod):
                yield _finding(pod, where, key, _key_message(noun, display(key), KEY_FAULT))
    if not _gates(old_spec) <= _gates(pod.spec):
        path = (*pod.path, "schedulingGates")
        yield Finding(path=path, key="schedulingGates", message=GATE_FAULT, help=UPDATE_ADVICE)
    is_deleted = bool(pod.metadata.get("deletionTimestamp"))
    if not (is_deleted or _finalizers(old) <= _finalizers(pod.metadata)):
        yield _finding(pod, "finalizers", "", FINALIZER_FAULT)
    if not any(map(is_mark, (*as_object(old.get("labels")), *as_object(old.get("annotations"))))):
        return
    for key in _changed_keys(old, pod, "labels"):
        if key in JOB_LABELS and key in as_object(old.get("labels")):
            yield _finding(pod, "labels", key, _key_message("label", display(key), JOB_LABEL_FAULT))
    if not _controllers(old) <= _controllers(pod.metadata):
        yield _finding(pod, "ownerReferences", "", OWNER_FAULT)


def _key_message(noun: str, key: object, fault: str) -> str:
    return f"the {noun} {key} {fault}"


def _changed_keys(old: Mapping[str, Any], pod: Pod, where: str) -> Iterator[str]:
    before, after = as_object(old.get(where)), as_object(pod.metadata.get(where))
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            yield key


def _is_choice_of_queue(key: str, old: Mapping[str, Any], pod: Pod) -> bool:
    """Return whether the user gives a pod its queue, or another one while Kueue holds it back."""
    if key != QUEUE_LABEL or key not in pod.labels:
        return False
    is_first = key not in as_object(old.get("labels"))
    return is_first or (bool(pod.labels[key]) and ADMISSION_GATE in _gates(pod.spec))


def _gates(spec: Mapping[str, Any]) -> set[str]:
    gates = (as_text(gate.get("name")) for _, gate in as_objects(spec.get("schedulingGates")))
    return set(filter(is_mark, gates))


def _finalizers(metadata: Mapping[str, Any]) -> set[str]:
    names = metadata.get("finalizers")
    return set(filter(is_mark, map(as_text, names if isinstance(names, list) else ())))


def _controllers(metadata: Mapping[str, Any]) -> set[str]:
    owners = as_objects(metadata.get("ownerReferences"))
    return {as_text(owner.get("uid")) for _, owner in owners if owner.get("controller") is True}


def _finding(pod: Pod, where: str, key: str, message: str) -> Finding:
    path = (*pod.metadata_path, where)
    return Finding(
        path=(*path, key) if key in as_object(pod.metadata.get(where)) else path,
        key=f"{where}.{key} changed" if key else f"{where} changed",
        message=message,
        help=UPDATE_ADVICE,
    )


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    is_of_pod = all_of(
        REQUEST.kind.kind == "Pod", not_(_may_change_marks_in_cel()), OBJECT.requestsGpu
    )
    is_update = all_of(POLICY.isUpdate, is_of_pod)
    is_kueues = all_of(_is_held(), string(OBJECT.annotations[KEY]).matches(f"^{_HASH}$"))
    return (
        *_key_statements(is_update),
        *_pod_statements(is_update),
        Statement(
            "annotation",
            all_of(not_(POLICY.isUpdate), KEY == ROLE_ANNOTATION, is_of_pod, not_(is_kueues)),
            ROLE_FAULT,
            CREATE_ADVICE,
            words=_words(),
        ),
    )


def _may_change_marks_in_cel() -> Expression:
    from rules.in_process import components  # noqa: PLC0415  # no linter needs it

    user = REQUEST.userInfo.username
    controllers = option("left-queue", "controllers")
    is_listed = controllers.exists(lambda p: user.matches(p))
    return choose((controllers.size() > 0, is_listed), otherwise=components.is_controller())


def _is_mark_in_cel(key: Expression) -> Expression:
    return all_of(key.startsWith(KUEUE_PREFIX), not_(is_in(key, sorted(USERS_KEYS))))


def _is_held() -> Expression:
    return OBJECT.kueueGates.exists(lambda n: n == ADMISSION_GATE)


def _words() -> dict[str, Value]:
    gates = get(OBJECT.spec, "schedulingGates", []).map(lambda g: string(g.name))
    finalizers = get(OBJECT.metadata, "finalizers", []).map(lambda f: string(f))
    owners = get(OBJECT.metadata, "ownerReferences", []).filter(
        lambda o: get(o, "controller", False)
    )
    return {
        "kueueGates": gates.filter(_is_mark_in_cel),
        "kueueFinalizers": finalizers.filter(_is_mark_in_cel),
        "kueueLabels": get(OBJECT.metadata, "labels", {}),
        "isKueues": any_of(
            OBJECT.kueueLabels.exists(_is_mark_in_cel), OBJECT.annotations.exists(_is_mark_in_cel)
        ),
        "controllerUids": owners.map(lambda o: string(o.uid)),
    }


def _key_statements(is_update: Expression) -> Iterator[Statement]:
    labels, old_labels = OBJECT.kueueLabels, POLICY.oldKueueLabels
    is_mark_of_kueue = _is_mark_in_cel(KEY)
    is_held = all_of(labels[KEY] != "", _is_held())
    is_choice_of_queue = all_of(
        KEY == QUEUE_LABEL, is_in(KEY, labels), any_of(not_(is_in(KEY, old_labels)), is_held)
    )
    is_of_job = all_of(is_in(KEY, sorted(JOB_LABELS)), is_in(KEY, old_labels), POLICY.oldIsKueues)
    for noun, where, fault in (
        ("label", all_of(is_mark_of_kueue, not_(is_choice_of_queue)), KEY_FAULT),
        ("annotation", is_mark_of_kueue, KEY_FAULT),
        ("label", is_of_job, JOB_LABEL_FAULT),
    ):
        yield Statement(
            "changedLabel" if noun == "label" else "changedAnnotation",
            all_of(where, is_update),
            text(_key_message(noun, shown(KEY), fault)),
            UPDATE_ADVICE,
            words=_words(),
        )


def _pod_statements(is_update: Expression) -> Iterator[Statement]:
    def loses(old: Expression, new: Expression) -> Expression:
        return old.exists(lambda n: not_(is_in(n, new)))

    is_deleted = name("has")(OBJECT.metadata.deletionTimestamp)
    for where, fault in (
        (loses(POLICY.oldKueueGates, OBJECT.kueueGates), GATE_FAULT),
        (
            all_of(not_(is_deleted), loses(POLICY.oldKueueFinalizers, OBJECT.kueueFinalizers)),
            FINALIZER_FAULT,
        ),
        (
            all_of(POLICY.oldIsKueues, loses(POLICY.oldControllerUids, OBJECT.controllerUids)),
            OWNER_FAULT,
        ),
    ):
        yield Statement("pod", all_of(is_update, where), fault, UPDATE_ADVICE, words=_words())


RULE = define_rule(
    check, action=Action.DENY, since="0.1", needs=(GPU,), options={"controllers": ()}
)
