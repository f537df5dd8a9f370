"""A pod that asks for no GPU may run on GPU nodes.

What it does
------------
Keeps pods that ask for no GPU off the nodes that have some. The rule is off by default and in every
bundle, because it changes where ordinary pods run: [docs/exclusion.md](../exclusion.md) says how to
turn it on without stopping the agents of GPU nodes. GPU nodes are those with the labels that the
profiles of the policy name in `affinities`, such as `nvidia.com/gpu.present=true`, or those with
the labels in the option `nodes`.

Finds a pod without a GPU whose node selector and required node affinity also allow such nodes; a
toleration of their taints, or of every taint, also if an update adds it; a pod that selects GPU
nodes, by any label that a profile knows or by a name; and a running pod on a GPU node, as far as
the nodes are known.

A pod asks for a GPU by a resource, a claim, or an annotation for a part of a GPU, of any scheduler
that gpuward knows and that the pod names: no other one places it. A claim counts unless it is known
that none of its classes is of GPUs. A resource that may be a GPU by a name that no profile has
counts as well, unless it is among `other_devices`; those of network cards, FPGAs, virtual machines
and the like, such as `rdma/hca` and `vpc.amazonaws.com/efa`, never count. Of a pod that names its
node itself only resources count that a profile knows, because the kubelet ignores those that its
node does not have.

Not evaluated: the components of the GPU platform, which the profile lists; and kinds that keep
placement elsewhere, such as Volcano's Job and Knative's Service, until their pods are created. For
other agents of GPU nodes, such as log shippers, write exceptions: `gpuward init` lists those that
run.

Why it matters
--------------
A container can reach a GPU without asking for one in ways that nothing in the pod shows: an image
that sets the variable itself, a key of a ConfigMap, a volume that leads to a device. All of them
need one thing: that the pod runs on a node with a GPU. And pods without a GPU take CPU and memory
from those that need a GPU, whose cards then stay idle.

Fix safety
----------
The fix is made by default, as the administrator has asked for it. It adds to the required node
affinity what excludes GPU nodes: the terms are alternatives, so each of them gets it. It removes
tolerations of the taints of GPU nodes. In place of a toleration of every taint it writes those of
the taints that Kubernetes itself sets, so such a pod no longer tolerates other taints of the
cluster. With the action `warn` the fix is made as well, unless the policy says `fix: false`.

Where the nodes are known, the title of the fix says if none of them is left for the pod.

There is no fix if the pod selects GPU nodes itself: it is refused. A DaemonSet whose template is
not fixed makes pods for GPU nodes too, which stay Pending: with `workloads: fix` in the policy the
template of a new one is fixed, and later updates keep that.

The label must be on a GPU node when it joins the cluster. `nvidia.com/gpu.present` comes later,
with NVIDIA's GPU feature discovery: until then the taint alone keeps pods away. Choose a label of
the node pool, with which its nodes join.

Options
-------
`nodes`: the labels of GPU nodes, in place of those that the profiles name, such as
`cloud.google.com/gke-accelerator` or `pool=gpu`. A node with one of them is a GPU node.

`other_devices`: resources that are no GPUs, as names or patterns such as `example.com/dongle` or
`squat.ai/*`. List those that GPU nodes offer: who asks for one of them could run there otherwise.
A device class is `deviceclass.resource.kubernetes.io/` and its name. Where all GPUs are resources
of device plugins, list `deviceclass.resource.kubernetes.io/*`: then a claim counts only if it is
known that it is for GPUs. Nothing in a pod says what its claims are for. So with that pattern API
servers that evaluate the rule themselves count no claim at all, and of classes only those that a
profile knows: they keep such a pod off GPU nodes.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity
- https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
"""

import json
from collections.abc import Mapping
from typing import Any

from rules.base.json_values import Path, as_objects, as_text, display
from rules.base.traits import EVERY_POD
from rules.gpu.claims import ANY_CLASS, asks_for_any_gpu, asks_for_known_gpu
from rules.in_process.expression import OBJECT, REQUEST, all_of, choose, get, not_, string, text
from rules.in_process.statement import Mutation, Statement, shown
from rules.placement.exclusion import (
    demanded_label,
    exclusion_edits,
    fully_excluded_nodes,
    label_texts,
    labels_of_gpu_nodes,
    narrowing_edits,
    wide_tolerations,
)
from rules.placement.gpu_nodes import gpu_node_label, may_be_placed_elsewhere
from rules.placement.named_nodes import gpu_node, named_gpu_node
from rules.placement.node_affinity import NODE_AFFINITY, has_writable_affinity
from rules.profile.profile import Profile
from rules.rule import Action, Context, Finding, Findings, Fix, Pod, define_rule

