"""A pod carries what only a GPU scheduler may write.

What it does
------------
Finds annotations and labels in which schedulers record which card a pod was given: those of ACK,
elastic-gpu-scheduler, HAMi (with its older releases and the device plugins of other makers that it
writes for), Huawei's MindCluster, Intel's GPU Aware Scheduling, KAI, koordinator, TensorFusion,
Tencent's gpu-manager and Volcano. Finds the environment variables of ACK that say the same, and
`CGPU_DISABLE` with a value that switches cGPU off. In a container that requests a share of ACK, a
prefix in `envFrom` that a key can complete to one of these variables counts too. Finds
`tensor-fusion.ai/disable-features`, by which TensorFusion switches off its limits of GPUs, if it
names `gpu-limiter` or `mem-manager`.

Schedulers and device plugins write these keys into pods that exist already. An update may therefore
add, change or remove them if its user is one of Kubernetes' own: a service account, a node, or
another user whose name begins with `system:`. A service account of the pod's own namespace gets a
warning. All other users are refused. The same holds for annotations by which a new pod asks for a
part of a card and by which its scheduler goes on counting, such as KAI's `gpu-fraction` and
TensorFusion's `tensor-fusion.ai/vram-request`: a new pod may have them, and nobody else may change
them later. The keys of a pod that was read from a cluster
are not checked.

In a pod that requests a GPU, finds also the label `app: kai-resource-reservation`. KAI's scheduler
takes such a pod for one of its own and counts its GPUs as free. In a pod of KAI that requests a
GPU, a change of `pod-group-name` is a finding, as in one of Run:ai; in one of Volcano a change of
`scheduling.k8s.io/group-name`, in one of koordinator a change of the label
`quota.scheduling.koordinator.sh/name`, and in one of YuniKorn a change of the application or of the
queue: by it the scheduler finds the queue or the quota that pays for the pod. A new pod of KAI that
brings its group along gets a note, because KAI compares only the names of groups, and the pod may
join a group of another namespace.

Why it matters
--------------
Schedulers and device plugins trust these keys. The device plugins of HAMi and Volcano look for the
pod that they allocate for by annotations alone, and hand it the cards that another annotation
lists: a pod with forged annotations gets cards that it did not ask for, and takes the place of the
pod whose turn it was. The schedulers count such a pod on cards that it was never given. Where a key
is changed or removed while the pod runs, they count its card as free, and give it to another pod.

The rule only warns about prefixes such as `ALIYUN_`, which credentials have as well.

Fix safety
----------
The fix removes the key only if the policy says `fix: true`: a refusal shows a user who copied a
running pod what is wrong with the copy. There is no fix for a prefix.

Options
-------
`writers`: the users who may write these keys into existing pods, with `*` for any
text, such as `system:serviceaccount:volcano-system:*`. Everybody else is then refused, service
accounts included. List the device plugin's account as well as the scheduler's. By default the list
is empty, and the rule decides as described above: gpuward does not know where a scheduler runs.

References
----------
- https://github.com/AliyunContainerService/gpushare-scheduler-extender
- koordinator-sh/koordinator, `pkg/scheduler/plugins/ack/gpushare`
- kai-scheduler/KAI-Scheduler, `pkg/common/resources/gpu_sharing.go`
- Project-HAMi/HAMi, `pkg/util/util.go` (`GetPendingPod`), `pkg/device/nvidia/device.go`
- Project-HAMi/volcano-vgpu-device-plugin, `pkg/plugin/vgpu/util/util.go` (`GetPendingPod`)
- intel/platform-aware-scheduling, `gpu-aware-scheduling/docs/usage.md`
- NexusGPU/tensor-fusion, `pkg/hypervisor/backend/kubernetes/deviceplugin.go`,
  `internal/gpuallocator/gpuallocator.go`, `internal/utils/compose.go`
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rules.base.json_values import as_object, as_text, display, remove
from rules.base.text_matching import matches_any
from rules.base.traits import (
    ALIYUN_PREFIX,
    CUSTOM_SCHEDULER,
    GPU,
    GPU_METADATA_KEY,
    GPU_VARIABLE,
    OLD_GPU_KEY,
    RESERVATION_LABEL,
    RESERVING_POD,
    SHARE,
)
from rules.finding import sha256_hex
from rules.gpu.allocation_keys import (
    ALLOCATION_ANNOTATIONS,
    ALLOCATION_LABELS,
    COUNTED_ANNOTATIONS,
    COUNTED_LABELS,
    KAI_GROUP,
    KAI_SCHEDULER,
    PAYER_KEYS_BY_SCHEDULER,
    is_allocation_annotation,
    is_allocation_label,
)
from rules.gpu.components import SYSTEM_USER_PREFIX
from rules.gpu.devices import Device, devices, pod_requests_gpu
from rules.gpu.visibility import prefix_findings, remove_edits
from rules.in_process.expression import (
    OBJECT,
    POLICY,
    REQUEST,
    Expression,
    all_of,
    any_of,
    choose,
    entry,
    get,
    is_in,
    not_,
    optional,
    text,
)
from rules.in_process.statement import CONTAINER, KEY, VARIABLE, Statement, option, shown
from rules.objects.pod import DEFAULT_SCHEDULER
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

SUBJECT = " asks for a share of a GPU and"
DISABLING_VARIABLE = "CGPU_DISABLE"
VARIABLE_SUFFIXES = ("IDX", "POD", "CONTAINER", "DEV", "ASSIGNED", "ASSUME_TIME")
RESERVED_VARIABLES = frozenset(
    {
        *(f"ALIYUN_COM_GPU_MEM_{part}" for part in VARIABLE_SUFFIXES),
        "ALIYUN_COM_GPU_VISIBLE_DEVICES",
        DISABLING_VARIABLE,
    }
)
# What a key can complete a prefix to, and how a prefix begins that serves no other purpose. Shorter
# prefixes of the last are those of the first, which reports them.
PATTERNS_AND_PREFIXES = (("ALIYUN_COM_GPU_MEM_*", "ALIYUN_COM_GPU_"), (DISABLING_VARIABLE, "CGPU_"))
VISIBLE_PATTERN_AND_PREFIX = ("ALIYUN_COM_GPU_VISIBLE_DEVICES", "ALIYUN_COM_GPU_V")
HARMLESS_VALUES = frozenset({"", "0", "false", "False", "FALSE"})
# Of TensorFusion, for emergencies: an annotation, or a label from which its workload gets one.
TENSOR_FUSION_SWITCH = "tensor-fusion.ai/disable-features"
LIMITING_FEATURES = frozenset({"gpu-limiter", "mem-manager"})
RESERVED_KEY_FAULT = "is the scheduler's: it tells who holds which GPU"
CREATE_ADVICE = "remove it: the scheduler writes its own"
UPDATE_ADVICE = "leave it to the scheduler; the option `writers` names who may write it"
SWITCH_FAULT = "is the administrator's: it switches off what keeps the GPU's sharers apart"
RESERVATION_FAULT = (
    'the label "{}: {}" is for pods of KAI itself: its scheduler does not count the GPUs of such a '
    "pod, and gives them to others"
).format(*RESERVATION_LABEL)
RESERVATION_ADVICE = "choose another value"
CHOSEN_GROUP_FAULT = (
    f"the annotation {display(KAI_GROUP)} chooses the group by whose queue KAI counts the pod's "
    "GPUs; KAI compares names alone, so the group may be one of another namespace"
)
CHOSEN_GROUP_ADVICE = "remove it, unless the group is the pod's own: KAI makes groups by itself"
REMOVAL_FAULT = "is removed, although it tells the scheduler which GPU the pod holds"
COUNT_FAULT = "changes, although the scheduler counts by it what the pod holds"
PAYER_FAULT = "changes, although it says which queue or quota pays for the pod's GPUs"
CHANGE_ADVICE = "leave it as it is while the pod exists; for another share, create another pod"
DISABLING_FAULT = "the administrator's: it switches off what keeps the GPU's sharers apart"
VARIABLE_FAULT = "the device plugin's: it tells which GPU the container holds"
VARIABLE_ADVICE = "remove the variable"
PREFIX_EFFECT = ", by which the device plugin tells cGPU what the container gets"
RESERVED_TEST_BY_FIELD = {"annotations": is_allocation_annotation, "labels": is_allocation_label}


def check(pod: Pod, context: Context) -> Findings:
    """Yield each reserved key that the user may not write, and each reserved variable."""
    action = _action_for_writer(pod, context)
    if action is not Action.OFF:
        for where, key, value in _reserved_keys(pod.metadata):
            yield _reserved_key_finding(pod, context, where, key, value)._replace(action=action)
        for finding in (*_findings_of_reservation_label(pod), *_findings_of_switched_limits(pod)):
            yield finding._replace(action=action)
        yield from _findings_of_chosen_group(pod, context)
        if context.old_metadata is not None:
            for finding in _findings_of_changed_keys(pod, context.old_metadata):
                yield finding._replace(action=action)
    for container in pod.containers:
        yield from _findings_of_prefixes(container)
        if RESERVED_VARIABLES.isdisjoint(container.env):
            continue
        for variable in container.env:
            harmless = (
                variable == DISABLING_VARIABLE
                and container.env_value(DISABLING_VARIABLE) in HARMLESS_VALUES
            )
            if variable in RESERVED_VARIABLES and not harmless:
                yield _finding(container, variable)


def _reserved_keys(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Each key that only schedulers write: its where, the key, and its value."""
    for where, is_reserved in RESERVED_TEST_BY_FIELD.items():
        for key, value in as_object(metadata.get(where)).items():
            if is_reserved(key):
                yield where, key, value


