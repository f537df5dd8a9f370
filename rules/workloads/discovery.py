"""Find what rules evaluate in a manifest: the pods, and objects as a whole.

In a built-in kind a table says where the pod is. Every other kind is searched through maps and
lists for anything shaped like a pod, because a third of all GPU pods are in custom resources and
no table holds all their kinds. `kinds` has the tables, and the kinds that the search cannot know;
`object_kinds` has the kinds that rules are about as a whole.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rules.base.json_values import (
    Json,
    Path,
    as_object,
    as_objects,
    as_text,
    pointer,
    values_at,
)
from rules.base.text_matching import matches_any
from rules.base.traits import (
    CLAIM_OBJECT,
    DEVICE_CLASS,
    DEVICE_PLUGIN_CONFIG,
    QUOTA,
    VARIABLE_KEY,
)
from rules.inventory.inventory import EMPTY_INVENTORY, Inventory
from rules.objects.kubernetes_objects import DeviceClaim, DeviceSpec, KubernetesObject, Quota
from rules.objects.object_ref import BUILT_IN_GROUPS, ObjectRef, group_of, object_ref
from rules.objects.pod import Pod, PodMetadata
from rules.profile.profile import Profile
from rules.workloads.field_types import type_errors
from rules.workloads.files_in_objects import is_values, plugin_configurations
from rules.workloads.kinds import (
    CUSTOM_POD_LAYOUTS,
    HOLDERS_OF_OBJECTS,
    KINDS_WITHOUT_PODS,
    PATTERN_GROUPS,
    POD_TEMPLATE_PATHS,
    is_train_job,
)
from rules.workloads.object_kinds import KEY_FIELDS, ObjectKind, granting_keys, object_kind_of
from rules.workloads.pod_search import MalformedField, PodSearch, SearchResult, Subject

_HOLDER_KINDS = frozenset(kind for _, kind in HOLDERS_OF_OBJECTS)
_VALUES_REF = ObjectRef("values of a chart", "", "", "")


def count_nothing(_steps: int) -> None:
    """Take steps where they have no limit."""


def flatten_lists(raw: Mapping[str, Any], path: Path) -> Iterator[tuple[Mapping[str, Any], Path]]:
    """The object `raw` and, if it has items, the objects in them, each with its path.

    kubectl takes everything with `items` for a list, whatever its kind. Of a kind that holds
    objects, such as a Template of OpenShift, only these are yielded, if it has some.
    """
    waiting = [(raw, path)]
    while waiting:
        raw, path = waiting.pop()
        listed = raw.get("items")
        if not isinstance(listed, list):
            if held := _held_objects(raw, path):
                waiting.extend(reversed(held))
            else:
                yield raw, path
            continue
        kind = as_text(raw.get("kind"))
        if not kind.endswith("List"):
            yield raw, path
        # Items of a PodList need not say that they are Pods.
        inherited = {"apiVersion": raw.get("apiVersion"), "kind": kind.removesuffix("List")}
        for index, item in reversed(as_objects(listed)):
            typed = item if as_text(item.get("kind")) else {**item, **inherited}
            waiting.append((typed, (*path, "items", index)))


def _held_objects(raw: Mapping[str, Any], path: Path) -> list[tuple[Mapping[str, Any], Path]]:
    """The objects in the object `raw`, if it is of a kind that holds some, each with its path."""
    kind = as_text(raw.get("kind"))
    if kind not in _HOLDER_KINDS:
        return []
    pattern = HOLDERS_OF_OBJECTS.get((group_of(raw), kind), ())
    held = values_at(raw, pattern) if pattern else []
    return [(as_object(item), (*path, *place)) for place, item in held if as_object(item)]


def find_subjects(
    manifest: Json,
    profile: Profile,
    namespace: str | None = None,
    path: Path = (),
    inventory: Inventory = EMPTY_INVENTORY,
    take_steps: Callable[[int], None] = count_nothing,
) -> Iterator[SearchResult]:
    """Everything in `manifest`, itself at `path`, that rules evaluate, in document order.

    Lists (`kind: List`, `PodList` …) and kinds that hold objects are opened. `namespace` is where
    an object goes that names no namespace. A field with the wrong type comes as a MalformedField
    before its subject. With a training runtime in `inventory`, a TrainJob also has the pods that
    are merged with it; `take_steps` is called with the steps that this takes.
    """
    for raw, base in flatten_lists(as_object(manifest), path):
        kind = as_text(raw.get("kind"))
        group = group_of(raw)
        if is_values(raw):
            yield from _plugin_configuration(raw, base, _VALUES_REF, profile)
            continue
        object_kind = object_kind_of(group, kind, raw)
        is_built_in = kind in POD_TEMPLATE_PATHS and group in BUILT_IN_GROUPS
        yield from _variable_keys(raw, base, profile, namespace)
        if object_kind is None and not is_built_in and _holds_no_subject(kind, group):
            continue
        owner = object_ref(kind, group, as_object(raw.get("metadata")), namespace)
        if object_kind is not None:
            for place, why in type_errors(raw, object_kind.fields, ()):
                yield MalformedField(owner, (*base, *place), why)
            for place, why in _fields_outside_spec(raw, kind, object_kind):
                yield MalformedField(owner, (*base, *place), why)
            yield from _views(raw, base, object_kind, owner, profile)
            continue
        if is_built_in:
            found = PodSearch(owner, profile, base).pod_in_template(raw, POD_TEMPLATE_PATHS[kind])
        else:
            layouts = CUSTOM_POD_LAYOUTS.get((group, kind), ())
            found = PodSearch(owner, profile, base).pods_in_custom_resource(raw, layouts)
            yield from _plugin_configuration(raw, base, owner, profile)
            found = _with_merged_pods(found, raw, base, owner, profile, inventory, take_steps)
        metadata = _metadata_of_maker(raw, base, profile, kind if is_built_in else "")
        spec = as_object(raw.get("spec"))
        listed = as_objects(as_object(raw.get("metadata")).get("ownerReferences"))
        owners = [reference for _, reference in listed]
        for subject in found:
            if isinstance(subject, Pod):
                subject.owner_metadata, subject.owner_spec = metadata, spec
                subject.owner_spec_path = (*base, "spec")
                subject.owners = owners
            yield subject


def _with_merged_pods(
    found: Iterator[SearchResult],
    raw: Mapping[str, Any],
    base: Path,
    owner: ObjectRef,
    profile: Profile,
    inventory: Inventory,
    take_steps: Callable[[int], None],
) -> Iterator[SearchResult]:
    """All that is `found` in the object `raw`; of a TrainJob also the pods merged with it."""
    if not inventory or not is_train_job(owner.kind, owner.group):
        yield from found
        return
    from rules.workloads.train_jobs import merged_pods  # noqa: PLC0415  # few need it

    own: list[Pod] = []
    for subject in found:
        if isinstance(subject, Pod):
            own.append(subject)
        yield subject
    yield from merged_pods(raw, owner, profile, base, inventory, own, take_steps)


def _variable_keys(
    raw: Mapping[str, Any], base: Path, profile: Profile, namespace: str | None
) -> Iterator[KubernetesObject]:
    """The ConfigMap or Secret itself, if a key of it is a variable by which containers get GPUs.

    So is what a controller makes a Secret of.
    """
    group, kind = group_of(raw), as_text(raw.get("kind"))
    if (group, kind) in KEY_FIELDS and any(granting_keys(raw, group, kind, profile)):
        owner = object_ref(kind, group, as_object(raw.get("metadata")), namespace)
        yield KubernetesObject(owner, profile, raw, base, kind_trait=VARIABLE_KEY)


def _fields_outside_spec(
    raw: Mapping[str, Any], kind: str, object_kind: ObjectKind
) -> Iterator[tuple[Path, str]]:
    """The fields of the spec that are beside it, where the API server ignores or refuses them."""
    spec = as_object(raw.get("spec"))
    for field in as_object(object_kind.fields.get("spec")):
        if raw.get(field) and field not in object_kind.fields and not spec.get(field):
            right = pointer(("spec", field))
            yield (field,), f"/{field} is not where a {kind} has it: write it as {right}"


def _plugin_configuration(
    raw: Mapping[str, Any], base: Path, owner: ObjectRef, profile: Profile
) -> Iterator[KubernetesObject]:
    """The object itself, if it may have a configuration of NVIDIA's device plugin."""
    if next(plugin_configurations(raw), None):
        yield KubernetesObject(owner, profile, raw, base, kind_trait=DEVICE_PLUGIN_CONFIG)


