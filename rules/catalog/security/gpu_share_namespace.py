"""A pod asks for a share of a GPU in a namespace whose pods may share none.

What it does
------------
Finds pods that ask for a card which software divides among several pods, by time-slicing, MPS or an
interceptor, in a namespace that the options do not choose. Whole cards and partitions of the
hardware, such as MIG devices, are for all namespaces. The rule is off by default; on and without
options, no namespace may share. What counts as a share:

- a resource that a profile knows as one, such as `nvidia.com/gpu.shared` or `aliyun.com/gpu-mem`;
- annotations by which a scheduler of the profile gives a part of a card, such as `gpu-fraction`;
- any GPU of a pod that selects nodes with shared cards, by `nvidia.com/gpu.sharing-strategy`,
  `nvidia.com/gpu.product`, `cloud.google.com/gke-gpu-sharing-strategy` or
  `cloud.google.com/gke-max-shared-clients-per-gpu`;
- a claim whose parameters share the device, where the claim or its template is known, also if no
  container uses it.

A node can share its cards under their usual name, as NVIDIA's device plugin does without
`renameByDefault`, and a pod that does not select it can get such a card. Nothing in the pod shows
that: use `renameByDefault`, or a taint of the nodes with shared cards.

The linter knows the labels of the Namespaces in the manifests of the same run, and says nothing
about the others if `labels` is set. `gpuward audit` knows those of the cluster, and so does the
webhook with `clusterInventory.namespaces`. At admission a namespace whose labels are not known has
none: one that was created in the last two minutes, or any without that setting.

Why it matters
--------------
Time-slicing isolates neither memory nor faults, and with MPS a fatal fault of one client reaches
all clients of the card: one tenant can exhaust or end the work of another. Only whole cards and
partitions of the hardware keep tenants apart.

Whoever may change the labels of a namespace decides whether they choose it.

Options
-------
`namespaces`: the names of the namespaces whose pods may share GPUs, in which `*` stands for any
characters.

`labels`: labels of such namespaces, as `key`, or as `key=value` with `*` in the value.

References
----------
- https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-sharing.html
- https://docs.nvidia.com/deploy/mps/index.html
- https://github.com/NVIDIA/k8s-device-plugin#shared-access-to-gpus
- https://cloud.google.com/kubernetes-engine/docs/how-to/timesharing-gpus
"""

from rules.base.json_values import as_text, display
from rules.base.traits import GPU
from rules.gpu.claims import (
    CLAIM_NAME_FIELD,
    CLAIMS_FIELD,
    TEMPLATE_NAME_FIELD,
    declared_claims,
    used_claims,
)
from rules.gpu.devices import devices, requests_gpu
from rules.in_process.components import is_chosen_namespace
from rules.in_process.expression import REQUEST, all_of, any_of, choose, not_, string, text
from rules.in_process.statement import CONTAINER, Statement, shown
from rules.inventory.inventory import Inventory, ResourceClaim, ResourceClaimTemplate
from rules.placement.selected_cards import selects_shared_cards
from rules.profile.namespaces import words_of_unchosen
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

ADVICE = (
    "ask for a whole card or a MIG device, or ask whoever keeps the policy to list the namespace"
)
_BY_ANNOTATIONS = "annotations"


def check(pod: Pod, context: Context) -> Findings:
    """Yield each container that asks for a share, or the claims of the pod, if it may have none."""
    namespace = pod.object.namespace
    more = words_of_unchosen(namespace, context)
    if more is None:
        return
    where = f"the namespace {display(namespace)}" if namespace else "its namespace"
    for container in pod.containers:
        share = _share(container, pod, context)
        if share:
            yield Finding(
                path=container.resources_path,
                key="share",
                message=f"{_message(container, share, where)}{more}",
                container=container,
                help=ADVICE,
            )
    unused = _names_of_claims(pod) - used_claims(pod)
    name = _shared_claim(unused, pod, context.inventory)
    if name:
        yield Finding(
            path=(*pod.path, CLAIMS_FIELD),
            key="claims",
            message=f"{_message('the pod', f'the claim {display(name)}', where)}{more}: the claim "
            "takes it even though no container uses it",
            help=ADVICE,
        )


def _message(container: object, share: object, where: object) -> str:
    return (
        f"{container} asks for a share of a GPU by {share} in {where}, whose pods may have whole "
        "cards and partitions only"
    )


def _share(container: Container, pod: Pod, context: Context) -> str:
    """Return in words by what the container asks for a share; empty if it does not."""
    for name, device in sorted(devices(container).items()):
        if device.is_requested and device.resource.sharing == "share":
            return display(name)
    if container.is_fraction_target:
        return _BY_ANNOTATIONS
    if not requests_gpu(container):
        return ""
    used = frozenset(as_text(claim.get("name")) for _, claim in container.claims)
    name = _shared_claim(used, pod, context.inventory)
    if name:
        return f"the claim {display(name)}"
    return "the nodes that the pod selects" if selects_shared_cards(pod) else ""


def _names_of_claims(pod: Pod) -> frozenset[str]:
    return frozenset(as_text(entry.get("name")) for _, entry in declared_claims(pod))


def _shared_claim(names: frozenset[str], pod: Pod, inventory: Inventory) -> str:
    """Return the first of the claims with `names` whose parameters share the device."""
    home = pod.object.namespace
    for _, entry in declared_claims(pod):
        name = as_text(entry.get("name"))
        claim = inventory.find(ResourceClaim, as_text(entry.get(CLAIM_NAME_FIELD)), home)
        template = inventory.find(
            ResourceClaimTemplate, as_text(entry.get(TEMPLATE_NAME_FIELD)), home
        )
        if name in names and any(known and known.is_shared for known in (claim, template)):
            return name
    return ""


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    shares = CONTAINER.devices.filter(lambda d: d.facts[0].sharing == "share").map(
        lambda d: string(d.name)
    )
    has_share = shares.size() > 0
    where = all_of(
        any_of(has_share, CONTAINER.isTarget), not_(is_chosen_namespace("gpu-share-namespace"))
    )
    share = choose((has_share, shown(shares.min())), otherwise=_BY_ANNOTATIONS)
    namespace = shown(REQUEST.namespace)
    message = text(_message(CONTAINER.text, share, f"the namespace {namespace}"))
    without = "it looks neither at the nodes that the pod selects nor at the parameters of claims"
    return (Statement("container", where, message, ADVICE, leaves_out=without),)


RULE = define_rule(
    check,
    action=Action.OFF,
    since="0.1",
    needs=(GPU,),
    options={"namespaces": (), "labels": ()},
)
