"""A label of a node, or its value, is one that its GPU platform does not know.

What it does
------------
Checks the labels that decide how a node offers its GPUs, such as `ack.node.gpu.schedule`, on Nodes
and where new nodes get their labels: NodePools of Karpenter, configurations of kubeadm and eksctl,
InstanceGroups of kOps, Shoots of Gardener, ComputeClasses of GKE, and the node pools of Cluster API
(also on AWS, Azure and Google Cloud), Config Connector, Azure Service Operator, the AWS controller
for EKS, and Crossplane's provider for ACK; also in what
chooses nodes for pods: the `nodeLabels` of Kueue's ResourceFlavors, and the units of ACK's
ResourcePolicies. Finds values that the platform does not know: `cGPU` for `cgpu`, and labels that
differ from such a label by one letter, such as `ack.node.gpu.scheduler`. The `nodeModes` of a
profile list the labels and all their values.

Of labels that name models, such as `cloud.google.com/gke-accelerator` and Karpenter's
`instance-gpu-name`, the rule finds near misses of known values, as
[unknown-node-label-value](unknown-node-label-value.md) does: in what chooses nodes, in the
`requirements` by which a NodePool or a NodeOverlay of Karpenter chooses machines, and in the fields
that stand for such labels: `gpu.type`, `gpu.driverVersion` and `tpu.type` of the priorities of a
ComputeClass, and what names the card in a ContainerNodePool of Config Connector, an InstanceGroup
of kOps, a worker of Gardener, and a GCPMachineTemplate or GCPMachinePool of Cluster API
(`guestAccelerators` and their like). It compares the first 500 different names and the first 100
different values of an object: the one behind them is a finding.

Why it matters
--------------
Kubernetes compares values letter by letter and accepts every one. The platform does not set up the
mode of a misspelt value, and pods that select the right value do not find the node. The pods of a
flavor or a NodePool stay Pending if it chooses only by values that no node has; a NodeOverlay then
changes nothing. Of a ComputeClass, GKE passes to the next priority, and after the last one leaves
the pods Pending or gives them nodes without GPUs, as `whenUnsatisfiable` says.

References
----------
- https://www.alibabacloud.com/help/doc-detail/191140.html
- NVIDIA/k8s-device-plugin, `docs/gpu-feature-discovery/README.md`
- https://docs.cloud.google.com/kubernetes-engine/docs/reference/crds/computeclass
- https://karpenter.sh/docs/concepts/nodeoverlays/
"""

from rules.base.json_values import display
from rules.base.traits import NODE, NODE_CHOOSING_OBJECT, NODE_POOL
from rules.placement.node_labels import (
    FEWER_LABELS_ADVICE,
    FEWER_VALUES_ADVICE,
    MAX_COMPARED_LABELS,
    MAX_COMPARED_VALUES,
    NO_NODE,
    NodeLabel,
    advice_on_unknown_value,
    chosen_labels,
    misspelt_mode_label,
    node_labels,
)
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule


def check(subject: KubernetesObject, _context: Context) -> Findings:
    """Yield each label with an unknown value, once for each pool."""
    modes = subject.profile.node_modes
    reported: set[str] = set()
    compared: set[str] = set()
    advice_by_value: dict[tuple[str, str], str | None] = {}
    for label in node_labels(subject):
        key = f"{label.key}={label.value}"
        if key in reported:
            continue
        reported.add(key)
        if label.name not in compared and len(compared) == MAX_COMPARED_LABELS:
            yield _too_many_labels(label)
            break
        compared.add(label.name)
        if right := misspelt_mode_label(subject.profile, label.name):
            yield Finding(
                path=label.path,
                key=key,
                message=f"the node label {display(label.name)} is close to {display(right)}, and "
                "means nothing to the GPU platform",
                help=f"write {right}",
            )
        if label.name not in modes:
            continue
        chosen = (label.name, label.value)
        if chosen not in advice_by_value:
            if len(advice_by_value) == MAX_COMPARED_VALUES:
                yield _too_many(label)
                break
            advice_by_value[chosen] = advice_on_unknown_value(modes[label.name], label.value)
        advice = advice_by_value[chosen]
        if advice is None:
            continue
        yield Finding(
            path=label.path,
            key=key,
            message=f"the node label {label.name} is {display(label.value)}, a value that means "
            "nothing to the GPU platform",
            help=advice,
        )
    yield from _near_misses(subject)


def _near_misses(subject: KubernetesObject) -> Findings:
    from rules.profile.platforms.label_values import (  # noqa: PLC0415  # rarely needed
        LABELS,
        NearMiss,
        near_miss,
    )

    reported: set[str] = set()
    near_misses: dict[tuple[str, str], NearMiss | None] = {}
    for label in chosen_labels(subject):
        key = f"{label.key}={label.value}"
        if label.name not in LABELS or key in reported:
            continue
        reported.add(key)
        chosen = (label.name, label.value)
        if chosen not in near_misses:
            if len(near_misses) == MAX_COMPARED_VALUES:
                yield _too_many(label)
                return
            near_misses[chosen] = near_miss(label.name, label.value)
        found = near_misses[chosen]
        if found is None or found.may_be_of_users:
            continue
        yield Finding(
            path=label.path,
            key=key,
            message=f"{label.field or label.name} is {display(label.value)}, "
            f"{found.reason or NO_NODE}",
            help=found.advice,
        )


def _too_many_labels(label: NodeLabel) -> Finding:
    return Finding(
        path=label.path,
        key=label.key,
        message=f"there are more than {MAX_COMPARED_LABELS} labels with different names; "
        f"{display(label.name)} and those behind it are not checked",
        help=FEWER_LABELS_ADVICE,
    )


def _too_many(label: NodeLabel) -> Finding:
    return Finding(
        path=label.path,
        key=label.key,
        message=f"there are more than {MAX_COMPARED_VALUES} values of labels; this one of "
        f"{label.name} and those behind it are not checked",
        help=FEWER_VALUES_ADVICE,
    )


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(NODE | NODE_POOL | NODE_CHOOSING_OBJECT,)
)
