"""An outage of a GPU platform's webhook keeps system pods from being created.

What it does
------------
Checks the webhook configurations of gpuward, HAMi, KAI, Volcano, koordinator, Kueue, Slurm's
operator and NVSentinel, which it knows by the names of their entries, and no others. Finds an entry
for the creation of pods, or for their binding to nodes, with `failurePolicy: Fail`, or none, which
means the same, that is called for pods in `kube-system` or in the namespace of its own service. An
entry with `matchConditions`, or with an `objectSelector` that asks for a label, is not checked.
The webhook of NVIDIA's driver for claims is called for claims alone, which no system pod has.

Why it matters
--------------
While the webhook cannot be reached, API servers refuse every pod that it is called for. Without an
exclusion these are also the pods of the network, of DNS, and of the webhook itself, so a cluster
that loses them does not come back by itself. A webhook for the binding of pods keeps them Pending.

References
----------
- https://kubernetes.io/docs/concepts/cluster-administration/admission-webhooks-good-practices/
- https://github.com/volcano-sh/volcano/issues/2610
- https://github.com/Project-HAMi/HAMi/issues/160
- https://github.com/SlinkyProject/slurm-operator/issues/189
"""

from collections.abc import Mapping
from itertools import chain
from typing import Any

from rules.base.json_values import as_object, as_objects, as_text, display
from rules.base.traits import WEBHOOK_CONFIGURATION
from rules.gpu.components import (
    GPUWARD_WEBHOOKS,
    OTHER_WEBHOOKS,
    POD_RESOURCE_NAMES,
    SHARING_WEBHOOKS,
    core_resources_of_entry,
    kueue_webhook_entries,
    webhook_entries,
    webhook_entry_finding,
)
from rules.rule import Action, Context, Findings, KubernetesObject, define_rule

NAME_LABEL = "kubernetes.io/metadata.name"
# How a scheduler puts a pod on a node.
_BINDING_RESOURCES = frozenset({"pods/binding", "pods/*", "*/binding"})


def check(subject: KubernetesObject, context: Context) -> Findings:
    """Yield each entry whose outage blocks system pods."""
    entries = webhook_entries(
        subject, context, (*GPUWARD_WEBHOOKS, *SHARING_WEBHOOKS, *OTHER_WEBHOOKS)
    )
    for index, entry in chain(entries, kueue_webhook_entries(subject, context)):
        if as_text(entry.get("failurePolicy")) not in ("", "Fail") or entry.get("matchConditions"):
            continue
        what = _what_it_blocks(core_resources_of_entry(entry, "CREATE"))
        if not what or _needs_label(entry.get("objectSelector")):
            continue
        service = as_object(as_object(entry.get("clientConfig")).get("service"))
        own = as_text(service.get("namespace"))
        selector = as_object(entry.get("namespaceSelector"))
        namespaces = [
            n for n in dict.fromkeys(("kube-system", own)) if n and _selects_namespace(selector, n)
        ]
        if namespaces:
            called = f"is called for {what} in {' and '.join(map(display, namespaces))}"
            effect = "an outage keeps the cluster from starting"
            fault = f"has failurePolicy Fail and {called}: {effect}"
            advice = f"exclude them by {NAME_LABEL} in namespaceSelector"
            yield webhook_entry_finding(subject, index, "failurePolicy", fault, advice)


def _what_it_blocks(resources: set[str]) -> str:
    """Return what an entry called for the creation of `resources` blocks; empty if nothing."""
    if not POD_RESOURCE_NAMES.isdisjoint(resources):
        return "pods"
    return "" if _BINDING_RESOURCES.isdisjoint(resources) else "the binding of pods"


def _needs_label(selector: Any) -> bool:
    operators = {as_text(e.get("operator")) for e in _expressions(selector)}
    return bool(as_object(as_object(selector).get("matchLabels")) or operators & {"In", "Exists"})


def _selects_namespace(selector: Mapping[str, Any], namespace: str) -> bool:
    """Return whether the selector fits a namespace that has no other label than its name."""
    wanted = as_object(selector.get("matchLabels"))
    if any(key != NAME_LABEL or value != namespace for key, value in wanted.items()):
        return False
    return all(_expression_fits(expression, namespace) for expression in _expressions(selector))


def _expression_fits(expression: Mapping[str, Any], namespace: str) -> bool:
    operator, values = as_text(expression.get("operator")), expression.get("values")
    names_it = expression.get("key") == NAME_LABEL
    is_listed = names_it and isinstance(values, list) and namespace in values
    if operator == "In":
        return is_listed
    if operator == "NotIn":
        return not is_listed
    return names_it if operator == "Exists" else not names_it


def _expressions(selector: Any) -> list[Mapping[str, Any]]:
    return [e for _, e in as_objects(as_object(selector).get("matchExpressions"))]


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(WEBHOOK_CONFIGURATION,))