def _findings_of_reservation_label(pod: Pod) -> Findings:
    """Yield the label of KAI's own pods, in a pod that requests a GPU."""
    label, value = RESERVATION_LABEL
    if pod.labels.get(label) == value and pod_requests_gpu(pod):
        yield Finding(
            path=(*pod.metadata_path, "labels", label),
            key=f"labels.{label}={value}",
            message=RESERVATION_FAULT,
            help=RESERVATION_ADVICE,
        )


def _findings_of_switched_limits(pod: Pod) -> Findings:
    """Yield the key that switches off the limits of TensorFusion."""
    for where, noun in _NOUN_BY_FIELD.items():
        value = as_object(pod.metadata.get(where)).get(TENSOR_FUSION_SWITCH)
        words = [word.strip() for word in as_text(value).split(",")]
        if not LIMITING_FEATURES.isdisjoint(words):
            path = (*pod.metadata_path, where, TENSOR_FUSION_SWITCH)
            yield Finding(
                path=path,
                key=f"{where}.{TENSOR_FUSION_SWITCH}",
                message=_key_message(noun, display(TENSOR_FUSION_SWITCH), SWITCH_FAULT),
                help=f"remove the {noun}",
                fix=Fix(f"remove the {noun}", (remove(path),)),
            )


def _findings_of_chosen_group(pod: Pod, context: Context) -> Findings:
    """Yield the group that a new pod of KAI chooses itself."""
    if context.operation == "UPDATE" or pod.scheduler != KAI_SCHEDULER:
        return
    if KAI_GROUP in pod.annotations and _asks_for_gpus(pod):
        yield Finding(
            path=(*pod.metadata_path, "annotations", KAI_GROUP),
            key=f"annotations.{KAI_GROUP}",
            message=CHOSEN_GROUP_FAULT,
            help=CHOSEN_GROUP_ADVICE,
            action=Action.AUDIT,
        )


