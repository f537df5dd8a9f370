"""Ray is not told of the GPUs that a claim brings.

What it does
------------
Finds groups of pods of KubeRay whose Ray container has GPUs by a resource claim alone, and whose
`rayStartParams` have no `num-gpus`. The claim, or its template, must be known: it is among the
manifests of the same run, or in the cluster.

Why it matters
--------------
KubeRay tells Ray how many GPUs a pod has by the limits of its Ray container. A claim is none of
them, so Ray counts no GPU: tasks and actors with `num_gpus` wait for ever, and the GPUs of the
claim stay idle.

References
----------
- https://github.com/ray-project/kuberay/issues/3527
- https://docs.ray.io/en/latest/cluster/kubernetes/user-guides/config.html
"""

from collections.abc import Iterator

from rules.base.json_values import as_object, as_text, display
from rules.base.traits import CLAIM_IN_CONTAINER, KNOWN_CLAIMS
from rules.gpu.claims import declared_claims, device_classes, is_gpu_class
from rules.gpu.devices import request_of
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

_RAY_GROUP = "ray.io"
_PARAMETERS_FIELD, _NUMBER_FIELD = "rayStartParams", "num-gpus"


def check(pod: Pod, context: Context) -> Findings:
    """Yield the Ray container if it has GPUs that Ray does not count."""
    ray = next((each for each in pod.containers if each.role == "app"), None)
    if pod.object.group != _RAY_GROUP or ray is None or pod.path[-1:] != ("spec",):
        return
    if _NUMBER_FIELD in as_object(pod.holder.get(_PARAMETERS_FIELD)) or request_of(ray).first_name:
        return
    name = next(_claims_of_gpus(ray, pod, context), None)
    if name is not None:
        has_parameters = isinstance(pod.holder.get(_PARAMETERS_FIELD), dict)
        yield Finding(
            path=(*pod.path[:-2], _PARAMETERS_FIELD, *((_NUMBER_FIELD,) if has_parameters else ())),
            key=_NUMBER_FIELD,
            message=f"{ray} has GPUs by the claim {display(name)}, and {_PARAMETERS_FIELD} have no "
            f"{_NUMBER_FIELD}: Ray counts none of them",
            container=ray,
            help=f"write {_NUMBER_FIELD} with the number of GPUs that the claim brings, as a text",
        )


def _claims_of_gpus(container: Container, pod: Pod, context: Context) -> Iterator[str]:
    """The names of the claims of the container that are known to be for GPUs."""
    used = {as_text(claim.get("name")) for _, claim in container.claims}
    for _, entry in declared_claims(pod):
        name = as_text(entry.get("name"))
        if name in used:
            classes = device_classes(entry, context.inventory, pod.object.namespace)
            if any(is_gpu_class(each, pod.profile, context.inventory) for each in classes):
                yield name


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(CLAIM_IN_CONTAINER, KNOWN_CLAIMS))
