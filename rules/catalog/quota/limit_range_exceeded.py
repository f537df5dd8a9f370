"""A container asks for more GPUs than a LimitRange of its namespace allows.

What it does
------------
Compares the GPU resources that a container asks for with `max` of the type `Container` in the
LimitRanges of the pod's namespace, if they are among the manifests of the same run.

Why it matters
--------------
The API server refuses every such pod. A Deployment or a Job is created without an error, and waits
for pods that never come: only its events say why.

References
----------
- https://kubernetes.io/docs/concepts/policy/limit-range/
"""

from rules.base.json_values import display
from rules.base.quantity import Quantity, parse
from rules.base.traits import GPU_RESOURCE, KNOWN_LIMIT_RANGES
from rules.gpu.devices import devices
from rules.inventory.inventory import LimitRange
from rules.objects.container import POD_SPEC
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule


def check(pod: Pod, context: Context) -> Findings:
    """Yield each GPU resource of which a container asks for more than the smallest `max`."""
    if pod.layout is not POD_SPEC or pod.exists:
        return
    ranges = context.inventory.all_in(LimitRange, pod.object.namespace)
    for container in pod.containers if ranges else ():
        for resource, device in devices(container).items():
            limits = [
                (limit.nano, limit.text, name)
                for name, known in ranges.items()
                if isinstance(limit := parse(known.max.get(resource, "")), Quantity)
            ]
            wanted = device.amount
            if not limits or not isinstance(wanted, Quantity) or wanted.nano <= min(limits)[0]:
                continue
            _, text, name = min(limits)
            yield Finding(
                path=container.amount_path(resource),
                key=f"limitrange.{resource}",
                message=(
                    f"{container} asks for {wanted.text} {resource}, and the LimitRange "
                    f"{display(name)} of its namespace allows {text} for a container: the API "
                    "server refuses such a pod"
                ),
                container=container,
                help="ask for less, or raise `max` of the LimitRange",
            )


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(GPU_RESOURCE, KNOWN_LIMIT_RANGES),
    needs_resources=True,
)
