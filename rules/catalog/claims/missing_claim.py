"""A pod refers to a resource claim, a template or a request by a name that is not there.

What it does
------------
Compares `spec.resourceClaims` of the pod with the ResourceClaims and ResourceClaimTemplates of its
namespace, as far as they are among the manifests of the same run, or in the cluster. Finds

- a name that nothing has, where another one differs by a letter or two;
- a `resourceClaimName` that only a template has, and a `resourceClaimTemplateName` that only a
  claim has;
- the `request` of a container's claim that the known claim or template lacks.

It says nothing about a name that resembles no other, since a run seldom has every object, nor about
more than 20 unknown names of one pod.

Why it matters
--------------
Kubernetes creates the pod, which stays Pending until the object is created. A request that
does not exist gives the container no device: the pod does not start.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import as_text, display
from rules.base.text_matching import has_placeholder, nearest_word
from rules.base.traits import KNOWN_CLAIMS, RESOURCE_CLAIMS_OF_POD
from rules.gpu.claims import CLAIM_NAME_FIELD, CLAIMS_FIELD, TEMPLATE_NAME_FIELD, declared_claims
from rules.inventory.inventory import Inventory, ResourceClaim, ResourceClaimTemplate
from rules.objects.container import POD_SPEC
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

_KIND_BY_FIELD: Mapping[str, type[ResourceClaim | ResourceClaimTemplate]] = {
    CLAIM_NAME_FIELD: ResourceClaim,
    TEMPLATE_NAME_FIELD: ResourceClaimTemplate,
}
_OTHER_FIELD = {CLAIM_NAME_FIELD: TEMPLATE_NAME_FIELD, TEMPLATE_NAME_FIELD: CLAIM_NAME_FIELD}
_MAX_NAME_CHARACTERS = 63  # characters of a name that is compared with others
_MAX_COMPARED_NAMES = 20  # unknown names of a pod that are compared


def check(pod: Pod, context: Context) -> Findings:
    """Yield each reference of the pod that certainly leads nowhere."""
    if pod.layout is not POD_SPEC or pod.is_partial:
        return
    namespace, known = pod.object.namespace, context.inventory
    requests: dict[str, frozenset[str]] = {}
    unknown = 0
    for index, entry in declared_claims(pod):
        for field, kind in _KIND_BY_FIELD.items():
            name = as_text(entry.get(field))
            if not name or has_placeholder(name):
                continue
            found = known.find(kind, name, namespace)
            if found is not None:
                requests[as_text(entry.get("name"))] = found.requests
            elif unknown < _MAX_COMPARED_NAMES and name not in known.all_in(kind, namespace):
                unknown += 1
                yield from _missing_claim_findings(pod, index, field, name, known)
    yield from _missing_request_findings(pod, requests)


def _missing_claim_findings(
    pod: Pod, index: int, field: str, name: str, known: Inventory
) -> Findings:
    namespace, kind = pod.object.namespace, _KIND_BY_FIELD[field]
    other = _KIND_BY_FIELD[_OTHER_FIELD[field]]
    if name in known.all_in(other, namespace):
        fault = f"names the {other.__name__} {display(name)} as {field}"
        advice = f"write {_OTHER_FIELD[field]}"
    elif near := _nearest_name(name, known.all_in(kind, namespace)):
        fault = f"names the {kind.__name__} {display(name)}, which is not known but close to {near}"
        advice = f"write {near}"
    else:
        return
    yield Finding(
        path=(*pod.path, CLAIMS_FIELD, index, field),
        key=f"{CLAIMS_FIELD}.{field}.{name}",
        message=f"the pod {fault}: without such an object it stays Pending",
        help=advice,
    )


def _nearest_name(name: str, names: Mapping[str, Any]) -> str | None:
    """The name that is meant; names with other digits are those of other objects."""
    digits = [letter for letter in name if letter.isdigit()]
    same = [each for each in names if [c for c in each if c.isdigit()] == digits]
    return nearest_word(name, same) if len(name) <= _MAX_NAME_CHARACTERS else None


def _missing_request_findings(pod: Pod, requests: Mapping[str, frozenset[str]]) -> Findings:
    compared = 0
    for container in pod.containers:
        for index, claim in container.claims:
            name, request = as_text(claim.get("name")), as_text(claim.get("request"))
            known = requests.get(name)
            if not request or not known or request in known or has_placeholder(request):
                continue
            near = (
                nearest_word(request[:_MAX_NAME_CHARACTERS], sorted(known))
                if compared < _MAX_COMPARED_NAMES
                else None
            )
            compared += 1
            yield Finding(
                path=(*container.resources_path, "claims", index, "request"),
                key=f"claims.{name}/{request}.request",
                message=(
                    f"{container} uses the request {display(request)} of the resource claim "
                    f"{display(name)}, which the claim lacks: the pod does not start"
                ),
                container=container,
                help=f"write {near}" if near else f"write one of {', '.join(sorted(known)[:8])}",
            )


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(RESOURCE_CLAIMS_OF_POD, KNOWN_CLAIMS),
    needs_resources=True,
)