def _asks_for_gpus(pod: Pod) -> bool:
    return not COUNTED_ANNOTATIONS.isdisjoint(pod.annotations) or pod_requests_gpu(pod)


def _findings_of_changed_keys(pod: Pod, old: Mapping[str, Any]) -> Findings:
    """Yield what an update does to keys by which a scheduler counts what the pod holds."""
    for where, key, _ in _reserved_keys(old):
        if key not in as_object(pod.metadata.get(where)):
            yield _changed_key_finding(pod, where, key, REMOVAL_FAULT)
    if pod.scheduler == DEFAULT_SCHEDULER:
        return  # which knows no such annotations
    before = as_object(old.get("annotations"))
    for key in sorted(COUNTED_ANNOTATIONS):
        if before.get(key) != pod.annotations.get(key):
            yield _changed_key_finding(pod, "annotations", key, COUNT_FAULT)
    yield from _findings_of_new_payer(pod, old)
    if not any(map(is_allocation_annotation, before)):
        return  # it holds no card
    labels = as_object(old.get("labels"))
    for key in sorted(COUNTED_LABELS):
        if labels.get(key) != pod.labels.get(key):
            yield _changed_key_finding(pod, "labels", key, COUNT_FAULT)


def _findings_of_new_payer(pod: Pod, old: Mapping[str, Any]) -> Findings:
    """Yield the key by which another queue or quota pays for a pod that exists already."""
    keys = PAYER_KEYS_BY_SCHEDULER.get(pod.scheduler, ())
    for where, key in keys if _asks_for_gpus(pod) else ():
        if as_object(old.get(where)).get(key) != as_object(pod.metadata.get(where)).get(key):
            yield _changed_key_finding(pod, where, key, PAYER_FAULT)


