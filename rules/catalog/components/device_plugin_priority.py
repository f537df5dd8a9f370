"""A device plugin of GPUs can be evicted in favour of other pods.

What it does
------------
Finds DaemonSets of GPU device plugins without `priorityClassName`. A DaemonSet is one if it mounts
`/var/lib/kubelet/device-plugins`, and its name or an image names a maker of accelerators. Any
priority class is accepted. Components of the platform, which no other rule checks, are checked too.

Why it matters
--------------
When a node runs short of resources, pods without a priority go first. Without its device plugin a
node offers no GPUs until the plugin is back. ACK asks to give `gpushare-device-plugin-ds`
`priorityClassName: system-node-critical`. The annotation
`scheduler.alpha.kubernetes.io/critical-pod`, which old manifests still have, does nothing.

Fix safety
----------
The fix writes `system-node-critical`, only if the policy says `fix: true`, and only in
`kube-system`: such a pod can preempt others. API servers accept the class in every namespace. Where
their configuration limits it, as on GKE, they refuse pods in namespaces without a ResourceQuota
that has the scope `PriorityClass` for it, and then the plugin does not start at all. Such clusters
have this quota in `kube-system`; elsewhere create it first.

References
----------
- https://www.alibabacloud.com/help/doc-detail/191140.html
- https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/
- https://kubernetes.io/docs/concepts/policy/resource-quotas/#limit-priority-class-consumption-by-default
"""

from rules.base.json_values import put
from rules.base.traits import NODE_AGENT
from rules.gpu.components import device_plugin_words
from rules.rule import Action, Context, Finding, Findings, Fix, KubernetesObject, define_rule

FIELD = "priorityClassName"
CLASS = "system-node-critical"
SYSTEM_NAMESPACE = "kube-system"


def check(workload: KubernetesObject, _context: Context) -> Findings:
    """Yield the missing priority class of a device plugin."""
    if not device_plugin_words(workload):
        return
    for pod in workload.pods:
        if not pod.spec.get(FIELD):
            fix = Fix(f"set {FIELD}: {CLASS}", (put((*pod.path, FIELD), CLASS),))
            yield Finding(
                path=(*pod.path, FIELD),
                key=FIELD,
                message="the device plugin has no priorityClassName: pods with a priority can "
                "evict it, and then the node offers no GPUs",
                help=f"add {FIELD}: {CLASS}",
                fix=fix if workload.object.namespace == SYSTEM_NAMESPACE else None,
            )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(NODE_AGENT,))
