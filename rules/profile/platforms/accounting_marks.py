"""The marks by which Kueue knows the pods that it counts: keys, scheduling gates and finalizers.

Facts of kubernetes-sigs/kueue pkg/controller/jobs/pod, pkg/controller/constants and pkg/constants.
"""

# Labels, annotations, gates and finalizers of Kueue begin with it.
KUEUE_PREFIX = "kueue.x-k8s.io/"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
ADMISSION_GATE = "kueue.x-k8s.io/admission"
# Kueue writes it into the template of a workload that it holds back, and gives its pods the gate.
SUSPENDING_PARENT_ANNOTATION = "kueue.x-k8s.io/pod-suspending-parent"
# Pods of a group with the same value count as copies of the first one. Kueue works the value out,
# and keeps one that is there.
ROLE_ANNOTATION = "kueue.x-k8s.io/role-hash"
# What users of Kueue decide, and may change while the pod exists: nothing is counted by these.
USERS_KEYS = frozenset(
    f"{KUEUE_PREFIX}{name}"
    for name in (
        *("priority-class", "retriable-in-group", "safe-to-forcefully-delete"),
        "max-exec-time-seconds",
    )
)
# By these labels a Job knows its pods, and Kueue counts pods by their Job. The controller lets go
# of a pod whose label changes, and makes another one.
JOB_LABELS = frozenset(
    {
        *("batch.kubernetes.io/controller-uid", "controller-uid"),
        *("batch.kubernetes.io/job-name", "job-name"),
    }
)


def is_mark(key: str) -> bool:
    """Return whether a label, an annotation, a gate or a finalizer is Kueue's own."""
    return key.startswith(KUEUE_PREFIX) and key not in USERS_KEYS