_NOUN_BY_FIELD = {"annotations": "annotation", "labels": "label"}


def _changed_key_finding(pod: Pod, where: str, key: str, fault: str) -> Finding:
    path = (*pod.metadata_path, where)
    return Finding(
        path=(*path, key) if where in pod.metadata else path,
        key=f"{where}.{key} changed",
        message=_key_message(_NOUN_BY_FIELD[where], display(key), fault),
        help=CHANGE_ADVICE,
    )


def _key_message(noun: str, key: object, fault: str) -> str:
    return f"the {noun} {key} {fault}"


def _variable_message(container: object, variable: object, what: object) -> str:
    return f"{container} sets {variable}, which is {what}"


def _findings_of_prefixes(container: Container) -> Findings:
    if not any(
        d.is_requested and d.name.startswith(ALIYUN_PREFIX) for d in _share_devices(container)
    ):
        return
    subject = f"{container}{SUBJECT}"
    effect = PREFIX_EFFECT
    for pattern, own in (*PATTERNS_AND_PREFIXES, VISIBLE_PATTERN_AND_PREFIX):
        found = prefix_findings(container, pattern, subject=subject, effect=effect, within=own)
        certain = list(found)
        yield from certain
        if not certain and (pattern, own) != VISIBLE_PATTERN_AND_PREFIX:
            shorter = prefix_findings(container, pattern, subject=subject, effect=effect)
            yield from (finding._replace(action=Action.WARN) for finding in shorter)


def _share_devices(container: Container) -> Iterable[Device]:
    return (d for d in devices(container).values() if d.resource.sharing == "share")


def _action_for_writer(pod: Pod, context: Context) -> Action:
    """Return the action if the user of the request writes a reserved annotation."""
    if pod.exists and context.operation is None:
        return Action.OFF
    if context.operation != "UPDATE" or pod.object.kind != "Pod":
        return Action.DENY  # the annotations of a template are those of new pods
    user = context.user or ""
    if writers := context.options["writers"]:
        return Action.OFF if matches_any(writers, user) else Action.DENY
    if user.startswith(f"{SYSTEM_USER_PREFIX}serviceaccount:{pod.object.namespace}:"):
        return Action.WARN
    return Action.OFF if user.startswith(SYSTEM_USER_PREFIX) else Action.DENY


def _reserved_key_finding(pod: Pod, context: Context, where: str, key: str, value: Any) -> Finding:
    path = (*pod.metadata_path, where, key)
    identity = f"{where}.{key}"
    noun = _NOUN_BY_FIELD[where]
    message = _key_message(noun, display(key), RESERVED_KEY_FAULT)
    advice = CREATE_ADVICE
    if context.operation == "UPDATE" and pod.object.kind == "Pod":
        # A changed value is a new fault, so the value is part of the identity.
        identity += f"={sha256_hex(as_text(value))[:16]}"
        advice = UPDATE_ADVICE
    fix = Fix(f"remove the {noun}", (remove(path),))
    return Finding(path=path, key=identity, message=message, help=advice, fix=fix)


