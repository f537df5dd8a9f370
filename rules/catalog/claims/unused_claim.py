"""A pod declares a resource claim that none of its containers uses.

What it does
------------
Finds entries of `spec.resourceClaims` whose name is in `resources.claims` of no container.

Why it matters
--------------
Devices are allocated for the pod, so nobody else can have them, and no container gets them: a GPU
stays idle as long as the pod runs. Often the container was meant to name the claim, and runs on the
CPU.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
"""

from rules.base.json_values import as_text, display
from rules.base.traits import RESOURCE_CLAIMS_OF_POD
from rules.gpu.claims import CLAIMS_FIELD, declared_claims, used_claims
from rules.objects.container import POD_SPEC
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

FAULT = "no container uses the resource claim "
CONSEQUENCE = " of the pod: its devices are allocated, and stay idle"
ADVICE = "add it to resources.claims of the container that needs it, or remove it"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each claim of the pod that no container uses."""
    if pod.layout is not POD_SPEC or pod.is_partial:
        return
    used = used_claims(pod)
    names = {as_text(entry.get("name")): index for index, entry in declared_claims(pod)}
    for name, index in names.items():
        if name and name not in used:
            yield Finding(
                path=(*pod.path, CLAIMS_FIELD, index, "name"),
                key=f"{CLAIMS_FIELD}.{name}",
                message=f"{FAULT}{display(name)}{CONSEQUENCE}",
                help=ADVICE,
            )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(RESOURCE_CLAIMS_OF_POD,))