_WAYS_OUT = "ask for a GPU, or ask whoever keeps the policy for an exception"
_EVERY_TAINT = "every taint"
_ADVICE_FOR_WILDCARD = "tolerate the taints that Kubernetes sets by their names"
_ADVICE_FOR_TAINT = "remove the toleration"


def check(pod: Pod, context: Context) -> Findings:
    """Yield what lets a pod without a GPU run on GPU nodes."""
    if _asks_for_gpu(pod, context):
        return
    labels = labels_of_gpu_nodes(pod.profile, context.options["nodes"])
    if not labels:
        return
    if pod.exists:
        yield from _findings_of_running_pod(pod, context)
    elif not may_be_placed_elsewhere(pod) and has_writable_affinity(pod):
        if selection := _selection_of_gpu_nodes(pod, context):
            path, by = selection
            yield Finding(path=path, key="selection", message=_selecting(by), help=_WAYS_OUT)
            return
        if edits := exclusion_edits(pod, labels):
            message, advice, title = _words(
                label_texts(labels), fully_excluded_nodes(pod, labels, context.inventory)
            )
            existing = NODE_AFFINITY if pod.spec.get("affinity") is not None else NODE_AFFINITY[:1]
            yield Finding(
                path=(*pod.path, *existing),
                key="affinity",
                message=message,
                help=advice,
                fix=Fix(title, edits, safe=True),
            )
        yield from _findings_of_tolerations(pod)


def _words(known: str, nodes: str) -> tuple[str, str, str]:
    """Return the message, the advice, and the title of the fix that excludes the labels `known`.

    `nodes` are words for the nodes, of which the fix leaves none; empty if it may leave some.
    """
    title = f"exclude nodes with {known}"
    if not nodes:
        return _open(known), _advice_to_exclude(known), title
    pending = f"stays Pending until there is another node; {_WAYS_OUT}"
    return (
        f"{_open(known)}; none of {nodes} is left for it without these",
        f"excluded from them by a required node affinity, it {pending}",
        f"{title}: none of {nodes} is left for the pod, which {pending}",
    )


def _asks_for_gpu(pod: Pod, context: Context) -> bool:
    """Return whether the pod asks for a GPU, for what may be one, or has a claim for one.

    Of a new pod that names its node no scheduler looks at the request, and the kubelet ignores
    resources that the node does not have. So only a GPU that a profile knows counts.
    """
    if pod.spec.get("nodeName") and not pod.exists:
        return any(map(asks_for_known_gpu, pod.containers))
    return asks_for_any_gpu(
        pod,
        context.inventory,
        context.options["other_devices"],
        has_placeholders=context.operation is None,
    )


def _findings_of_running_pod(pod: Pod, context: Context) -> Findings:
    if context.operation is not None:
        yield from _findings_of_new_tolerations(pod, context)
        return
    name = as_text(pod.spec.get("nodeName"))
    node = gpu_node(name, context.inventory)
    if node is not None and not pod.has_terminated:
        yield Finding(
            path=(*pod.path, "nodeName"),
            key="node",
            message=f"the pod asks for no GPU and runs on the node {display(name)}, which has "
            f"{display(node.shown_by)}",
            help="keep it off GPU nodes, or write an exception if it is an agent of the node; "
            "`gpuward gpus --without-gpu` says why it is there and what it takes",
        )


def _findings_of_new_tolerations(pod: Pod, context: Context) -> Findings:
    """Yield the tolerations that an update adds; it may add them while no node is chosen."""
    old = as_objects((context.old_spec or {}).get("tolerations"))
    before = {json.dumps(toleration, sort_keys=True) for _, toleration in old}
    for index, toleration in wide_tolerations(pod):
        if json.dumps(toleration, sort_keys=True) not in before:
            key = as_text(toleration.get("key"))
            taint = _one_taint(display(key)) if key else _EVERY_TAINT
            yield Finding(
                path=(*pod.path, "tolerations", index),
                key="tolerations",
                message=_tolerating(taint),
                help=_ADVICE_FOR_TAINT,
            )


def _selection_of_gpu_nodes(pod: Pod, context: Context) -> tuple[Path, object] | None:
    """Return the place where the pod selects GPU nodes, and by what; None if it does not."""
    if label := gpu_node_label(pod):
        return _path_of_placement(pod), display(label)
    if demanded := demanded_label(pod, labels_of_gpu_nodes(pod.profile, context.options["nodes"])):
        path, key = demanded
        return path, display(key)
    node = named_gpu_node(pod, context)
    return (_path_of_placement(pod), f"the name {display(node.name)}") if node else None