def _metadata_of_maker(
    raw: Mapping[str, Any], base: Path, profile: Profile, built_in: str
) -> PodMetadata | None:
    """The metadata of the object that makes the pods: of a CronJob, of its Jobs.

    None if it is no object, so that no edit can add to it.
    """
    if built_in == "CronJob":
        raw = as_object(as_object(raw.get("spec")).get("jobTemplate"))
        base = (*base, "spec", "jobTemplate")
    metadata = raw.get("metadata")
    if not isinstance(metadata, dict | None):
        return None
    return PodMetadata(as_object(metadata), (*base, "metadata"), profile)


def _holds_no_subject(kind: str, group: str) -> bool:
    if not group:
        return not kind or kind in KINDS_WITHOUT_PODS
    return not kind or matches_any(PATTERN_GROUPS, group)


def _views(
    raw: Mapping[str, Any], base: Path, kind: ObjectKind, owner: ObjectRef, profile: Profile
) -> Iterator[Subject]:
    if kind.trait == QUOTA:
        for path, spec in values_at(raw, kind.quota):
            yield _quota(as_object(spec), path, base, owner, profile)
    elif kind.trait == CLAIM_OBJECT:
        yield DeviceClaim(owner, profile, raw, base)
    elif kind.trait == DEVICE_CLASS:
        yield DeviceSpec(owner, profile, raw, base)
    else:
        yield KubernetesObject(owner, profile, raw, base, kind_trait=kind.trait)


def _quota(
    spec: Mapping[str, Any], path: Path, base: Path, owner: ObjectRef, profile: Profile
) -> Quota:
    """The quota whose spec is at `path` of the object at `base`."""
    return Quota(
        owner,
        profile,
        as_object(spec.get("hard")),
        (*base, *path, "hard"),
        stable_path=".".join(map(str, (*path, "hard"))),
        has_scopes=bool(spec.get("scopes") or spec.get("scopeSelector")),
    )
