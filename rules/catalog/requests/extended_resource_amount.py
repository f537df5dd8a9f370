"""An extended resource is asked for in a way that the API server refuses.

What it does
------------
Finds amounts of extended resources of any name, such as `rdma/hca` or `example.com/fpga`, that the
API server refuses: a fraction or a negative number, a request without a limit, and a request that
differs from the limit. Other rules report the same about GPUs, with their fixes.

Why it matters
--------------
The API server refuses the pod, or the workload with its template. From a custom resource an
operator makes no pod, and tells of it in its log only.

References
----------
- https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#extended-resources
- Kubernetes, `pkg/apis/core/validation/validation.go` and `pkg/apis/core/helper/helpers.go`
"""

from rules.base.json_values import display
from rules.base.quantity import Quantity, parse
from rules.base.traits import UNKNOWN_RESOURCE
from rules.gpu.amounts import api_refuses_count
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

# Names that contain it are Kubernetes' own, and have other laws.
_NATIVE_DOMAIN = "kubernetes.io/"
_QUOTA_KEY_PREFIX = "requests."


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each extended resource, of those that no profile knows, with a refused amount."""
    for container in pod.containers:
        # The API server refuses any resources in an ephemeral container. A container without an
        # image is a patch of one in another file, which may have the other half.
        if container.role == "ephemeral" or (not container.image and pod.is_final):
            continue
        for name in dict.fromkeys((*container.limits, *container.requests)):
            if _is_extended(name) and pod.profile.resource(name) is None:
                field, fault = _field_and_fault(container, name)
                if fault:
                    yield _finding(pod, container, name, field, fault)


def _is_extended(name: str) -> bool:
    return "/" in name and _NATIVE_DOMAIN not in name and not name.startswith(_QUOTA_KEY_PREFIX)


def _field_and_fault(container: Container, name: str) -> tuple[str, str]:
    """The field at fault and what is wrong with it; the latter empty if nothing is."""
    limits, requests = container.limits, container.requests
    for field, amounts in (("limits", limits), ("requests", requests)):
        if name in amounts and api_refuses_count(parse(amounts[name])):
            return field, "which is no whole number of devices"
    if name in requests and name not in limits:
        return "requests", "without a limit"
    if name in requests:
        limit, request = parse(limits[name]), parse(requests[name])
        if not (isinstance(limit, Quantity) and isinstance(request, Quantity)):
            return "", ""
        if limit.thousandths != request.thousandths:
            return "requests", f"which is not its limit of {display(limit.text)}"
    return "", ""


def _finding(pod: Pod, container: Container, name: str, field: str, fault: str) -> Finding:
    amount = parse((container.limits if field == "limits" else container.requests)[name])
    line = display(f"{name}: {amount.text}")
    message = f"{container} sets {line} in {field}, {fault}: the API server refuses it"
    overlay = pod.layout.resources_overlay
    if overlay:
        message += ", unless the training runtime says otherwise"
    return Finding(
        path=(*container.resources_path, field, name),
        key=f"extended.{name}",
        message=message,
        container=container,
        help=f"write a whole number of {display(name)} under {container.resources_path[-1]}.limits",
        action=Action.AUDIT if overlay else Action.DENY,
        api_refuses=not overlay,
    )


in_process = "API servers refuse such pods and templates before they ask policies"


RULE = define_rule(
    check, action=Action.DENY, since="0.1", needs=(UNKNOWN_RESOURCE,), needs_resources=True
)
