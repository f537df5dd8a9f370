"""A selector of devices cannot be compiled, or reads what no device has.

What it does
------------
Reads the expressions in CEL of ResourceClaims, ResourceClaimTemplates and DeviceClasses, and finds

- what the API server refuses: wrong syntax (`=`, `and`), names that do not exist (`devices`), and
  operators and methods for other types: `device.capacity["gpu.nvidia.com"].memory > "40Gi"`
  compares a quantity, which has no order but `.compareTo(quantity("40Gi"))`;
- misspelt domains, attributes and capacities of the drivers of NVIDIA, AMD, Intel and Google's
  TPUs, attributes that are capacities (`device.attributes["gpu.nvidia.com"].memory`), and a domain
  in parts (`device.attributes.gpu.nvidia.com`);
- comparisons that no device meets, because the attribute has another type, or other values: `type
  == "GPU"`;
- attributes of MIG devices in a claim for the class `gpu.nvidia.com`, which has whole cards;
- quantities and versions that are none, such as `quantity("40 GB")` and `semver("8.0")`.

Only a note: an attribute of these drivers that resembles none that they are known to have, since
another release may have it. Nothing is said about expressions of more than 400 words and signs,
about more than 50 selectors of an object, nor about whatever has a type that is not known.

Why it matters
--------------
The API server refuses an expression that it cannot compile. What devices have, it does not know.
The scheduler reads the expression for each device, and an attribute that a device lacks is an
error: it ends the search for *all* devices, so the pod stays Pending even where another device
would fit.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
- https://kubernetes.io/docs/reference/using-api/cel/
- Kubernetes, `staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go`
- kubernetes-sigs/dra-driver-nvidia-gpu, `cmd/gpu-kubelet-plugin/deviceinfo.go`
"""

from rules.base.traits import CLAIM_OBJECT, DEVICE_CLASS
from rules.rule import Action, Context, DeviceSpec, Finding, Findings, define_rule

# Selectors of one object that are read: 32 requests may have 32 each.
_MAX_SELECTORS = 50


def check(subject: DeviceSpec, _context: Context) -> Findings:
    """Yield each fault of each selector."""
    from rules.gpu.device_selectors import selector_faults  # noqa: PLC0415  # rarely needed

    for number, selector in enumerate(subject.selectors()):
        if number == _MAX_SELECTORS:
            return
        for position, fault in enumerate(selector_faults(selector.expression, selector.class_name)):
            action, consequence = Action.WARN, "that holds for no device"
            if fault.is_refused:
                action, consequence = Action.DENY, "the API server refuses it"
            elif not fault.is_certain:
                action, consequence = Action.AUDIT, "a device without it ends the search"
            yield Finding(
                path=selector.path,
                key=f"selectors.{selector.name}.{position}",
                message=f"the selector {fault.text}: {consequence}",
                help=fault.help,
                action=action,
                api_refuses=fault.is_refused,
            )


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(CLAIM_OBJECT | DEVICE_CLASS,))
