"""The traits of a pod's metadata and of the fields of its spec: in Python, and in CEL.

Those of its containers have a module of their own. Each test may be true for more pods than the
Python that it answers for, never for fewer.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from rules.base.caching import cached_by_text
from rules.base.json_values import as_object, as_objects, as_text
from rules.base.traits import (
    ANNOTATION_WORDS,
    CUSTOM_SCHEDULER,
    EPHEMERAL_CONTAINER,
    GPU_ANNOTATION,
    GPU_METADATA_KEY,
    GPUWARD_PREFIX,
    HOST_NAMESPACE,
    HOST_PATH,
    KAI_QUEUE,
    KAI_QUEUE_LABEL,
    KEY_WORDS,
    LABEL_WORDS,
    NATIVE_TAINT_PREFIX,
    NODE_NAME,
    NODE_SELECTION,
    OLD_GPU_KEY,
    POD_FIELD_TRAITS,
    POD_RESOURCES,
    PRIORITY_CLASS,
    PRIVILEGED,
    REQUIRED_AFFINITY,
    RESERVATION_LABEL,
    RESERVING_POD,
    RESOURCE_CLAIMS_OF_POD,
    RUNTIME_CLASS,
    TOLERATION,
)
from rules.gpu.devices import NATIVE_RESOURCES
from rules.objects.container import is_host_process
from rules.objects.pod import DEFAULT_SCHEDULER
from rules.profile.profile import Profile
from rules.relevance.expressions import (
    HOST_PROCESS,
    LONGEST,
    MOST,
    Scope,
    TraitTests,
    any_of,
    contains,
    contains_one,
    has_foreign_name,
    matches,
)

_FIELDS_WITH_TRAITS = frozenset(POD_FIELD_TRAITS)

# Annotations and labels.


def metadata_traits(metadata: Mapping[str, Any], profile: Profile) -> int:
    """Return the traits of a pod with this metadata."""
    annotations = as_object(metadata.get("annotations"))
    traits = 0 if profile.request_annotations.isdisjoint(annotations) else GPU_ANNOTATION
    labels = as_object(metadata.get("labels"))
    for keys in (annotations, labels):
        for key in keys:
            traits |= key_traits(key)
    label, value = RESERVATION_LABEL
    if labels.get(label) == value:
        traits |= RESERVING_POD
    return traits | KAI_QUEUE if KAI_QUEUE_LABEL in labels else traits


def old_metadata_traits(metadata: Mapping[str, Any] | None) -> int:
    """Return the trait of a pod that had this metadata before an update, if it had any."""
    metadata = metadata or {}
    keys = (*as_object(metadata.get("annotations")), *as_object(metadata.get("labels")))
    return OLD_GPU_KEY if any(key_traits(key) for key in keys) else 0


@cached_by_text
def key_traits(key: str) -> int:
    """Return the traits of a pod with the annotation or label `key`."""
    if key.startswith(GPUWARD_PREFIX):
        return 0
    lower = key.lower()
    return GPU_METADATA_KEY if any(word in lower for word in (*KEY_WORDS, *ANNOTATION_WORDS)) else 0


def _annotations(scope: Scope) -> Iterator[str]:
    words = (*KEY_WORDS, *ANNOTATION_WORDS)
    known = {key for key in scope.names.annotations if not contains_one(key, words)}
    place = scope.place("annotations")
    yield from _keys("annotations", words, matches("key", known), place)


def _labels(_scope: Scope) -> Iterator[str]:
    yield from _keys("labels", (*KEY_WORDS, *LABEL_WORDS))


def _keys(
    field: str, words: Collection[str], more: Iterable[str] = (), place: str = ""
) -> Iterator[str]:
    """Yield tests of the keys in `field`; at an update, also of those that it removes.

    `more` are tests of a `key` besides that of the words.
    """
    most, is_update = MOST[field], 'request.operation == "UPDATE"'
    keys, old_keys = (
        f"{which}.metadata.?{field}.orValue({{}})" for which in ("object", "oldObject")
    )
    yield f"{keys}.size() > {most}"
    yield f"{is_update} && {old_keys}.size() > {most}"
    removed = f"({is_update} ? {old_keys}.filter(key, !(key in {keys})) : [])"
    has_word = f"[key.lowerAscii()].exists(lower, {any_of(contains('lower', words))})"
    tests = [f"key.size() > {LONGEST['key']}", has_word, *more]
    exists = f"keys.size() > {most} || keys.exists(key, {any_of(tests)}{place})"
    yield f"[{keys}.map(key, key) + {removed}].exists(keys, {exists})"


_KEYS = GPU_ANNOTATION | GPU_METADATA_KEY | OLD_GPU_KEY
METADATA_TESTS: TraitTests = ((_KEYS, _annotations), (_KEYS, _labels))

# The spec.


def spec_traits(spec: Mapping[str, Any]) -> int:
    """Return the traits of a pod's spec, without those of its containers."""
    traits = 0
    for field in _FIELDS_WITH_TRAITS.intersection(spec):
        if spec[field]:
            traits |= POD_FIELD_TRAITS[field]
    affinity = spec.get("affinity")
    if (
        affinity
        and as_object(as_object(affinity).get("nodeAffinity")).get(REQUIRED_AFFINITY) is not None
    ):
        traits |= NODE_SELECTION
    scheduler = spec.get("schedulerName")
    if scheduler and scheduler != DEFAULT_SCHEDULER:
        traits |= CUSTOM_SCHEDULER
    for _, toleration in as_objects(spec.get("tolerations")):
        if not _is_native(toleration):
            traits |= TOLERATION
    traits |= PRIVILEGED if is_host_process(spec) else 0
    for _, volume in as_objects(spec.get("volumes")):
        if "hostPath" in volume:
            traits |= HOST_PATH
    return traits


