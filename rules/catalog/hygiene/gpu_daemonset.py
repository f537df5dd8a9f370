"""A DaemonSet takes a GPU of every node that it runs on.

What it does
------------
Finds DaemonSets whose pods request GPUs or shares of them. A DaemonSet that the profile lists as a
component of the GPU platform is not reported.

Why it matters
--------------
Each node has that much less for other pods, for as long as it exists, and a node that an autoscaler
adds has it less from the start. A monitoring agent needs no GPU of its own to read the metrics of
all. A burn-in test is over some time, while its DaemonSet keeps the GPUs: a Job for each node gives
them back. A server on every node is what a DaemonSet is for.

References
----------
- https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/
- https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/
"""

from rules.base.json_values import display
from rules.base.traits import GPU_WORKLOAD
from rules.gpu.devices import effective_requests, path_of_first_request, requested_resources
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule

MAX_LISTED = 3


def check(workload: KubernetesObject, _context: Context) -> Findings:
    """Yield the DaemonSet if its pods request GPUs."""
    if workload.object.kind != "DaemonSet":
        return
    for pod in workload.pods:
        requested = requested_resources(pod)
        if not requested or pod.is_partial:
            continue
        amounts = effective_requests(pod)
        named = requested[:MAX_LISTED]
        taken = " and ".join(
            _resource_with_amount(resource, amounts.get(resource)) for resource in named
        )
        yield Finding(
            path=path_of_first_request(pod, requested[0]),
            key="daemonset",
            message=f"the DaemonSet takes {taken} of every node that it runs on, for as long as "
            "the node exists",
            help="remove the request if the program does not compute on the GPU, or run a Job for "
            "each node if it ends",
        )


def _resource_with_amount(resource: str, amount: int | None) -> str:
    return display(resource if amount is None else f"{resource}: {amount}")


RULE = define_rule(check, action=Action.OFF, since="0.1", needs=(GPU_WORKLOAD,))
