"""A toleration or the node affinity of a GPU pod is written in a way that cannot work.

What it does
------------
Checks the tolerations and the node affinity of pods that request a GPU. Finds what the API server
refuses: an operator or an effect that does not exist (`in`, `NoSchedul`), `Exists` with a value,
`In` without values, more or less than one value for `Gt` and `Lt`, an empty key with another
operator than `Exists`, and `tolerationSeconds` with another effect than `NoExecute`.

Warns of a value for `Gt` or `Lt` that is no integer, such as `40Gi`, which the API server accepts.
In files it also warns of fields that do not exist: `nodeAffinity` beside `affinity`, and names such
as `requiredDuringScheduling` in it.

Why it matters
--------------
A user who applies a Deployment or a Job of such pods gets an error. If another object makes them,
only its controller gets it, again and again, and there is no pod. Kubernetes compares with an
integer only: no node matches a term with `40Gi`, and the pod stays Pending. kubectl refuses a field
that does not exist; other clients create the pod without it, and it may go to any node.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
- https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#operators
- Kubernetes, `pkg/apis/core/validation/validation.go`
- Kubernetes, `staging/src/k8s.io/apimachinery/pkg/labels/selector.go`
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rules.base.json_values import Path, as_object, as_objects, as_text, display
from rules.base.text_matching import has_placeholder
from rules.base.traits import GPU
from rules.gpu.devices import pod_requests_gpu
from rules.objects.pod import is_pod_spec
from rules.placement.node_affinity import (
    NODE_AFFINITY,
    PREFERRED_AFFINITY,
    REQUIRED_AFFINITY,
    expressions,
    node_affinity,
    required_terms,
)
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

_AFFINITIES = ("nodeAffinity", "podAffinity", "podAntiAffinity")
_STRENGTHS = (REQUIRED_AFFINITY, PREFERRED_AFFINITY)
_TOLERATION_OPERATORS = ("Exists", "Equal", "Gt", "Lt")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS_WITH_VALUES = frozenset({"In", "NotIn"})
_OPERATORS_WITHOUT_VALUES = frozenset({"Exists", "DoesNotExist"})
_NUMERIC_OPERATORS = frozenset({"Gt", "Lt"})
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_INTEGER_PATTERN = r"[+-]?[0-9]{1,19}"
_REFUSED_WORDS = "the API server refuses it"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each faulty field of the pod's tolerations and of its node affinity."""
    if not pod_requests_gpu(pod):
        return
    if is_pod_spec(pod):
        yield from _findings_of_unknown_fields(pod)
    for index, toleration in pod.tolerations:
        for field, fault, advice in _toleration_faults(toleration):
            path = (*pod.path, "tolerations", index, field)
            key = f"tolerations.{as_text(toleration.get('key'))}.{field}"
            yield _refused_finding(path, key, f"a toleration {fault}", advice)
    for path, expression, is_required in _node_expressions(pod):
        label = as_text(expression.get("key"))
        for field, fault, advice in _expression_faults(expression):
            what = f"the node affinity for {display(label)} {fault}"
            yield _refused_finding((*path, field), f"nodeAffinity.{label}.{field}", what, advice)
        if is_required and (value := _non_integer_value(expression)):
            operator = expression["operator"]
            yield Finding(
                path=(*path, "values"),
                key=f"nodeAffinity.{label}.values",
                message=f"the node affinity for {display(label)} has {operator} {display(value)}, "
                "which is no integer: no node matches it, and the pod stays Pending",
                help="write an integer in the unit of the label, such as MiB for "
                "nvidia.com/gpu.memory",
                action=Action.WARN,
            )


def _findings_of_unknown_fields(pod: Pod) -> Findings:
    for kind in _AFFINITIES:
        if kind in pod.spec:
            yield _unknown_field_finding(pod, (kind,), "a pod", f"write it as affinity.{kind}")
    for field in as_object(pod.spec.get("affinity")):
        if field not in _AFFINITIES:
            advice = f"write one of {', '.join(_AFFINITIES)}"
            yield _unknown_field_finding(pod, ("affinity", field), "an affinity", advice)
    for field in node_affinity(pod):
        if field not in _STRENGTHS:
            near = next((name for name in _STRENGTHS if name[:3] == field[:3]), "")
            advice = f"write {near or ' or '.join(_STRENGTHS)}"
            yield _unknown_field_finding(pod, (*NODE_AFFINITY, field), "a nodeAffinity", advice)


