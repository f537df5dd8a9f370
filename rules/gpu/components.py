"""The pods of a GPU estate itself, and who may make them: device plugins, exporters, agents."""

from __future__ import annotations

from rules.base.patterns import matches_any
from rules.objects.object_ref import BUILT_IN_GROUPS
from rules.objects.pod import Pod
from rules.profile.context import Context

# Who makes the pods of DaemonSets; the second where controllers have no accounts of their own.
DAEMON_SET_CONTROLLERS = (
    "system:serviceaccount:kube-system:daemon-set-controller",
    "system:kube-controller-manager",
)


def is_component(pod: Pod, context: Context) -> bool:
    """Whether `pod` is the estate's own, which every rule leaves alone.

    In a custom resource the pod may go to another namespace than the resource itself.
    """
    if pod.object.group not in BUILT_IN_GROUPS:
        return False
    return any(
        matches_any(c.service_accounts, pod.service_account)
        and (context.user is None or context.user in (*DAEMON_SET_CONTROLLERS, *c.creators))
        for c in pod.profile.components_in(pod.object.namespace)
    )


def is_made_by_daemon_set(pod: Pod, context: Context) -> bool:
    """Whether a DaemonSet makes `pod`, which may then be an agent of its node.

    Anybody may write that a DaemonSet owns a pod; at admission its maker is known.
    """
    return pod.is_daemon and (context.user is None or context.user in DAEMON_SET_CONTROLLERS)
