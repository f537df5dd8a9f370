"""A device plugin of GPUs can be evicted in favour of other pods.

What it does
------------
Finds DaemonSets of GPU device plugins without `priorityClassName`. A DaemonSet is one if it mounts
`/var/lib/kubelet/device-plugins`, and its name or an image names a maker of accelerators and
no other devices, such as SGX, QAT or FPGAs. Any priority class is accepted, but for one that begins
with `system-` and is not one of Kubernetes' two: nobody else may create such a class. Components of
the platform, which no other rule checks, are checked too.

Of ACK's GPU sharing all DaemonSets count that mount a path of the node and have `gpushare` or
`cgpu` in their names, and only Kubernetes' two classes are accepted: ACK's documents ask for
`system-node-critical`.

Why it matters
--------------
When a node runs short of resources, pods without a priority go first. Without its device plugin a
node offers no GPUs until the plugin is back. ACK asks to give `gpushare-device-plugin-ds`
`priorityClassName: system-node-critical`. The annotation
`scheduler.alpha.kubernetes.io/critical-pod`, which old manifests still have, does nothing.

The API server refuses pods with a class that is not there, such as `system-node-critcal`. It
accepts the DaemonSet, so only the DaemonSet's events tell why no device plugin runs.

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
- Kubernetes, `plugin/pkg/admission/priority/admission.go`
- https://kubernetes.io/docs/concepts/policy/resource-quotas/#limit-priority-class-consumption-by-default
"""

from rules.base.json_values import as_text, display, put
from rules.base.traits import NODE_AGENT
from rules.gpu.components import device_plugin_words
from rules.rule import Action, Context, Finding, Findings, Fix, KubernetesObject, define_rule

FIELD = "priorityClassName"
RIGHT_CLASS = "system-node-critical"
# Names of Kubernetes' own classes begin with it.
_RESERVED_PREFIX = "system-"
_RESERVED_CLASSES = frozenset({RIGHT_CLASS, "system-cluster-critical"})
SYSTEM_NAMESPACE = "kube-system"


# In the names of the DaemonSets of ACK's chart `ack-ai-installer`.
_WORDS_OF_ACK = frozenset({"gpushare", "cgpu"})


def check(workload: KubernetesObject, _context: Context) -> Findings:
    """Yield the missing or unknown priority class of a device plugin, or of ACK's components."""
    is_of_ack = _is_of_ack(workload)
    is_plugin = bool(device_plugin_words(workload))
    if not (is_plugin or is_of_ack):
        return
    subject = "device plugin" if is_plugin else "component of ACK's GPU sharing"
    for pod in workload.pods:
        if fault := _fault(pod.spec.get(FIELD), is_of_ack=is_of_ack):
            fix = Fix(f"set {FIELD}: {RIGHT_CLASS}", (put((*pod.path, FIELD), RIGHT_CLASS),))
            yield Finding(
                path=(*pod.path, FIELD),
                key=FIELD,
                message=f"the {subject} has {fault}",
                help=f"write {FIELD}: {RIGHT_CLASS}",
                fix=fix if workload.object.namespace == SYSTEM_NAMESPACE else None,
            )


def _is_of_ack(workload: KubernetesObject) -> bool:
    is_there = (workload.object.namespace or SYSTEM_NAMESPACE) == SYSTEM_NAMESPACE
    return is_there and not _WORDS_OF_ACK.isdisjoint(workload.object.name.split("-"))


def _fault(name: object, *, is_of_ack: bool) -> str:
    """Return what is wrong with the priority class `name`; empty for nothing."""
    if not name:
        consequence = "pods with a priority can evict it, and then the node offers no accelerators"
        return f"no {FIELD}: {consequence}"
    if name in _RESERVED_CLASSES:
        return ""
    shown = f"the {FIELD} {display(name)}"
    if as_text(name).startswith(_RESERVED_PREFIX):
        return f"{shown}, which does not exist: the API server refuses its pods"
    if is_of_ack:
        return f"{shown}, and ACK asks for {RIGHT_CLASS}: pods of a higher class can evict it"
    return ""


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(NODE_AGENT,))
