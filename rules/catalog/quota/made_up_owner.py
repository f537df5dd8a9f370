"""A user says that a controller made a pod, so that no queue pays for its GPUs.

What it does
------------
Finds, at admission, pods that request a GPU and name a controller in `ownerReferences`, if the user
of the request is none: a person, or a service account of the pod's own namespace that names a
workload of Kubernetes itself, such as a Job. Of an update only a controller that it adds counts.
The linter does not know who creates a pod, and says nothing.

Why it matters
--------------
Queues count the pods of a Job by the Job. Kueue leaves out a pod whose controller it manages, and
compares only the name and the uid of that controller: a pod that names a Job of its namespace runs
at once, and no quota counts its GPUs. The Job need not ask for any.

References
----------
- kubernetes-sigs/kueue, `pkg/controller/jobframework/reconciler.go`
  (`FindAncestorJobManagedByKueue`)
- https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import as_objects, as_text, display
from rules.base.traits import GPU
from rules.finding import sha256_hex
from rules.gpu.components import SYSTEM_USER_PREFIX, is_controller
from rules.gpu.devices import pod_requests_gpu
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

FIELD = "ownerReferences"
# Their pods are made by controllers in kube-system.
KUBERNETES_OWNER_KINDS = frozenset(
    {"DaemonSet", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"}
)


def check(pod: Pod, context: Context) -> Findings:
    """Yield the owner that the user of the request cannot be."""
    user = context.user or ""
    is_pod = context.operation is not None and pod.object.kind == "Pod"
    if not (user and is_pod and pod_requests_gpu(pod)) or is_controller(user, pod.object.namespace):
        return
    is_of_namespace = user.startswith(SYSTEM_USER_PREFIX)
    for index, owner in as_objects(pod.metadata.get(FIELD)):
        kind = as_text(owner.get("kind"))
        # Programs in a pod may make pods that belong to theirs, as Spark's driver does.
        is_forged = kind in KUBERNETES_OWNER_KINDS or not is_of_namespace
        if owner.get("controller") is True and is_forged:
            yield Finding(
                path=(*pod.metadata_path, FIELD, index),
                key=_key(kind, owner, context),
                message=f"the pod names a {display(kind)} as its controller, and its user is no "
                "controller: a queue may count the pod as a part of that, and then no quota "
                "counts its GPUs",
                help="remove the owner reference",
            )


def _key(kind: str, owner: Mapping[str, Any], context: Context) -> str:
    """The key of the finding. In an existing pod, another controller is another finding."""
    if context.operation == "CREATE":
        return f"{FIELD}.{kind}"
    named = "/".join(as_text(owner.get(field)) for field in ("apiVersion", "name", "uid"))
    return f"{FIELD}.{kind}={sha256_hex(named)[:16]}"


in_process = "it concerns every GPU pod, and would cost each of them more than it finds"


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(GPU,))
