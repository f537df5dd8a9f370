"""A GPU pod does not state the CPU or the memory that a quota of its namespace counts.

What it does
------------
Finds containers of pods that request GPUs without a request or a limit of CPU or memory, where a
ResourceQuota of the namespace counts it, if the quota is among the manifests of the same run. A
LimitRange of the same run that gives a default counts as well. Quotas with scopes are not compared,
because they do not concern every pod, nor are pods with `resources` of their own.

Why it matters
--------------
The API server refuses such a pod. A quota that counts CPU or memory requires every container to
state it, also init containers and sidecars. A Deployment or a Job is created without an error, and
waits for pods that never come: only its events say why.

References
----------
- https://kubernetes.io/docs/concepts/policy/resource-quotas/
- Kubernetes, `Constraints` in `pkg/quota/v1/evaluator/core/pods.go`
"""

from rules.base.json_values import display
from rules.base.traits import GPU, KNOWN_QUOTAS
from rules.inventory.inventory import LimitRange, ResourceQuota
from rules.objects.container import POD_SPEC
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

# The keys that the API server requires of every container, and the field and name they stand for.
FIELD_AND_RESOURCE_BY_KEY = {
    **{key: ("requests", key.removeprefix("requests.")) for key in ("cpu", "memory")},
    **{f"{f}.{name}": (f, name) for f in ("requests", "limits") for name in ("cpu", "memory")},
}


def check(pod: Pod, context: Context) -> Findings:
    """Yield each amount that a container must state."""
    if pod.layout is not POD_SPEC or pod.is_partial or pod.exists or pod.spec.get("resources"):
        return
    namespace = pod.object.namespace
    quotas = context.inventory.all_in(ResourceQuota, namespace)
    required = {
        FIELD_AND_RESOURCE_BY_KEY[key]: name
        for name, quota in quotas.items()
        if not quota.scopes
        for key in FIELD_AND_RESOURCE_BY_KEY.keys() & quota.hard.keys()
    }
    if not required or context.inventory.lacks_some(LimitRange, namespace):
        return
    ranges = context.inventory.all_in(LimitRange, namespace).values()
    given = {
        "limits": {name for known in ranges for name in known.limits},
        "requests": {name for known in ranges for name in known.requests},
    }
    for container in pod.containers:
        for (field, resource), quota in sorted(required.items()):
            if resource not in given[field] and not _states_amount(container, field, resource):
                yield _finding(container, field, resource, quota)


def _states_amount(container: Container, field: str, resource: str) -> bool:
    """Return whether the container states the amount, or cannot. A limit counts as a request."""
    if container.role == "ephemeral":
        return True
    return resource in container.limits or (field == "requests" and resource in container.requests)


def _finding(container: Container, field: str, resource: str, quota: str) -> Finding:
    path = container.resources_path  # as far as it exists, and one step more
    if container.resources:
        path = (*path, field, resource) if field in container.resources else (*path, field)
    return Finding(
        path=path,
        key=f"{field}.{resource}",
        message=(
            f"{container} states no {resource} in {field}, which the quota {display(quota)} of its "
            "namespace counts: the API server refuses such a pod"
        ),
        container=container,
        help=f"write the {resource} that it needs into resources.{field}",
    )


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(GPU, KNOWN_QUOTAS), needs_resources=True
)
