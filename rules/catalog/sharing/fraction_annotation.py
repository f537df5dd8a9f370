"""Annotations ask for a part of a GPU that the scheduler refuses.

What it does
------------
Checks the annotations by which a pod asks for a part of a GPU, if the profile has any, as KAI's
`gpu-fraction`, `gpu-memory` and `gpu-fraction-num-devices`. Finds a part that is not a number above
0 and below 1, memory or a number of cards that is not a positive whole number, a part beside an
amount of memory, a number of cards without either, and annotations beside a limit of a whole GPU.
Finds also KAI's `mps: "true"` in a pod for its scheduler without a part, also beside whole GPUs.

Time-sharing and MPS of GKE, and time-slicing of NVIDIA's device plugin, have no such annotations:
a pod asks for `nvidia.com/gpu: 1` on nodes that it selects by labels, and a share has no size that
could be wrong. `several-shared-gpus` and `fractional-gpu` are about what can be wrong there.

Why it matters
--------------
KAI refuses such a pod, at admission or when it binds the pod to a node. Its user waits for a GPU
that never comes. A key that KAI does not read is ignored: the pod runs without a GPU. In a pod for
another scheduler, the annotations have no effect at all; there the rule only warns.

References
----------
- https://github.com/kai-scheduler/KAI-Scheduler/tree/main/docs/gpu-sharing
- KAI scheduler, `pkg/binder/plugins/gpusharing/gpu-request/gpu_request_validator.go`
"""

import re

from rules.base.json_values import as_text, display
from rules.base.quantity import Placeholder, Quantity, parse
from rules.base.text_matching import has_placeholder, nearest_word
from rules.base.traits import GPU_ANNOTATION, GPU_METADATA_KEY
from rules.gpu.devices import pod_requests_gpu
from rules.profile.profile import Fraction
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