def _is_native(toleration: Mapping[str, Any]) -> bool:
    """Return whether it is one as the API server and the DaemonSet controller write them.

    Nearly every pod has two.
    """
    if not as_text(toleration.get("key")).startswith(NATIVE_TAINT_PREFIX):
        return False
    effect = toleration.get("effect")
    if toleration.get("operator") != "Exists" or "value" in toleration:
        return False
    return effect == "NoExecute" or (
        effect == "NoSchedule" and "tolerationSeconds" not in toleration
    )


def _resources(_scope: Scope) -> Iterator[str]:
    """Yield tests of names only: rules find odd amounts only beside GPU resources."""
    yield has_foreign_name("object.spec.?resources.?limits", NATIVE_RESOURCES)
    yield has_foreign_name("object.spec.?resources.?requests", NATIVE_RESOURCES)
    yield has_foreign_name("object.spec.?overhead", NATIVE_RESOURCES)


def _resource_claims(_scope: Scope) -> Iterator[str]:
    yield "object.spec.?resourceClaims.orValue([]).size() > 0"


def _runtime_class(scope: Scope) -> Iterator[str]:
    """Yield a test of the classes in profiles; the place is for all, if handlers are known."""
    names = any_of(matches("name", scope.names.runtime_classes)) + scope.place("runtimeClasses")
    yield f'[object.spec.?runtimeClassName.orValue("")].exists(name, {names})'


def _host_paths(_scope: Scope) -> Iterator[str]:
    volumes = "object.spec.?volumes.orValue([])"
    yield f"{volumes}.size() > {MOST['volumes']}"
    yield f"{volumes}.exists(volume, has(volume.hostPath))"


def _privileges(_scope: Scope) -> Iterator[str]:
    yield f"object.spec.{HOST_PROCESS}"


def _host_namespaces(_scope: Scope) -> Iterator[str]:
    yield "object.spec.?hostPID.orValue(false)"
    yield "object.spec.?hostIPC.orValue(false)"


def _node_name(_scope: Scope) -> Iterator[str]:
    yield 'object.spec.?nodeName.orValue("") != ""'


def _priority_class(_scope: Scope) -> Iterator[str]:
    yield 'object.spec.?priorityClassName.orValue("") != ""'


def _scheduler(_scope: Scope) -> Iterator[str]:
    known = json.dumps(["", DEFAULT_SCHEDULER])
    yield f'!(object.spec.?schedulerName.orValue("") in {known})'


def _reserving(_scope: Scope) -> Iterator[str]:
    label, value = map(json.dumps, RESERVATION_LABEL)
    yield f'object.metadata.?labels[?{label}].orValue("") == {value}'


def _kai_queue(_scope: Scope) -> Iterator[str]:
    yield f"{json.dumps(KAI_QUEUE_LABEL)} in object.metadata.?labels.orValue({{}})"


def _ephemeral_containers(_scope: Scope) -> Iterator[str]:
    yield "object.spec.?ephemeralContainers.orValue([]).size() > 0"


RESOURCE_TESTS: TraitTests = (
    (POD_RESOURCES, _resources),
    (RESOURCE_CLAIMS_OF_POD, _resource_claims),
)
RUNTIME_CLASS_TESTS: TraitTests = ((RUNTIME_CLASS, _runtime_class),)
HOST_PATH_TESTS: TraitTests = ((HOST_PATH, _host_paths),)
TESTS_IN_POLICIES: TraitTests = (
    (PRIVILEGED, _privileges),
    (HOST_NAMESPACE, _host_namespaces),
    (NODE_NAME, _node_name),
    (PRIORITY_CLASS, _priority_class),
    (CUSTOM_SCHEDULER, _scheduler),
    (RESERVING_POD, _reserving),
    (KAI_QUEUE, _kai_queue),
    (EPHEMERAL_CONTAINER, _ephemeral_containers),
)
