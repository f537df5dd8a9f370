"""The name of a GPU resource is misspelt.

What it does
------------
Finds names in `limits` and `requests` that are known mistakes for a GPU resource (`gpu`,
`nvidia.com/gpus`, `nvidia.com/gpu-1`, `huawei.com/Ascend910s`, `rebellions.ai/atom`), that spell a
MIG profile otherwise than NVIDIA's device plugin does (`nvidia.com/mig-1g10gb` for
`nvidia.com/mig-1g.10gb`), that carry a quota's prefix (`requests.nvidia.com/gpu`), or that differ
by a letter or two from a known resource of the same vendor, by a word in short or at length
(`nvidia.com/gpumemory`, `volcano.sh/vgpu-num`), in the letters before a model
(`huawei.com/ascend910`), by what follows one of the names of a plugin that has no others
(`aws.amazon.com/neuronchips`), or by one letter in the vendor's domain (`nvidi.com/gpu`); these
last only give a warning, and so do labels of nodes (`nvidia.com/gpu.memory`) and profiles of MIG
that no card has, by their compute slices (`nvidia.com/mig-9g.10gb`) or their memory
(`nvidia.com/mig-4g.5gb`). The name in `gpu.name` of a SparkApplication counts, too. All other names
are ignored, and so is the `extendedResourceName` of a DeviceClass that gpuward knows.

Why it matters
--------------
The API server refuses a name without a domain, but accepts `nvidia.com/gpus` without a warning. If
no node offers that name, the scheduler places the pod nowhere, and it waits forever. Where a node
does offer it, quotas and rules that count the GPU by its right name overlook the pod.

A pod that names its node itself does not wait: the kubelet ignores a resource that the node does
not offer, and the pod runs without a GPU.

Fix safety
----------
The fix corrects the name only if the policy says `fix: true` and the right name is not there as
well: the cluster may after all have a resource of the odd name.

References
----------
- https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/
- Kubernetes, `pkg/apis/core/helper/helpers.go`
- Kubernetes, `removeMissingExtendedResources` in `pkg/kubelet/lifecycle/predicate.go`
- NVIDIA, "Multi-Instance GPU User Guide", names of profiles
- NVIDIA/k8s-device-plugin, `docs/gpu-feature-discovery/README.md`, labels
"""

from collections import Counter

from rules.base.json_values import as_object, as_text, display
from rules.base.traits import OTHER_GPU_RESOURCE, UNKNOWN_RESOURCE
from rules.gpu.amounts import api_refuses_amounts
from rules.gpu.resource_names import fault_of_name, misspelt_resources, renaming_fix
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

CONSEQUENCE = ": the pod waits for a node that has it"


def check(pod: Pod, context: Context) -> Findings:
    """Yield each misspelt name, once for limits and requests together."""
    if pod.layout.gpu_field:
        yield from _findings_of_gpu_field(pod, context)
        return
    for container in pod.containers:
        names = (*container.limits, *container.requests)
        yield from _findings_of_names_without_resource(pod, container)
        mistakes = misspelt_resources(names, container.profile, context.inventory)
        if not mistakes:
            continue
        root = container.resources_path
        places = [((*root, "limits"), container.limits), ((*root, "requests"), container.requests)]
        times = Counter(meant.right_name for meant in mistakes.values())
        for name, meant in mistakes.items():
            right = meant.right_name
            refused = api_refuses_amounts(name, container.limits, container.requests)
            end = ": the API server refuses it" if refused else _consequence(pod)
            field = "limits" if name in container.limits else "requests"
            yield Finding(
                path=(*root, field, name),
                key=f"{field}.{name}",
                message=f"{container} asks for {display(name)}, which is {meant.kind} "
                f"{display(right)}{end}",
                container=container,
                help=f"write {right}",
                fix=renaming_fix(places, name, right) if times[right] == 1 else None,
                action=Action.DENY if meant.is_known else Action.WARN,
                api_refuses=refused,
            )


def _findings_of_gpu_field(pod: Pod, context: Context) -> Findings:
    """Yield the name in the field of the pod that holds a GPU resource in place of limits."""
    field = pod.layout.gpu_field
    name = as_text(as_object(pod.spec.get(field)).get("name"))
    mistakes = misspelt_resources((name,), pod.profile, context.inventory)
    meant, fault = mistakes.get(name), fault_of_name(name)
    if meant:
        why, advice = (
            f"which is {meant.kind} {display(meant.right_name)}",
            f"write {meant.right_name}",
        )
    elif fault:
        why, advice = f"and {fault.reason}", fault.advice
    else:
        return
    yield Finding(
        path=(*pod.path, field, "name"),
        key=f"{field}.{name}",
        message=f"the {pod.path[-1]} asks for {display(name)}, {why}{_consequence(pod)}",
        help=advice,
        action=Action.DENY if meant and meant.is_known else Action.WARN,
    )


def _findings_of_names_without_resource(pod: Pod, container: Container) -> Findings:
    for name in dict.fromkeys((*container.limits, *container.requests)):
        if fault := fault_of_name(name):
            field = "limits" if name in container.limits else "requests"
            yield Finding(
                path=(*container.resources_path, field, name),
                key=f"{field}.{name}",
                message=f"{container} asks for {display(name)}, and {fault.reason}"
                f"{_consequence(pod)}",
                container=container,
                help=fault.advice,
                action=Action.WARN,
            )


def _consequence(pod: Pod) -> str:
    # A pod with a node waits for none: the node offers the odd name, or the kubelet ignores it.
    return "" if pod.is_placed else CONSEQUENCE


RULE = define_rule(
    check,
    action=Action.DENY,
    since="0.1",
    # The patterns of profiles know misspelt profiles of MIG too.
    needs=(UNKNOWN_RESOURCE | OTHER_GPU_RESOURCE,),
)
