"""A GPU is requested without a limit.

What it does
------------
Finds a GPU resource that is in a container's `requests`, with a whole number, and not in its
`limits`. Other rules report amounts that are not whole numbers.

Why it matters
--------------
GPUs cannot be overcommitted, so the API server refuses a GPU request without a limit. It refuses
a Deployment or a Job with this fault when the user applies it. An operator that creates the pod
from its custom resource never gets one.

The `resourcesPerNode` of a Kubeflow TrainJob is only noted: Kubeflow Trainer lays it over the
resources of the training runtime, which may have the limit. Versions before that change replace
the runtime's resources, and there the pods are refused.

Fix safety
----------
The fix adds the limit by default, with the amount of the request: Kubernetes accepts no other
amount. The request stays. In a TrainJob it adds the limit only if the policy says `fix: true`.

References
----------
- https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/
- Kubernetes, `pkg/apis/core/validation/validation.go`
- https://github.com/kubeflow/trainer/pull/3602
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import display, put
from rules.base.quantity import Quantity
from rules.base.traits import UNUSUAL_AMOUNT
from rules.gpu.devices import Device, devices
from rules.in_process.expression import (
    POLICY,
    Expression,
    all_of,
    any_of,
    choose,
    expression,
    get,
    is_in,
    name,
    not_,
    optional,
    string,
)
from rules.in_process.requests import fits
from rules.in_process.statement import AT, CONTAINER, Mutation, add
from rules.profile.profile import Profile
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each GPU resource that has a whole number as request and no limit."""
    for container in pod.containers:
        # The API server refuses any resources in an ephemeral container: a limit would not help.
        if not container.requests or container.role == "ephemeral":
            continue
        # Without an image this is a patch of a container in another file, which may set the limit.
        if not container.image and pod.is_final:
            continue
        for device in devices(container).values():
            if device.limit is None and _requests_whole_number(device):
                yield _finding(container, device, overlay=pod.layout.resources_overlay)


def _requests_whole_number(device: Device) -> bool:
    amount = device.request
    return isinstance(amount, Quantity) and amount.is_integer and amount.nano >= 0


def _finding(container: Container, device: Device, *, overlay: bool) -> Finding:
    resource, value = device.name, container.requests[device.name]
    line = display(f"{resource}: {device.request.text}" if device.request else resource)
    reason = "GPUs cannot be overcommitted, so the API server refuses a request alone"
    if overlay:
        reason = "the API server refuses its pods, unless the training runtime sets the same limit"
    resources = container.resources_path[-1]
    fix = None
    if container.resources.get("limits") is None or isinstance(container.resources["limits"], dict):
        limit = put((*container.resources_path, "limits", resource), value)
        fix = Fix(f"set the limit of {resource} as the request", (limit,), safe=not overlay)
    return Finding(
        path=(*container.resources_path, "requests", resource),
        key=f"limits.{resource}",
        message=f"{container} requests {line} without a limit: {reason}",
        container=container,
        help=f"write {line} under {resources}.limits; the request may then be left out",
        fix=fix,
        action=Action.AUDIT if overlay else Action.DENY,
        api_refuses=not overlay,
    )


in_process = "API servers refuse such pods and templates before they ask policies"


def in_process_fix(_options: Mapping[str, Any], _profile: Profile) -> tuple[Mutation, ...]:
    """The fix in CEL. API servers refuse pods after they have asked policies that change them."""
    quantity, sign, escape_key = name("quantity"), name("sign"), name("jsonpatch.escapeKey")
    limits = optional(CONTAINER.raw, "resources.limits")
    requests = get(CONTAINER.raw, "resources.requests", {})

    def is_whole(q: Expression) -> Expression:
        return all_of(q.isInteger(), sign(q) >= 0)

    def is_alone(n: Expression) -> Expression:
        is_known = any_of(
            is_in(n, POLICY.resources), POLICY.resourcePatterns.exists(lambda p: fits(n, p))
        )
        amount = expression([quantity(string(requests[n]))])
        return all_of(is_known, not_(is_in(n, limits.orValue({}))), amount.exists(is_whole))

    alone = requests.filter(is_alone)
    created = choose((limits.hasValue(), []), otherwise=[add(AT + "/resources/limits", {})])
    added = alone.map(lambda n: add(AT + "/resources/limits/" + escape_key(n), string(requests[n])))
    where = all_of(CONTAINER.image != "", alone.size() > 0)
    return (Mutation("container", where, created + added),)


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(UNUSUAL_AMOUNT,))