def _finding(container: Container, variable: str) -> Finding:
    what = DISABLING_FAULT if variable == DISABLING_VARIABLE else VARIABLE_FAULT
    message = _variable_message(container, variable, what)
    path = container.env_path(variable)
    fix = Fix(f"remove {variable}", remove_edits(container, variable))
    return Finding(
        path=path,
        key=variable,
        message=message,
        container=container,
        help=VARIABLE_ADVICE,
        fix=fix,
    )


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    return (
        *_key_statements(),
        *_changed_key_statements(),
        _variable_statement(),
        *_prefix_statements(),
    )


def _is_update_of_pod() -> Expression:
    return all_of(POLICY.isUpdate, REQUEST.kind.kind == "Pod")


def _asks_for_gpus_in_cel() -> Expression:
    is_counted = OBJECT.annotations.exists(lambda k: is_in(k, sorted(COUNTED_ANNOTATIONS)))
    return any_of(OBJECT.requestsGpu, is_counted)


def _action_for_writer_in_cel() -> Expression:
    user = REQUEST.userInfo.username
    own = f"{SYSTEM_USER_PREFIX}serviceaccount:" + REQUEST.namespace + ":"
    writers = option("reserved-gpushare-keys", "writers")
    is_writer = writers.exists(lambda p: user.matches(p))
    return choose(
        (not_(_is_update_of_pod()), "deny"),
        (writers.size() > 0, choose((is_writer, "off"), otherwise="deny")),
        (user.startsWith(own), "warn"),
        (user.startsWith(SYSTEM_USER_PREFIX), "off"),
        otherwise="deny",
    )


def _key_statements() -> Iterator[Statement]:
    from rules.in_process.nodes import scheduler  # noqa: PLC0415  # no linter needs it
    from rules.in_process.patterns import matches_any  # noqa: PLC0415  # the same

    action = _action_for_writer_in_cel()
    labels = get(OBJECT.metadata, "labels", {})
    words = {
        "reservedAnnotations": OBJECT.annotations.filter(
            lambda k: matches_any(k, ALLOCATION_ANNOTATIONS)
        ),
        "reservedLabels": labels.filter(lambda k: matches_any(k, ALLOCATION_LABELS)),
    }
    is_update = _is_update_of_pod()
    for noun, reserved, changed, values in (
        ("annotation", OBJECT.reservedAnnotations, OBJECT.changedAnnotations, OBJECT.annotations),
        ("label", OBJECT.reservedLabels, OBJECT.changedLabels, labels),
    ):
        yield Statement(
            "annotation" if noun == "annotation" else "label",
            # Of an update only what it changes counts, whatever the message says.
            all_of(is_in(KEY, reserved), any_of(not_(is_update), is_in(KEY, changed))),
            text(_key_message(noun, shown(KEY), RESERVED_KEY_FAULT)),
            choose((is_update, UPDATE_ADVICE), otherwise=CREATE_ADVICE),
            action,
            words=words,
        )
        features = entry(values, TENSOR_FUSION_SWITCH, "").split(",")
        yield Statement(
            "pod",
            features.exists(lambda word: is_in(word.trim(), sorted(LIMITING_FEATURES))),
            _key_message(noun, display(TENSOR_FUSION_SWITCH), SWITCH_FAULT),
            f"remove the {noun}",
            action,
        )
    label, value = RESERVATION_LABEL
    yield Statement(
        "pod",
        all_of(entry(optional(OBJECT.metadata, "labels"), label, "") == value, OBJECT.requestsGpu),
        RESERVATION_FAULT,
        RESERVATION_ADVICE,
        action,
    )
    yield Statement(
        "pod",
        all_of(
            not_(POLICY.isUpdate),
            scheduler() == KAI_SCHEDULER,
            is_in(KAI_GROUP, OBJECT.annotations),
            _asks_for_gpus_in_cel(),
        ),
        CHOSEN_GROUP_FAULT,
        CHOSEN_GROUP_ADVICE,
        "audit",
    )


