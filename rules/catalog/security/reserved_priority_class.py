"""A pod that has to do with GPUs has a priority class of the platform.

What it does
------------
Finds pods that request a GPU, or select GPU nodes, and whose `priorityClassName` is
`system-node-critical` or `system-cluster-critical`. It refuses those that request a GPU, and warns
of those that only select GPU nodes.

Not reported: pods in the namespaces in which the profile lists components of the GPU platform, as
in `kube-system` and `gpu-operator`, and pods of DaemonSets that request no GPU: device plugins,
exporters, drivers and network agents have such a class for good reason.

Why it matters
--------------
When a pod finds no room, the scheduler evicts pods of lower priority, whatever their disruption
budgets say. With one of these classes, which every user of a namespace may name by default, a pod
takes the GPUs of any other user, in the middle of their work. At the same priority nobody would
be evicted.

Kubernetes' own way is a quota: [who may have which priority](../resilience.md#priority) has one
that refuses these classes to a namespace, also for pods that have nothing to do with GPUs, which
this rule does not see.

Options
-------
- `reserved`: priority classes that only the platform may use, as patterns in which `*` is any
  text. Add classes of your own whose value is above that of your users' classes.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
- https://kubernetes.io/docs/concepts/policy/resource-quotas/#limit-priority-class-consumption-by-default
- Kubernetes, `pkg/apis/scheduling/v1/helpers.go`
"""

from rules.base.json_values import as_text, display
from rules.base.text_matching import matches_any
from rules.base.traits import GPU_OR_NODE_CONSTRAINT, PRIORITY_CLASS
from rules.gpu.components import is_made_by_daemon_set
from rules.gpu.devices import pod_requests_gpu
from rules.in_process.expression import (
    OBJECT,
    POLICY,
    REQUEST,
    all_of,
    any_of,
    choose,
    get,
    not_,
    text,
)
from rules.in_process.statement import Statement, option, shown
from rules.placement.gpu_nodes import is_for_gpus
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

FIELD = "priorityClassName"
REQUESTS, SELECTS = "the pod asks for a GPU", "the pod is for GPU nodes"
EFFECT = ", which is the platform's: it evicts GPU pods of other users when it finds no room"
ADVICE = f"leave {FIELD} out, or name a class for users"


def check(pod: Pod, context: Context) -> Findings:
    """Yield the priority class of the pod if only the platform may use it."""
    name = as_text(pod.spec.get(FIELD))
    if not matches_any(context.options["reserved"], name) or not is_for_gpus(pod):
        return
    if pod.profile.components_in(pod.object.namespace):
        return
    requests = pod_requests_gpu(pod)
    if not requests and is_made_by_daemon_set(pod, context):
        return
    yield Finding(
        path=(*pod.path, FIELD),
        key=FIELD,
        message=_message(REQUESTS if requests else SELECTS, display(name)),
        help=ADVICE,
        action=Action.DENY if requests else Action.WARN,
    )


def _message(subject: object, name: object) -> str:
    return f"{subject} and has the {FIELD} {name}{EFFECT}"


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    name = get(OBJECT.spec, FIELD, "")
    is_component = POLICY.componentNamespaces.exists(lambda p: REQUEST.namespace.matches(p))
    subject = choose((OBJECT.requestsGpu, REQUESTS), otherwise=SELECTS)
    return (
        Statement(
            "pod",
            all_of(
                option("reserved-priority-class", "reserved").exists(lambda p: name.matches(p)),
                OBJECT.isForGpus,
                not_(is_component),
                any_of(OBJECT.requestsGpu, not_(OBJECT.isDaemon)),
            ),
            text(_message(subject, shown(name))),
            ADVICE,
            action=choose((OBJECT.requestsGpu, "deny"), otherwise="warn"),
        ),
    )


RULE = define_rule(
    check,
    action=Action.DENY,
    since="0.1",
    needs=(PRIORITY_CLASS, GPU_OR_NODE_CONSTRAINT),
    options={"reserved": ("system-cluster-critical", "system-node-critical")},
)
