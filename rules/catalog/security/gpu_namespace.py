"""A pod asks for a GPU in a namespace that may have none.

What it does
------------
Finds pods that request a GPU, or part of one, in a namespace that the options do not choose. The
rule is off by default, and a policy that turns it on must set one of them. A resource claim counts,
unless it is known that none of its classes is of GPUs, and also if no container uses it: Kubernetes
allocates it all the same. It says nothing about a manifest that names no namespace, nor about the
components of the GPU platform.

The linter knows the labels of the Namespaces in the manifests of the same run, and says nothing
about the others if `labels` is set. `gpuward audit` knows those of the cluster, and so does the
webhook with `clusterInventory.namespaces`. At admission a namespace whose labels are not known has
none: one that was created in the last two minutes, or any without that setting.

Why it matters
--------------
A quota limits GPUs in the namespaces that have one. In every other namespace, a user who may create
pods gets as many GPUs as there are. A list of namespaces closes those that were forgotten.

Whoever may change the labels of a namespace decides whether they choose it.

Options
-------
`namespaces`: the names of the namespaces whose pods may have GPUs, in which `*` stands for any
characters.

`labels`: labels of such namespaces, as `key`, or as `key=value` with `*` in the value.

References
----------
- https://github.com/deckhouse/deckhouse/pull/22757
- https://kubernetes.io/docs/concepts/policy/resource-quotas/
"""

from rules.base.json_values import as_text, display
from rules.base.traits import GPU
from rules.gpu.claims import (
    CLAIMS_FIELD,
    OTHER_VENDOR,
    declared_claims,
    may_be_for_gpus,
    may_get_gpus,
    used_claims,
)
from rules.in_process.components import is_chosen_namespace
from rules.in_process.expression import (
    OBJECT,
    REQUEST,
    Expression,
    all_of,
    any_of,
    get,
    not_,
    string,
    text,
)
from rules.in_process.statement import CONTAINER, Statement, option, shown
from rules.profile.namespaces import words_of_unchosen
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

ADVICE = "use a namespace for GPU work, or ask whoever keeps the policy to list this one"


def check(pod: Pod, context: Context) -> Findings:
    """Yield each container that asks for a GPU, or the claims of the pod, if it may have none."""
    if not (context.options["namespaces"] or context.options["labels"]):
        return
    namespace = pod.object.namespace
    more = words_of_unchosen(namespace, context)
    if more is None:
        return
    for container in pod.containers:
        if may_get_gpus(container, pod, context.inventory):
            yield Finding(
                path=container.resources_path,
                key="namespace",
                message=f"{_message(container, display(namespace))}{more}",
                container=container,
                help=ADVICE,
            )
    used = used_claims(pod)
    for _, entry in declared_claims(pod):
        name = as_text(entry.get("name"))
        if name not in used and may_be_for_gpus(entry, pod, context.inventory):
            yield Finding(
                path=(*pod.path, CLAIMS_FIELD),
                key="claims",
                message=f"{_message_about_claim(display(name), display(namespace))}{more}",
                help=ADVICE,
            )
            return  # one finding is about all of them


def _message(container: object, namespace: object) -> str:
    return f"{container} asks for a GPU in the namespace {namespace}, whose pods may have none"


def _message_about_claim(name: object, namespace: object) -> str:
    return (
        f"the pod has the claim {name} in the namespace {namespace}, whose pods may have no GPU: "
        "the claim takes one even though no container uses it"
    )


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL. A claim counts, whose classes are those of other objects."""
    names, labels = (option("gpu-namespace", word) for word in ("namespaces", "labels"))
    is_set = any_of(names.size() > 0, labels.size() > 0)
    asks = any_of(
        CONTAINER.isTarget,
        CONTAINER.hasClaims,
        CONTAINER.vendors.exists(lambda v: v != OTHER_VENDOR),
    )
    message = text(_message(CONTAINER.text, shown(REQUEST.namespace)))
    is_closed = all_of(is_set, not_(is_chosen_namespace("gpu-namespace")))
    unused = OBJECT.unusedClaims
    about_claim = text(_message_about_claim(shown(unused[0]), shown(REQUEST.namespace)))
    return (
        Statement("container", all_of(asks, is_closed), message, ADVICE),
        Statement(
            "pod",
            all_of(unused.size() > 0, is_closed),
            about_claim,
            ADVICE,
            words={"unusedClaims": _unused_claims()},
        ),
    )


def _unused_claims() -> Expression:
    """The names of the claims of the pod that no container uses, in CEL."""

    def is_used(claim: Expression) -> Expression:
        return OBJECT.base.exists(
            lambda b: get(b.raw, "resources.claims", []).exists(lambda u: u.name == claim)
        )

    names = get(OBJECT.spec, CLAIMS_FIELD, []).map(lambda r: string(r.name))
    return names.filter(lambda n: not_(is_used(n)))


RULE = define_rule(
    check,
    action=Action.OFF,
    since="0.1",
    needs=(GPU,),
    options={"namespaces": (), "labels": ()},
)
