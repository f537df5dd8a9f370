"""A DeviceTaintRule taints every device of the cluster, or none.

What it does
------------
Finds DeviceTaintRules with an empty `deviceSelector`, which selects every device of every driver,
and those without the field. These select none, and up to Kubernetes 1.37.0 every device. A rule
with the effect `None` only shows what it would do, and is not reported.

Why it matters
--------------
With `NoExecute` Kubernetes ends every pod of the cluster that holds a device by a claim, at once.
With `NoSchedule` no claim is allocated any more. A rule without the field does nothing, while its
author believes that a broken device is out of use. Up to Kubernetes 1.37.0 it taints every device
for the scheduler, so that no claim is allocated, not even one with admin access; it ends no pod.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
- Kubernetes, `staging/src/k8s.io/api/resource/v1beta2/types.go`,
  `staging/src/k8s.io/dynamic-resource-allocation/resourceslice/tracker/tracker.go`
- https://github.com/kubernetes/kubernetes/issues/141620
- https://github.com/kubernetes/kubernetes/pull/141998
"""

from rules.base.json_values import as_object
from rules.base.traits import DEVICE_TAINT_RULE
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule

FIELD = "deviceSelector"
_CONSEQUENCES = {
    "NoExecute": "every pod that holds a device by a claim is ended",
    "NoSchedule": "no claim is allocated any more",
}


def check(taint_rule: KubernetesObject, _context: Context) -> Findings:
    """Yield the rule if it selects every device, or none."""
    spec = as_object(taint_rule.raw.get("spec"))
    consequence = _CONSEQUENCES.get(str(as_object(spec.get("taint")).get("effect")))
    if consequence is None or spec.get(FIELD):
        return
    is_empty = isinstance(spec.get(FIELD), dict)
    if is_empty:
        message = f"the empty {FIELD} selects every device of the cluster: {consequence}"
    else:
        message = (
            f"without {FIELD} the rule selects no device and does nothing; up to Kubernetes 1.37.0 "
            "it taints every device, and no claim is allocated any more"
        )
    yield Finding(
        path=(*taint_rule.path, "spec", FIELD),
        key=FIELD,
        message=message,
        help=f"write the driver, the pool or the device into {FIELD}",
    )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(DEVICE_TAINT_RULE,))
