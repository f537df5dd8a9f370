"""A LimitRange names a GPU resource that is misspelt.

What it does
------------
Compares the names of resources in the limits of a LimitRange with those of GPU resources, as
`unknown-gpu-resource` does for containers. Finds names that are known mistakes (`gpu`,
`nvidia.com/gpus`), that spell a MIG profile otherwise than NVIDIA's device plugin does, that differ
by a letter or two from a known resource of the same vendor, and that no node offers: labels of
nodes (`nvidia.com/gpu.memory`) and MIG profiles that no card has.

Why it matters
--------------
The API server accepts every name with a domain. The GPUs of the namespace are then not limited, and
the wrong name does harm: a `default` or a `max` gives it to every container, and no node offers it,
so the pods wait forever.

Fix safety
----------
The fix corrects the name only if the policy says `fix: true`, because it puts a limit into force
that was never in force. If the right name is there as well, or if two names would become one, there
is no fix.

References
----------
- https://kubernetes.io/docs/concepts/policy/limit-range/
- Kubernetes, `validateLimitRangeResourceName` in `pkg/apis/core/validation/validation.go`
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rules.base.json_values import as_object, as_objects, as_text, display
from rules.base.traits import LIMIT_RANGE
from rules.gpu.amounts import api_refuses_name
from rules.gpu.resource_names import fault_of_name, misspelt_resources, renaming_fix
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule

# A name is reported in the first field that has it. The API server copies `max` into `default`, and
# both `default` and `min` into `defaultRequest`.
AMOUNT_FIELDS = ("max", "default", "min", "defaultRequest", "maxLimitRequestRatio")


def check(limit_range: KubernetesObject, context: Context) -> Findings:
    """Yield each misspelt name, once for all fields of an item of `spec.limits`."""
    for index, item in as_objects(as_object(limit_range.raw.get("spec")).get("limits")):
        fields = {f: amounts for f in AMOUNT_FIELDS if (amounts := as_object(item.get(f)))}
        names = dict.fromkeys(name for amounts in fields.values() for name in amounts)
        misspelt = misspelt_resources(names, limit_range.profile, context.inventory)
        times = Counter(meant.right_name for meant in misspelt.values())
        path = (*limit_range.path, "spec", "limits", index)
        places = [((*path, field), amounts) for field, amounts in fields.items()]
        for name in names:
            if fault := fault_of_name(name):
                first = _first_field(name, fields)
                yield Finding(
                    path=(*path, first, name),
                    key=f"{as_text(item.get('type'))}.{name}",
                    message=f"`{first}` names {display(name)}, and {fault.reason}",
                    help=fault.advice,
                )
        for name, meant in misspelt.items():
            right = meant.right_name
            refused = api_refuses_name(name)
            end = "the API server refuses it" if refused else f"it does not concern {right}"
            first = _first_field(name, fields)
            yield Finding(
                path=(*path, first, name),
                key=f"{as_text(item.get('type'))}.{name}",
                message=f"`{first}` names {display(name)}, which is {meant.kind} {right}: {end}",
                help=f"remove it: {right} is there" if right in names else f"write {right}",
                fix=renaming_fix(places, name, right) if times[right] == 1 else None,
                api_refuses=refused,
            )


def _first_field(name: str, fields: Mapping[str, Mapping[str, Any]]) -> str:
    return next(field for field, amounts in fields.items() if name in amounts)


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(LIMIT_RANGE,), supersedes=("limit-range-gpu",)
)