def _path_of_placement(pod: Pod) -> Path:
    fields = ("nodeName", "nodeSelector", "affinity", "topologySpreadConstraints")
    return (*pod.path, next((field for field in fields if pod.spec.get(field)), "affinity"))


def _findings_of_tolerations(pod: Pod) -> Findings:
    wide = wide_tolerations(pod)
    if not wide:
        return
    if all(as_text(toleration.get("key")) for _, toleration in wide):
        taint, advice = _one_taint(display(as_text(wide[0][1]["key"]))), _ADVICE_FOR_TAINT
    else:
        taint, advice = _EVERY_TAINT, _ADVICE_FOR_WILDCARD
    yield Finding(
        path=(*pod.path, "tolerations", wide[0][0]),
        key="tolerations",
        message=_tolerating(taint),
        help=advice,
        fix=Fix(advice, tuple(narrowing_edits(pod, wide)), safe=True),
    )


def _selecting(by: object) -> str:
    return f"the pod asks for no GPU and selects GPU nodes by {by}"


def _open(labels: str) -> str:
    return f"the pod asks for no GPU and may run on GPU nodes, which have {labels}"


def _advice_to_exclude(labels: str) -> str:
    return f"exclude {labels} by a required node affinity"


def _tolerating(taint: object) -> str:
    return f"the pod asks for no GPU and tolerates {taint} of GPU nodes"


def _one_taint(key: object) -> str:
    return f"the taint {key}"


def in_process(options: Mapping[str, Any], profile: Profile) -> tuple[Statement, ...]:
    """`check` in CEL."""
    from rules.in_process import exclusion  # noqa: PLC0415  # no linter needs it

    labels = labels_of_gpu_nodes(profile, options["nodes"])
    if not labels:
        return ()
    known = label_texts(labels)
    words = exclusion.exclusion_words(labels, profile, options["other_devices"])
    wide = OBJECT.wideTolerations
    is_wildcard = wide.exists(lambda t: get(t, "key", "") == "")
    taint = choose(
        (is_wildcard, _EVERY_TAINT), otherwise=text(_one_taint(shown(string(wide[0].key))))
    )
    advice = choose((is_wildcard, _ADVICE_FOR_WILDCARD), otherwise=_ADVICE_FOR_TAINT)
    is_new = REQUEST.operation == "CREATE"
    label = OBJECT.selectedGpuLabel
    omitted = "nodes are known by their labels alone"
    is_unknown_gpu = ANY_CLASS not in options["other_devices"]
    counted = "a claim counts" if is_unknown_gpu else "no claim and no class of a cluster counts"
    omitted += f", and {counted} as one for a GPU"

    def adds(key: str) -> Statement:
        added = OBJECT.addedTolerations.exists(lambda t: get(t, "key", "") == key)
        taint = _one_taint(display(key)) if key else _EVERY_TAINT
        is_added = all_of(not_(OBJECT.mayNeedGpu), added)
        return Statement("pod", is_added, text(_tolerating(taint)), _ADVICE_FOR_TAINT)

    selects = all_of(is_new, not_(OBJECT.mayNeedGpu), label != "")
    return (
        Statement(
            "pod",
            selects,
            text(_selecting(shown(label))),
            _WAYS_OUT,
            words=words,
            leaves_out=omitted,
        ),
        Statement(
            "pod",
            all_of(is_new, OBJECT.mayBeKeptOff, OBJECT.mayRunOnGpuNodes),
            _open(known),
            _advice_to_exclude(known),
        ),
        Statement(
            "pod",
            all_of(is_new, OBJECT.mayBeKeptOff, wide.size() > 0),
            text(_tolerating(taint)),
            advice,
        ),
        *map(adds, ("", *sorted({taint.key for taint in profile.taints}))),
    )


def in_process_fix(options: Mapping[str, Any], profile: Profile) -> tuple[Mutation, ...]:
    """The fix in CEL."""
    from rules.in_process import exclusion  # noqa: PLC0415  # no linter needs it

    labels = labels_of_gpu_nodes(profile, options["nodes"])
    if not labels:
        return ()
    words = exclusion.exclusion_words(labels, profile, options["other_devices"])
    may_run = all_of(OBJECT.mayBeKeptOff, OBJECT.mayRunOnGpuNodes)
    tolerates = all_of(OBJECT.mayBeKeptOff, OBJECT.wideTolerations.size() > 0)
    return (
        Mutation("pod", may_run, exclusion.exclusion_change(labels), words=words),
        Mutation("pod", tolerates, exclusion.narrowing_change(profile), words=words),
    )


RULE = define_rule(
    check,
    action=Action.OFF,
    since="0.1",
    needs=(EVERY_POD,),
    options={"nodes": (), "other_devices": ()},
)
