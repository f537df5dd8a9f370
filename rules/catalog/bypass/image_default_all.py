"""A container without a GPU leaves it to its image whether it sees all of them.

What it does
------------
Finds a container to which no device plugin gives a GPU and which does not set
`NVIDIA_VISIBLE_DEVICES`, if the image is likely to set it to `all` or the node is likely to have a
GPU: the image is a known CUDA image or another that sets it, such as those of Ollama and GPUStack,
or the pod uses a GPU runtime class, selects GPU nodes, requests a GPU in another container, or uses
a resource claim. If all GPUs of the pod are those of other makers, only a CUDA image is reason
enough. A container that uses only resource claims or device classes is reported as well: CDI
injects their devices, which `void` does not stop.

The images of NVIDIA's agents, such as `dcgm-exporter`, count as CUDA images, but not in a
DaemonSet's pods that run the agent and no other code: no other command, no volume over programs or
libraries, no variable such as `LD_PRELOAD`, and no hook or probe with a command.

Whatever the policy says, it is only a note (`audit`) for an image that is not known to set the
variable, and for a container that asks for an extended resource that may be a GPU by another name
(such as `nvidia.com/a100`). With `every_container`, for neither.

Not reported: the runtimes of Kubeflow's trainer and of KServe, whose containers get their GPUs from
a TrainJob or an InferenceService, and pods for machines without cards of NVIDIA, as with TPUs,
Neuron and Gaudi. The rule `ephemeral-gpu` checks ephemeral containers, unless the policy says
`voidEveryContainer`.

Why it matters
--------------
NVIDIA's CUDA images, and images built on them, set `NVIDIA_VISIBLE_DEVICES=all`. On a node whose
default runtime is NVIDIA's, such a container sees every GPU without having requested one, unless
the pod sets another value.

Fix safety
----------
There is no fix beside an extended resource that may be a GPU by another name, unless the policy
says `voidEveryContainer`: name such a resource in a profile first. Nor is there one in a patch or
another part of a pod, whose container may get its GPU elsewhere.

The fix adds `NVIDIA_VISIBLE_DEVICES=void` by default in pods that are created exactly as written.
It needs `fix: true` in the policy

- in a pod that names a GPU runtime class and requests no GPU: an author who names the class means
  the GPU. The rule `runtimeclass-nvidia-no-gpu` reports such a pod;
- in a pod whose GPUs are all those of other makers, such as AMD and Intel, which do not read the
  variable. The device classes of a claim count if the claim or its template is known. The name of
  an image does not count, because a claim for any device may stand beside any image;
- in a file, in a pod that asks for a part of a GPU by an annotation of a system whose profile is
  not chosen, such as KAI's `gpu-fraction`, and names its scheduler or carries its label: beside
  `void` the container would lose that part;
- in a workload that a patch of a kustomization gives a GPU, if the patch is a file among the
  manifests of the same run and names the kind and the name of the workload. JSON patches, and
  patches that are written in the kustomization, are not read: lint with `--render`, or name the
  workload's GPU in its own manifest;
- in a custom resource or a PodTemplate, whose users may add the GPU;
- in a DaemonSet's pod that is reported only because it selects GPU nodes or uses a GPU runtime
  class, because such a pod may be an agent that needs to see every GPU;
- in a pod in which only init containers request GPUs: the application may be meant to have them.
  The rule `init-container-gpu` reports such a pod.

Options
-------
`every_container`: report every container that requests no GPU of NVIDIA and does not set the
variable, whatever its image, and ephemeral containers too; the fix is then made by default in all
pods that are created exactly as written. The policy sets the option by `voidEveryContainer: true`.

References
----------
- https://github.com/NVIDIA/k8s-device-plugin/issues/87
- https://github.com/NVIDIA/k8s-device-plugin/issues/195
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import display
from rules.base.traits import CUDA_IMAGE, GPU_OR_NODE_CONSTRAINT, RUNTIME_CLASS
from rules.gpu.claims import vendors_of_claims
from rules.gpu.components import image_grants_gpus, is_made_by_daemon_set
from rules.gpu.devices import (
    describe_request,
    gets_gpu_by_patch,
    means_unrequested_gpu,
    name_of_unknown_device,
    only_init_requests_gpu,
    pod_requests_gpu,
    share_of_unknown_platform,
    uses_device_plugin,
    uses_gpu_runtime,
)
from rules.gpu.images import is_cuda_image, sets_visible_devices
from rules.gpu.visibility import (
    NVIDIA_VISIBLE_DEVICES,
    OF_ANOTHER_MAKER,
    advice_to_hide,
    hide_fix,
    is_unset,
    looks_like_legacy_image,
    may_be_given_by_variable,
)
from rules.in_process.expression import OBJECT, Expression, all_of, any_of, expression, get, not_
from rules.in_process.statement import CONTAINER, HIDE, Mutation
from rules.placement.gpu_nodes import excludes_nvidia, is_for_other_makers, targets_gpu_nodes
from rules.profile.profile import Profile
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

# Templates of containers that get their GPUs from another object.
_RUNTIME_KINDS = frozenset(
    {"TrainingRuntime", "ClusterTrainingRuntime", "ServingRuntime", "ClusterServingRuntime"}
)


def check(pod: Pod, context: Context) -> Findings:
    """Yield each container that gets no GPU from a device plugin and should hide all GPUs."""
    every = context.options.get("every_container")
    keeps_variable = may_be_given_by_variable if every else uses_device_plugin
    without_plugin = [c for c in pod.containers if not keeps_variable(c)]
    is_runtime = pod.object.kind in _RUNTIME_KINDS and not pod.is_final
    if not without_plugin or is_runtime or excludes_nvidia(pod):
        return
    reason = _gpu_node_reason(pod, context)
    if not reason and every:
        reason = "the policy wants every container to say so"
    may_be_agent = is_made_by_daemon_set(pod, context) and not pod_requests_gpu(pod)
    is_foreign = is_for_other_makers(pod, context.inventory)
    reason = "" if is_foreign and not every else reason
    is_meant = is_foreign or means_unrequested_gpu(pod, context.inventory)
    share = share_of_unknown_platform(pod, context)
    is_meant = is_meant or bool(share) or gets_gpu_by_patch(pod, context.inventory)
    init_only = only_init_requests_gpu(pod)
    for container in without_plugin:
        why, agent = reason, may_be_agent
        is_known = image_grants_gpus(container, pod, context) or (
            sets_visible_devices(container.image) and not is_cuda_image(container.image)
        )
        if is_known:
            why, agent = f"its image {display(container.image)} is known to set it to all", False
        if (
            why
            and (every or container.role != "ephemeral")
            and container.image  # without an image this is a patch of a container in another file
            and is_unset(container)
            and not looks_like_legacy_image(container)
        ):
            # An agent may need to see every GPU of its node, unless the policy says otherwise.
            safe = pod.is_final and bool(every or not (agent or init_only or is_meant))
            may_have_gpu = not every and bool(name_of_unknown_device(container))
            is_sure = every or (is_known and not may_have_gpu)
            action = Action.DENY if is_sure else Action.AUDIT
            finding = _finding(container, why, action, share, safe=safe)
            if every and not is_known:
                # An image that is known to show GPUs is more than the one in whose place it comes.
                finding = finding._replace(key=f"{NVIDIA_VISIBLE_DEVICES} of any image")
            yield finding._replace(fix=None) if may_have_gpu or pod.is_partial else finding


def _gpu_node_reason(pod: Pod, context: Context) -> str:
    """Return why the node of `pod` is likely to have a GPU; empty if it is not likely."""
    if uses_gpu_runtime(pod):
        return f"the pod uses the runtime class {display(pod.spec['runtimeClassName'])}"
    if pod_requests_gpu(pod):
        if any(uses_device_plugin(container) for container in pod.containers):
            return "another container of the pod asks for a GPU"
        if not vendors_of_claims(pod, context.inventory):
            return "the claim may be for a GPU: what it asks for is not known here"
        return "the pod may run on a node with GPUs"
    return "the pod selects GPU nodes" if targets_gpu_nodes(pod) else ""


def _finding(container: Container, why: str, action: Action, share: str, *, safe: bool) -> Finding:
    unknown = name_of_unknown_device(container)
    is_foreign = uses_device_plugin(container)
    request = OF_ANOTHER_MAKER if is_foreign else describe_request(container)
    advice = advice_to_hide(f"add {NVIDIA_VISIBLE_DEVICES} with the value void to env", share)
    if unknown:
        advice = f"if {unknown} is a GPU, name it in a profile of the policy; otherwise {advice}"
    return Finding(
        path=(*container.path, "env"),
        key=NVIDIA_VISIBLE_DEVICES,
        message=(
            f"{container} {request} and does not set {NVIDIA_VISIBLE_DEVICES}=void, although {why}"
        ),
        container=container,
        help=advice,
        fix=hide_fix(container, safe=safe),
        action=action,
    )


in_process = "it reports only what it fixes, and a policy of this kind fixes nothing"


def in_process_fix(options: Mapping[str, Any], profile: Profile) -> tuple[Mutation, ...]:
    """The fix in CEL."""
    from rules.in_process import components, images, nodes, requests  # noqa: PLC0415  # no linter needs them

    c = CONTAINER
    every = bool(options.get("every_container"))
    makes_visible = any_of(components.image_grants_gpus(c), images.is_image_for_any_maker(c))
    is_suspect = [
        requests.unknown_devices().size() == 0,
        any_of(OBJECT.isOnGpuNode, makes_visible),
    ]
    where = all_of(
        not_(OBJECT.excludesNvidia),
        not_(requests.may_be_given_by_variable() if every else c.fromPlugin),
        c.image != "",
        c.isUnset,
        not_(c.looksLegacy),
        *([] if every else is_suspect),
    )
    is_meant = any_of(
        OBJECT.isForOtherMakers, all_of(OBJECT.usesGpuRuntime, not_(OBJECT.requestsGpu))
    )
    is_safe = all_of(
        not_(OBJECT.onlyInitRequests),
        not_(all_of(OBJECT.isAgent, not_(makes_visible))),
        not_(is_meant),
    )
    words = {
        "isForOtherMakers": nodes.is_for_other_makers(profile),
        "isOnGpuNode": all_of(
            not_(OBJECT.isForOtherMakers),
            any_of(OBJECT.usesGpuRuntime, OBJECT.requestsGpu, OBJECT.nodeLabel != ""),
        ),
        "isAgent": all_of(OBJECT.isDaemon, not_(OBJECT.requestsGpu)),
        "onlyInitRequests": _only_init_requests_gpu_in_cel(),
    }
    return (Mutation("container", where, HIDE, True if every else is_safe, words),)


def _only_init_requests_gpu_in_cel() -> Expression:
    """`only_init_requests_gpu`."""

    def ends_before_others(c: Expression) -> Expression:
        return all_of(c.role == "init", get(c.raw, "restartPolicy", "") != "Always")

    requesting = OBJECT.containers.filter(lambda c: any_of(c.first != "", c.isTarget))
    return expression([requesting]).exists(
        lambda found: all_of(found.size() > 0, found.all(ends_before_others))
    )


RULE = define_rule(
    check,
    action=Action.AUDIT,
    since="0.1",
    needs=(GPU_OR_NODE_CONSTRAINT | RUNTIME_CLASS | CUDA_IMAGE,),
    options={"every_container": False},
)