_WHOLE_NUMBER_PATTERN = r"[0-9]{1,20}"
# Digits with a decimal point or an exponent, as both of KAI's parsers read them.
_DECIMAL_PATTERN = r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?"
_MAX_CHARACTERS = 60
PORTION_FAULT = "is not a part of a GPU: a number above 0 and below 1"
PORTION_ADVICE = 'write a number such as "0.5", or ask for whole GPUs in resources.limits'
NUMBER_FAULT, NUMBER_ADVICE = "is not a positive whole number", "write a number such as 2"
NANO_OF_ONE = 10**9
# Prefixes of KAI's own keys, and of those of Run:ai, from which KAI comes
# (pkg/common/constants/constants.go). A key with another prefix has another meaning.
_PREFIXES = ("", "kai.scheduler", "runai")


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each annotation for a part of a GPU that cannot be fulfilled, or is none."""
    for fraction in pod.profile.fractions:
        keys = (*fraction.annotations, fraction.cards)
        if not any(key in pod.annotations for key in keys):
            if _is_for_scheduler_of(pod, fraction):
                yield from _mps_without_part(pod, fraction)
                if not pod_requests_gpu(pod):
                    yield from _keys_in_vain(pod, fraction)
                    yield from _annotations_of_workload(pod, fraction)
            continue
        is_obeyed = pod.profile.grants_fraction(fraction, pod.annotations, pod.scheduler)
        action = Action.DENY if is_obeyed else Action.WARN
        yield from (finding._replace(action=action) for finding in _findings(pod, fraction))


def _findings(pod: Pod, fraction: Fraction) -> Findings:
    portion, memory, cards = fraction.portion, fraction.memory, fraction.cards
    if portion in pod.annotations and not _is_valid_portion(pod.annotations[portion]):
        yield _finding(pod, portion, PORTION_FAULT, PORTION_ADVICE)
    for key in (memory, cards):
        if key in pod.annotations and not _is_positive_number(pod.annotations[key]):
            yield _finding(pod, key, NUMBER_FAULT, NUMBER_ADVICE)
    requests = [key for key in (portion, memory) if key in pod.annotations]
    if len(requests) > 1:
        yield _finding(
            pod,
            memory,
            f"stands beside {portion}: only one of them can apply",
            (f"remove {portion} or {memory}"),
            key=f"beside.{portion}",
        )
    if cards in pod.annotations and not any(key in pod.annotations for key in fraction.annotations):
        what = f"needs {' or '.join(fraction.annotations)}, which is missing"
        yield _finding(
            pod,
            cards,
            what,
            f"add {fraction.annotations[0]}, or remove {cards}",
            key=(f"alone.{cards}"),
        )
    if requests and fraction.target and fraction.target in pod.annotations and pod.is_complete:
        names = {container.name for container in pod.containers if container.role != "ephemeral"}
        named = as_text(pod.annotations[fraction.target])
        if named not in names and not has_placeholder(named):
            what, advice = "names no container of the pod", "write the name of a container"
            yield _finding(pod, fraction.target, what, advice)
    if requests and (whole := _container_with_whole_gpu(pod, fraction)) is not None:
        container, name = whole
        what = f"stands beside {name} of {container}: a pod gets a part or whole GPUs, not both"
        advice = f"remove the annotation or the limit of {name}"
        yield _finding(pod, requests[0], what, advice, key=f"whole.{requests[0]}")


def _is_for_scheduler_of(pod: Pod, fraction: Fraction) -> bool:
    """Return whether the pod names the scheduler that hands out such parts."""
    return any(
        pod.scheduler == scheduler.name and {*scheduler.annotations} & {*fraction.annotations}
        for scheduler in pod.profile.schedulers
    )


def _mps_without_part(pod: Pod, fraction: Fraction) -> Findings:
    if fraction.mps and pod.annotations.get(fraction.mps) == "true" and pod.is_complete:
        parts = " or ".join(fraction.annotations)
        yield _finding(
            pod,
            fraction.mps,
            f"asks for MPS without a part of a GPU: {pod.scheduler} refuses the pod",
            f"add {parts}, or remove {fraction.mps}",
        )


def _keys_in_vain(pod: Pod, fraction: Fraction) -> Findings:
    """Yield each label or annotation that is meant for an annotation of the scheduler."""
    for key, value in pod.labels.items():
        # A label that is spelt otherwise only says something about the pod, or its node.
        is_meant = key in fraction.annotations and not pod.profile.is_gpu_label(key)
        if is_meant and _is_valid(fraction, key, value):
            yield _key_in_vain(pod, "label", key, key)
    for key, value in pod.annotations.items():
        meant = _annotation_meant(pod, fraction, key)
        if meant is not None and _is_valid(fraction, meant, value):
            yield _key_in_vain(pod, "annotation", key, meant)


def _annotation_meant(pod: Pod, fraction: Fraction, key: str) -> str | None:
    """Return the annotation of the scheduler that the annotation `key` is meant for, if any."""
    prefix, _, name = key.rpartition("/")
    if prefix not in _PREFIXES or len(name) > _MAX_CHARACTERS or "gpu" not in name.lower():
        return None
    return None if pod.profile.is_gpu_label(key) else nearest_word(name, fraction.annotations)


def _is_valid(fraction: Fraction, annotation: str, value: object) -> bool:
    is_portion = annotation == fraction.portion
    return _is_valid_portion(value) if is_portion else _is_positive_number(value)


def _key_in_vain(pod: Pod, what: str, key: str, meant: str) -> Finding:
    return Finding(
        path=(*pod.metadata_path, f"{what}s", key),
        key=f"{what}s.{key}",
        message=f"the {what} {display(key)} asks for nothing: {pod.scheduler} reads the "
        f"annotation {meant}, so the pod gets no GPU",
        help=f"write the annotation {meant}",
        action=Action.WARN,
    )


def _annotations_of_workload(pod: Pod, fraction: Fraction) -> Findings:
    """Yield each annotation that the workload has, and the template of its pods has not.

    Controllers of custom resources may copy it, as Kubeflow's does from a Notebook to its pod.
    """
    owner = pod.owner_metadata
    if owner is None or owner.path == pod.metadata_path or not (pod.is_complete and pod.is_final):
        return
    for key in fraction.annotations:
        if key in owner.annotations:
            yield Finding(
                path=(*owner.path, "annotations", key),
                key=f"workload.annotations.{key}",
                message=f"the annotation {key} of the workload asks for nothing: {pod.scheduler} "
                "reads those of pods, and this pod gets no GPU",
                help=f"write {key} into the annotations of the pod template",
                action=Action.WARN,
            )


def _container_with_whole_gpu(pod: Pod, fraction: Fraction) -> tuple[Container, str] | None:
    for container in pod.containers:
        for name in fraction.excludes:
            if name in container.limits:
                return container, name
    return None


def _finding(pod: Pod, annotation: str, what: str, advice: str, *, key: str = "") -> Finding:
    value = display(pod.annotations[annotation])
    return Finding(
        path=(*pod.metadata_path, "annotations", annotation),
        key=key or annotation,
        message=f"the annotation {annotation}: {value} {what}",
        help=advice,
    )


def _is_valid_portion(value: object) -> bool:
    if not isinstance(value, str):
        return False
    amount = parse(value[:_MAX_CHARACTERS])
    if isinstance(amount, Placeholder):
        return True
    is_decimal = len(value) <= _MAX_CHARACTERS and bool(re.fullmatch(_DECIMAL_PATTERN, value))
    return is_decimal and isinstance(amount, Quantity) and 0 < amount.nano < NANO_OF_ONE


def _is_positive_number(value: object) -> bool:
    if not isinstance(value, str):
        return False
    is_number = bool(re.fullmatch(_WHOLE_NUMBER_PATTERN, value)) and int(value) > 0
    return is_number or isinstance(parse(value[:_MAX_CHARACTERS]), Placeholder)


RULE = define_rule(
    check,
    action=Action.DENY,
    since="0.1",
    needs=(GPU_ANNOTATION | GPU_METADATA_KEY,),
)
