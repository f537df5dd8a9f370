"""A resource claim asks for all GPUs of a node, or for more than any node has.

What it does
------------
Finds requests of a ResourceClaim or a ResourceClaimTemplate with `allocationMode: All`, or with a
`count` of more than `max_devices`, outside the namespaces in which the profile lists components of
the GPU platform. Evaluates the device classes that a profile knows, such as `gpu.nvidia.com`, and
those whose DeviceClass, in the same run, names a GPU resource. Requests for admin access are left
to `admin-access-claim`. The `count` of MIG devices is not evaluated: a node has many of them.

Why it matters
--------------
`All` means every device of a node that matches the request, however many there are. The pod takes a
whole machine, and stays Pending as long as another pod holds one of its GPUs. In a quota such a
request counts as 32 devices.

A count that no node reaches is never allocated.

Options
-------
`max_devices`: the most devices that one request may count (default 16).

References
----------
- https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/resource-claim-v1/
- Kubernetes, `pkg/quota/v1/evaluator/core/resource_claims.go`
"""

from rules.base.json_values import as_text, display
from rules.base.traits import CLAIM_OBJECT
from rules.gpu.claims import is_gpu_class, is_partition_class
from rules.objects.kubernetes_objects import DeviceRequest
from rules.rule import Action, Context, DeviceClaim, Finding, Findings, define_rule

MODE_FIELD, ALL_MODE, COUNT_FIELD = "allocationMode", "All", "count"


def check(claim: DeviceClaim, context: Context) -> Findings:
    """Yield each request for all devices, or for too many."""
    if claim.profile.components_in(claim.object.namespace):
        return
    most = context.options["max_devices"]
    for request in claim.requests():
        count = request.fields.get(COUNT_FIELD)
        wants_all = request.fields.get(MODE_FIELD) == ALL_MODE
        wants_many = type(count) is int and count > most
        if not (wants_all or wants_many) or request.fields.get("adminAccess") is True:
            continue
        name = as_text(request.fields.get("deviceClassName"))
        if not is_gpu_class(name, claim.profile, context.inventory):
            continue
        if wants_all:
            yield _finding(
                request,
                MODE_FIELD,
                f"asks for every device of the class {display(name)} that matches on a node",
                f"write {COUNT_FIELD} with the number of devices that the pod uses",
            )
        elif not is_partition_class(name, claim.profile, context.inventory):
            yield _finding(
                request,
                COUNT_FIELD,
                f"asks for {display(count)} devices: a node is expected to have at most {most}",
                f"write at most {most}, or raise max_devices",
            )


def _finding(request: DeviceRequest, field: str, fault: str, advice: str) -> Finding:
    return Finding(
        path=(*request.path, field),
        key=f"{field}.{request.name}",
        message=f"the request {display(request.name)} {fault}",
        help=advice,
    )


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(CLAIM_OBJECT,), options={"max_devices": 16}
)
