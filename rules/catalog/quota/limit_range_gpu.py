"""A LimitRange gives GPUs to containers that ask for none, or refuses these containers.

What it does
------------
Finds GPU resources in the limits of a LimitRange that concern pods which ask for no GPU:

- a `default` of the type `Container`, or a `max` without a `default`, which the API server copies
  into `default`: every container that asks for none gets that many;
- a `defaultRequest` or a `min` without a `default` and a `max`, and a `maxLimitRequestRatio`: the
  API server refuses every container that asks for none;
- a `max` of the type `Pod`: the API server refuses every pod that asks for none;
- a `defaultRequest` that differs from the limit: the API server refuses the LimitRange;
- a fraction as `default`, or as `max` without one: the API server refuses every container that asks
  for none, because it gets the fraction.

Why it matters
--------------
A LimitRange completes every pod of its namespace before webhooks see it. With a GPU in `default`,
or only in `max`, sidecars and web servers hold GPUs that they do not use, and the pod's own
manifest does not show it. To limit the GPUs of a namespace, a ResourceQuota is the right kind.

References
----------
- https://kubernetes.io/docs/concepts/policy/limit-range/
- Kubernetes, `SetDefaults_LimitRangeItem` in `pkg/apis/core/v1/defaults.go`
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from rules.base.json_values import as_object, as_objects, as_text, display
from rules.base.quantity import Quantity, parse
from rules.base.traits import LIMIT_RANGE
from rules.profile.profile import Profile
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule

AMOUNT_FIELDS = ("default", "max", "defaultRequest", "min", "maxLimitRequestRatio")
Amounts: TypeAlias = Mapping[str, Quantity]


def check(limit_range: KubernetesObject, _context: Context) -> Findings:
    """Yield the first fault of each GPU resource in each item of `spec.limits`."""
    listed = as_object(limit_range.raw.get("spec")).get("limits")
    for index, item in as_objects(listed):
        find_fault = {"Container": _fault_of_containers, "Pod": _fault_of_pods}.get(
            as_text(item.get("type"))
        )
        for resource in _gpu_resources(item, limit_range.profile) if find_fault else ():
            fault = find_fault(_amounts(item, resource), resource) if find_fault else None
            if fault is not None:
                yield Finding(
                    path=(*limit_range.path, "spec", "limits", index, fault.field, resource),
                    key=f"{item['type']}.{resource}",
                    message=f"`{fault.field}` of {display(resource)}: {fault.message}",
                    help=fault.advice or f"limit GPUs by a ResourceQuota: requests.{resource}",
                    api_refuses=fault.api_refuses,
                )


class _Fault(NamedTuple):
    field: str
    message: str
    advice: str = ""
    api_refuses: bool = False


def _gpu_resources(item: Mapping[str, Any], profile: Profile) -> list[str]:
    names = dict.fromkeys(name for field in AMOUNT_FIELDS for name in as_object(item.get(field)))
    return [name for name in names if profile.resource(name) is not None]


def _amounts(item: Mapping[str, Any], resource: str) -> Amounts:
    """The amounts of `resource` that can be read, by field."""
    written = {
        f: as_object(item.get(f))[resource]
        for f in AMOUNT_FIELDS
        if resource in as_object(item.get(f))
    }
    return {
        f: amount for f, value in written.items() if isinstance(amount := parse(value), Quantity)
    }


def _fault_of_containers(amounts: Amounts, resource: str) -> _Fault | None:
    field = _field_of_default(amounts)
    given, request = amounts.get(field), amounts.get("defaultRequest")
    if given is None or given.nano <= 0:
        return _fault_of_default_requests(amounts)
    if request is not None and not given.equal_to(request):
        message = f"it differs from `{field}`, so the API server refuses the LimitRange"
        return _Fault("defaultRequest", message, "remove it", api_refuses=True)
    if not given.is_accepted_as_integer:
        message = (
            f"every container that asks for none gets the fraction {given.text}, for which the API "
            "server refuses it"
        )
        return _Fault(field, message)
    message = f"every container of the namespace that asks for none gets {given.value}"
    if field == "default":
        # Without a `default`, a maximum would be the default.
        remedy = "write 0" if "max" in amounts else "remove it"
        return _Fault(field, message, f"{remedy}, and let the containers ask that need one")
    advice = f"limit GPUs by a ResourceQuota, or write default: {{{resource}: 0}} beside it"
    return _Fault(field, f"{message}, because there is no smaller `default`", advice)


def _field_of_default(amounts: Amounts) -> str:
    """The field by which containers get an amount unasked.

    It is `max` as well if `default` equals it, as webhooks see it: the API server has copied it.
    """
    default, maximum = amounts.get("default"), amounts.get("max")
    if default is None or (maximum is not None and default.equal_to(maximum)):
        return "max"
    return "default"


def _fault_of_default_requests(amounts: Amounts) -> _Fault | None:
    """The fault where no container gets a GPU unasked."""
    has_limit = "default" in amounts or "max" in amounts
    # The API server copies `min` into `defaultRequest`.
    fields = (
        ("maxLimitRequestRatio",) if has_limit else ("min", "defaultRequest", AMOUNT_FIELDS[-1])
    )
    message = "the API server refuses every container of the namespace that asks for none"
    found = (field for field in fields if field in amounts and amounts[field].nano > 0)
    return next((_Fault(field, message) for field in found), None)


def _fault_of_pods(amounts: Amounts, _resource: str) -> _Fault | None:
    message = "the API server refuses every pod of the namespace that asks for none"
    return _Fault("max", message) if "max" in amounts else None


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(LIMIT_RANGE,))