def _unknown_field_finding(pod: Pod, place: Path, holder: str, advice: str) -> Finding:
    return Finding(
        path=(*pod.path, *place),
        key=".".join(map(str, place)),
        message=f"{holder} has no field {display(str(place[-1]))}: kubectl refuses it, other "
        "clients create the pod without it, and it may go to any node",
        help=advice,
        action=Action.WARN,
    )


def _refused_finding(path: Path, key: str, what: str, advice: str) -> Finding:
    return Finding(
        path=path, key=key, message=f"{what}: {_REFUSED_WORDS}", help=advice, api_refuses=True
    )


def _toleration_faults(toleration: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The field, the fault and the advice, for each field at fault."""
    operator, effect = as_text(toleration.get("operator")), as_text(toleration.get("effect"))
    value = as_text(toleration.get("value"))
    if has_placeholder(f"{operator} {effect} {value}"):
        return
    if operator and operator not in _TOLERATION_OPERATORS:
        yield "operator", *_fault_of_unknown_value("operator", operator, _TOLERATION_OPERATORS[:2])
    elif operator == "Exists" and value:
        advice = "remove the value, or write operator: Equal"
        yield "value", f"has operator Exists and the value {display(value)}", advice
    elif operator != "Exists" and not toleration.get("key"):
        fault = "has no key and another operator than Exists"
        yield "operator", fault, "write operator: Exists, or the key of a taint"
    if effect and effect not in _EFFECTS:
        yield "effect", *_fault_of_unknown_value("effect", effect, _EFFECTS)
    elif effect != "NoExecute" and toleration.get("tolerationSeconds") is not None:
        fault = f"has tolerationSeconds and the effect {display(effect)}"
        yield "tolerationSeconds", fault, "remove tolerationSeconds, or write effect: NoExecute"


def _fault_of_unknown_value(field: str, value: str, known: tuple[str, ...]) -> tuple[str, str]:
    fault = f"has the {field} {display(value)}, which does not exist"
    near = next((right for right in known if right.lower().startswith(value.lower())), "")
    return fault, f"write {near}" if near else f"write one of {', '.join(known)}"


def _node_expressions(pod: Pod) -> Iterator[tuple[Path, Mapping[str, Any], bool]]:
    """The path of each expression of the node affinity, and whether it is required."""
    for path, term in required_terms(pod):
        for index, expression in expressions(term):
            yield (*path, "matchExpressions", index), expression, True
    for number, choice in as_objects(node_affinity(pod).get(PREFERRED_AFFINITY)):
        path = (
            *pod.path,
            *NODE_AFFINITY,
            PREFERRED_AFFINITY,
            number,
            "preference",
            "matchExpressions",
        )
        for index, expression in expressions(as_object(choice.get("preference"))):
            yield (*path, index), expression, False


def _expression_faults(expression: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    operator, values = as_text(expression.get("operator")), expression.get("values")
    count = len(values) if isinstance(values, list) else 0
    if has_placeholder(operator):
        return
    if operator not in _OPERATORS:
        yield "operator", *_fault_of_unknown_value("operator", operator, _OPERATORS)
    elif operator in _OPERATORS_WITH_VALUES and not count:
        yield "values", f"has {operator} without values", "write values, or operator: Exists"
    elif operator in _OPERATORS_WITHOUT_VALUES and count:
        yield "values", f"has {operator} with values", "remove the values, or write operator: In"
    elif operator in _NUMERIC_OPERATORS and count != 1:
        yield "values", f"has {operator} with {count} values", "write one integer"


def _non_integer_value(expression: Mapping[str, Any]) -> str:
    """The value of an expression that compares numbers, if it is none; else empty."""
    values = expression.get("values")
    if as_text(expression.get("operator")) not in _NUMERIC_OPERATORS or not isinstance(
        values, list
    ):
        return ""
    value = as_text(values[0]) if len(values) == 1 else ""
    return "" if has_placeholder(value) or re.fullmatch(_INTEGER_PATTERN, value) else value


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU,))
