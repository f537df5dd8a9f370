"""A pod asks for a GPU in a namespace that may have none.

What it does
------------
Finds pods that request a GPU, or part of one, in a namespace that the option `namespaces` does not
list. The rule is off by default, and a policy that turns it on must set this option. A resource
claim counts, unless it is known that none of its classes is of GPUs. It says nothing about a
manifest that names no namespace, nor about the components of the GPU platform.

Why it matters
--------------
A quota limits GPUs in the namespaces that have one. In every other namespace, a user who may create
pods gets as many GPUs as there are. A list of namespaces closes those that were forgotten.

Options
-------
`namespaces`: the names of the namespaces whose pods may have GPUs, in which `*` stands for any
characters.

References
----------
- https://github.com/deckhouse/deckhouse/pull/22757
- https://kubernetes.io/docs/concepts/policy/resource-quotas/
"""

from rules.base.json_values import display
from rules.base.text_matching import matches_any
from rules.base.traits import GPU
from rules.gpu.claims import may_get_gpus
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule


def check(pod: Pod, context: Context) -> Findings:
    """Yield the first container that asks for a GPU, if the namespace may have none."""
    allowed, namespace = context.options["namespaces"], pod.object.namespace
    if not allowed or not namespace or matches_any(allowed, namespace):
        return
    for container in pod.containers:
        if may_get_gpus(container, pod, context.inventory):
            yield Finding(
                path=container.resources_path,
                key="namespace",
                message=f"{container} asks for a GPU in the namespace {display(namespace)}, whose "
                "pods may have none",
                container=container,
                help="use a namespace for GPU work, or ask whoever keeps the policy to list this "
                "one",
            )
            return


RULE = define_rule(check, action=Action.OFF, since="0.1", needs=(GPU,), options={"namespaces": ()})
