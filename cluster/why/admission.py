"""The changes of the API server to a new pod before kube-scheduler sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from cluster.source.objects import Object
from cluster.why.hurdles import Hurdle
from cluster.why.limit_ranges import apply_limit_ranges
from cluster.why.placed.label_selectors import labels_of
from rules.base.json_values import as_object, as_objects, as_text, as_texts

_AFFINITIES = ("podAffinity", "podAntiAffinity")
_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"


class Admitted(NamedTuple):
    """A pod as the API server would store it.

    `defaults` has a line for each container that gets devices; `hurdles` say what is refused, and
    `unknown` what is not known.
    """

    pod: Object
    defaults: tuple[str, ...] = ()
    hurdles: tuple[Hurdle, ...] = ()
    unknown: tuple[str, ...] = ()


def admit(
    pod: Object,
    namespace: str,
    limit_ranges: Iterable[Object],
    runtime_classes: Callable[[], Mapping[str, Object]],
) -> Admitted:
    """`pod`, which does not exist yet, with what the API server adds to it.

    `limit_ranges` are those of its `namespace`; `runtime_classes` returns all by name, and is
    called only for a pod that names one.
    """
    new = {key: value for key, value in pod.items() if key != "status"}
    limited = apply_limit_ranges(new, limit_ranges)
    spec = {**as_object(limited.pod.get("spec"))}
    unknown = []
    if name := as_text(spec.get("runtimeClassName")):
        found = runtime_classes().get(name)
        if found is None:
            unknown.append(f"what the RuntimeClass {name} adds, and whether it exists")
        else:
            spec.update(_of_runtime_class(spec, found))
    if affinity := as_object(spec.get("affinity")):
        spec["affinity"] = _with_label_keys(affinity, labels_of(pod))
    metadata = {**as_object(pod.get("metadata")), "namespace": namespace}
    made = {**limited.pod, "metadata": metadata, "spec": spec}
    return Admitted(made, limited.defaults, limited.hurdles, tuple(unknown))


def _of_runtime_class(spec: Mapping[str, Any], found: Object) -> Iterator[tuple[str, Any]]:
    """The fields that a RuntimeClass changes.

    Source: Kubernetes, `plugin/pkg/admission/runtimeclass/admission.go`.
    """
    if overhead := as_object(as_object(found.get("overhead")).get("podFixed")):
        yield "overhead", overhead
    scheduling = as_object(found.get("scheduling"))
    if selector := as_object(scheduling.get("nodeSelector")):
        yield "nodeSelector", {**as_object(spec.get("nodeSelector")), **selector}
    if tolerations := [one for _, one in as_objects(scheduling.get("tolerations"))]:
        own = [one for _, one in as_objects(spec.get("tolerations"))]
        yield "tolerations", [*own, *tolerations]


def _with_label_keys(affinity: Mapping[str, Any], labels: Mapping[str, str]) -> Mapping[str, Any]:
    """Affinity with the keys of labels that its terms name in their selectors.

    Source: Kubernetes, `pkg/registry/core/pod/strategy.go`, mutatePodAffinity.
    """
    made = {**affinity}
    for field in _AFFINITIES:
        if terms := [term for _, term in as_objects(as_object(affinity.get(field)).get(_TERMS))]:
            merged = [_with_keys(term, labels) for term in terms]
            made[field] = {**as_object(affinity.get(field)), _TERMS: merged}
    return made


def _with_keys(term: Mapping[str, Any], labels: Mapping[str, str]) -> Mapping[str, Any]:
    selector = term.get("labelSelector")
    added = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in as_texts(term.get(field))
        if key in labels
    ]
    if not added or not isinstance(selector, dict):
        return term
    own = [one for _, one in as_objects(selector.get("matchExpressions"))]
    return {**term, "labelSelector": {**selector, "matchExpressions": [*own, *added]}}
