"""A queue of Kueue names a GPU resource that is misspelt.

What it does
------------
Compares the resources of ClusterQueues and Cohorts, in `coveredResources` and in the quotas of
their flavors, with the names of GPU resources, as `unknown-gpu-resource` does for containers. Finds
names that are known mistakes (`nvidia.com/gpus`, `requests.nvidia.com/gpu`), that spell a MIG
profile otherwise than NVIDIA's device plugin does, that differ by a letter or two from a known
resource of the same vendor, and that no node offers: labels of nodes (`nvidia.com/gpu.memory`) and
MIG profiles that no card has.

Why it matters
--------------
Kueue does not know which names pods use. It admits a workload only if the queue covers every
resource that its pods ask for, so a workload with GPUs waits, with `unavailable in ClusterQueue` in
its status.

References
----------
- https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/
- kubernetes-sigs/kueue, `pkg/scheduler/flavorassigner/flavorassigner.go`
"""

from rules.base.json_values import Path, display
from rules.base.traits import CLUSTER_QUEUE
from rules.gpu.quotas import covered_resources
from rules.gpu.resource_names import fault_of_name, misspelt_resources
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule


def check(queue: KubernetesObject, context: Context) -> Findings:
    """Yield each misspelt name once, where it stands first."""
    places: dict[str, Path] = {}
    for path, name in covered_resources(queue):
        places.setdefault(name, path)
    for name, path in places.items():
        if fault := fault_of_name(name):
            yield Finding(
                path=path,
                key=f"resources.{name}",
                message=f"the queue's resource {display(name)} covers no pod: {fault.reason}",
                help=fault.advice,
            )
    for name, meant in misspelt_resources(places, queue.profile, context.inventory).items():
        yield Finding(
            path=places[name],
            key=f"resources.{name}",
            message=f"the queue's resource {display(name)} is {meant.kind} {meant.right_name}: "
            f"it covers no pod that asks for {meant.right_name}",
            help=f"write {meant.right_name}",
        )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(CLUSTER_QUEUE,))