def _changed_key_statements() -> Iterator[Statement]:
    from rules.in_process.nodes import scheduler  # noqa: PLC0415  # no linter needs it

    is_counting = scheduler() != DEFAULT_SCHEDULER
    old_annotations, old_labels = POLICY.oldReservedAnnotations, POLICY.oldReservedLabels
    is_counted_label = is_in(KEY, sorted(COUNTED_LABELS))
    for where, noun, reserved, is_counted in (
        ("annotations", "annotation", old_annotations, is_in(KEY, sorted(COUNTED_ANNOTATIONS))),
        ("labels", "label", old_labels, all_of(is_counted_label, old_annotations.size() > 0)),
    ):
        is_removed = not_(is_in(KEY, get(OBJECT.metadata, where, {})))
        pays = [
            all_of(scheduler() == name, is_in(KEY, listed))
            for name, keys in PAYER_KEYS_BY_SCHEDULER.items()
            if (listed := [key for place, key in keys if place == where])
        ]
        yield _changed_key_statement(noun, all_of(is_removed, is_in(KEY, reserved)), REMOVAL_FAULT)
        yield _changed_key_statement(noun, all_of(is_counting, is_counted), COUNT_FAULT)
        pays_for_gpus = all_of(any_of(*pays), _asks_for_gpus_in_cel())
        yield _changed_key_statement(noun, pays_for_gpus, PAYER_FAULT)


def _changed_key_statement(noun: str, where: Expression, fault: str) -> Statement:
    return Statement(
        "changedAnnotation" if noun == "annotation" else "changedLabel",
        all_of(_is_update_of_pod(), where),
        text(_key_message(noun, shown(KEY), fault)),
        CHANGE_ADVICE,
        _action_for_writer_in_cel(),
    )


def _variable_statement() -> Statement:
    v = VARIABLE
    is_switch = v.name == DISABLING_VARIABLE
    is_harmless = all_of(is_switch, not_(v.isReference), is_in(v.value, sorted(HARMLESS_VALUES)))
    what = choose((is_switch, DISABLING_FAULT), otherwise=VARIABLE_FAULT)
    return Statement(
        "variable",
        all_of(is_in(v.name, sorted(RESERVED_VARIABLES)), not_(is_harmless)),
        text(_variable_message(CONTAINER.text, v.name, what)),
        VARIABLE_ADVICE,
        variables=tuple(sorted(RESERVED_VARIABLES)),
    )


def _prefix_statements() -> Iterator[Statement]:
    from rules.in_process import variables  # noqa: PLC0415  # no linter needs it

    where = CONTAINER.devices.exists(
        lambda x: all_of(x.name.startsWith(ALIYUN_PREFIX), x.facts[0].sharing == "share")
    )
    for pattern, own in (*PATTERNS_AND_PREFIXES, VISIBLE_PATTERN_AND_PREFIX):
        yield variables.prefix_statement(pattern, PREFIX_EFFECT, where, within=own, subject=SUBJECT)
        if (pattern, own) != VISIBLE_PATTERN_AND_PREFIX:
            is_shorter = all_of(not_(variables.has_prefix(pattern, within=own)), where)
            found = variables.prefix_statement(pattern, PREFIX_EFFECT, is_shorter, subject=SUBJECT)
            yield found._replace(action="warn")


RULE = define_rule(
    check,
    action=Action.DENY,
    since="0.1",
    needs=(
        # The last three are of what it says about a GPU pod without such keys and variables.
        GPU_METADATA_KEY | GPU_VARIABLE | OLD_GPU_KEY | SHARE | CUSTOM_SCHEDULER | RESERVING_POD,
        GPU_METADATA_KEY | GPU_VARIABLE | OLD_GPU_KEY | GPU,
    ),
    options={"writers": ()},
)
