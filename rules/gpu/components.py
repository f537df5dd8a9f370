"""The pods of the GPU platform itself (device plugins, exporters, agents), and who creates them."""

from __future__ import annotations

from rules.base.words import matches_any
from rules.gpu.images import is_agent_image, is_cuda_image
from rules.objects.container import Container
from rules.objects.object_ref import BUILT_IN_GROUPS
from rules.objects.pod import MIRROR, Pod
from rules.profile.context import Context
from rules.profile.records import Component

# The user that all controllers of Kubernetes are where they have no service accounts of their own.
CONTROLLER_MANAGER = "system:kube-controller-manager"
# The users that create the pods of DaemonSets.
DAEMON_SET_CONTROLLERS = (
    "system:serviceaccount:kube-system:daemon-set-controller",
    CONTROLLER_MANAGER,
)
# The user that creates the pods of Deployments.
_REPLICA_SET_CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
# The prefix of the users that kubelets are. The API server allows them to create mirror pods only.
_KUBELETS = "system:node:"


def is_component(pod: Pod, context: Context) -> bool:
    """Whether `pod` is a component of the GPU platform, which no rule checks.

    The profile lists components by namespace and service account. At admission the user must also
    be the DaemonSet controller or one of the component's `creators`. In a file nobody creates the
    pod, so it must be in a DaemonSet or, as a running pod, come from one, or the component must
    have `creators` who may make such an object. A pod in a custom resource is never a component,
    because it may be created in another namespace than the resource.
    """
    if pod.object.group not in BUILT_IN_GROUPS:
        return False
    return any(
        matches_any(c.service_accounts, pod.service_account) and _may_create(c, pod, context.user)
        for c in pod.profile.components_in(pod.object.namespace)
    )


def _may_create(component: Component, pod: Pod, user: str | None) -> bool:
    if user is None:
        is_daemon = pod.is_daemon and (pod.exists or pod.object.kind == "DaemonSet")
        if pod.object.kind in {"Deployment", "ReplicaSet"}:
            return _REPLICA_SET_CONTROLLER in component.creators
        return is_daemon or any(c != _REPLICA_SET_CONTROLLER for c in component.creators)
    return user in (*DAEMON_SET_CONTROLLERS, *component.creators)


def is_made_by_daemon_set(pod: Pod, context: Context) -> bool:
    """Whether a DaemonSet creates `pod`, which may then be an agent of its node.

    Any user may write a DaemonSet as the owner of a pod. At admission the user who creates the pod
    is known, and must be the DaemonSet controller.
    """
    return pod.is_daemon and (context.user is None or context.user in DAEMON_SET_CONTROLLERS)


def advice_for_agents(pod: Pod) -> str:
    """What to do besides, if `pod` is from a DaemonSet and so may be an agent; else empty."""
    return (
        ", or list its service account under components in a profile of the policy, if it is an "
        "agent of the platform"
        if pod.is_daemon
        else ""
    )


def shows_gpus(container: Container, pod: Pod, context: Context) -> bool:
    """Whether the image of `container` is known to make GPUs visible that nobody requested.

    The images of NVIDIA's agents do so too. They are excused in the pods of a DaemonSet: anybody
    can write the name of an agent's image into a pod of their own.
    """
    if not is_cuda_image(container.image):
        return False
    return not (is_agent_image(container.image) and is_made_by_daemon_set(pod, context))


def is_mirror(pod: Pod, context: Context) -> bool:
    """Whether `pod` is a kubelet's mirror of a static pod, which runs even if it is refused.

    Anybody can write the annotation of mirror pods, so the user who creates the pod decides.
    """
    is_annotated = pod.object.kind == "Pod" and MIRROR in pod.annotations
    return is_annotated and (context.user or "").startswith(_KUBELETS)
