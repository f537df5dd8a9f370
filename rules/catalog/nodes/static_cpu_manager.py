"""The kubelets of nodes that share GPUs pin CPUs statically.

What it does
------------
Finds `cpuManagerPolicy: static` in a KubeletConfiguration and in the ConfigMap `kubelet-config`, in
which kubeadm keeps one. In the ConfigMap it reads the text without parsing it. The file does not
say which nodes it is for. Where the policy names a profile with ACK's shared GPUs (`ack`,
`ack-registered`) the rule warns; elsewhere it is a note.

Of objects that make nodes it reads the policy and the labels of each node pool, and warns if
`ack.node.gpu.schedule` shares the cards of the same nodes: `cpuPolicy` and `kubeletConfiguration`
of Crossplane's node pools on ACK, `kubeletConfig` of Config Connector, Azure Service Operator and
Cluster API for Azure, `kubeletExtraConfig` of eksctl, and kubeadm's arguments of the kubelet.
Karpenter's EC2NodeClass has no field for the policy, and its `userData` is not read.

Why it matters
--------------
ACK forbids the static CPU policy on nodes that share their GPUs. On nodes whose cards are not
shared there is nothing wrong with it.

References
----------
- https://www.alibabacloud.com/help/en/ack/ack-managed-and-ack-dedicated/user-guide/install-and-use-ack-ai-installer-and-the-gpu-inspection-tool
- https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/
"""

import re
from collections.abc import Iterator

from rules.base.json_values import Path, as_object, as_text
from rules.base.traits import KUBELET_CONFIG, NODE_POOL
from rules.placement.node_labels import GPU_MEM, MODE_LABEL, SHARING_MODES, node_settings
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule

FIELD = "cpuManagerPolicy"
# A key of the outermost object, as YAML and as JSON.
_STATIC_POLICY_PATTERN = (
    r"(?m)^[ {]{0,8}[\"']?cpuManagerPolicy[\"']?[ ]{0,8}:"
    r"[ ]{0,8}[\"']?static[\"']?[ ]{0,8}(?:$|[,#}])"
)


def check(subject: KubernetesObject, _context: Context) -> Findings:
    """Yield each field that is `static`."""
    # The resource of the profiles whose vendor forbids the policy.
    shared = GPU_MEM in subject.profile.active
    for path in _in_kubelet_configuration(subject):
        action = Action.WARN if shared else Action.AUDIT
        yield _finding(subject, (*subject.path, *path), action)
    if subject.kind_trait == NODE_POOL:
        # One finding for each field: findings about several pools would have the same identity.
        found = [_finding(subject, p, Action.WARN) for p in _in_pools_with_shared_cards(subject)]
        yield from {finding.key: finding for finding in reversed(found)}.values()


def _finding(subject: KubernetesObject, path: Path, action: Action) -> Finding:
    return Finding(
        path=path,
        # The same for an object alone, and for one in a List.
        key=".".join(step for step in path[len(subject.path) :] if isinstance(step, str)),
        message="the CPU policy of the kubelet is static: ACK forbids it on nodes that share their "
        "GPUs",
        help="leave the policy at none on nodes that share their GPUs",
        action=action,
    )


def _in_kubelet_configuration(subject: KubernetesObject) -> Iterator[Path]:
    if subject.object.kind == "KubeletConfiguration":
        if subject.raw.get(FIELD) == "static":
            yield (FIELD,)
    elif subject.kind_trait == KUBELET_CONFIG:
        for name, text in as_object(subject.raw.get("data")).items():
            if re.search(_STATIC_POLICY_PATTERN, as_text(text)):
                yield ("data", name)


def _in_pools_with_shared_cards(subject: KubernetesObject) -> Iterator[Path]:
    for settings in node_settings(subject):
        modes = {label.value for label in settings.labels if label.name == MODE_LABEL}
        if not modes.isdisjoint(SHARING_MODES):
            yield from (path for path, policy in settings.cpu_policies if policy == "static")


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(KUBELET_CONFIG | NODE_POOL,))
