"""A container uses a resource claim that the pod does not declare, or the same one twice.

What it does
------------
Compares `resources.claims` of every container with `spec.resourceClaims` of the pod. Finds names
that are not there, and entries of a container that name the same claim and request again.

Why it matters
--------------
The API server refuses the pod, for example because a name is misspelt. A Deployment or a Job is
refused as well, because its template is checked in the same way.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
- Kubernetes, `pkg/apis/core/validation/validation.go`
"""

from collections import Counter

from rules.base.json_values import as_text, display
from rules.base.traits import CLAIM_IN_CONTAINER
from rules.gpu.claims import CLAIMS_FIELD, declared_claims
from rules.objects.container import POD_SPEC
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each entry of a container that names no claim of the pod, or the same one again."""
    if pod.layout is not POD_SPEC or pod.is_partial:
        return
    declared = {as_text(entry.get("name")) for _, entry in declared_claims(pod)}
    for container in pod.containers:
        used = [(as_text(c.get("name")), as_text(c.get("request"))) for _, c in container.claims]
        last = {use: index for (index, _), use in zip(container.claims, used, strict=True)}
        for (name, request), times in Counter(used).items():
            if name in declared and times == 1:
                continue
            shown = display(f"{name}/{request}" if request else name)
            what = "more than once" if name in declared else f"that {CLAIMS_FIELD} of the pod lacks"
            advice = (
                "name it once"
                if name in declared
                else f"add it to {CLAIMS_FIELD}, or name one there"
            )
            yield Finding(
                path=(*container.resources_path, "claims", last[name, request]),
                key=f"claims.{name}/{request}",
                message=f"{container} uses the resource claim {shown} {what}",
                container=container,
                help=advice,
                api_refuses=True,
            )


in_process = "API servers refuse such pods and templates before they ask policies"


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(CLAIM_IN_CONTAINER,), needs_resources=True
)
