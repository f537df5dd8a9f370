"""Ray or Kubeflow's Trainer is not told of the GPUs that a claim brings.

What it does
------------
Finds groups of pods of KubeRay whose Ray container has GPUs by a resource claim alone, and whose
`rayStartParams` have no `num-gpus`. Finds runtimes of Kubeflow's Trainer for PyTorch whose
container `node` has GPUs by a claim alone, and more than one CPU. The claim, or its template, must
be known: it is among the manifests of the same run, or in the cluster. A runtime with a
`numProcPerNode` of its own, as older releases have it, is not found, nor is one for MPI.

Why it matters
--------------
KubeRay tells Ray how many GPUs a pod has by the limits of its Ray container. A claim is none of
them, so Ray counts no GPU: tasks and actors with `num_gpus` wait for ever, and the GPUs of the
claim stay idle. Trainer starts one process for each GPU in the resources of the container `node`.
Without any it starts one for each CPU, and those share the GPUs of the claim, or most have none.

References
----------
- https://github.com/ray-project/kuberay/issues/3527
- https://docs.ray.io/en/latest/cluster/kubernetes/user-guides/config.html
- https://github.com/kubeflow/trainer/pull/3540
- kubeflow/trainer, `pkg/runtime/framework/plugins/torch/torch.go`
"""

from collections.abc import Iterator

from rules.base.json_values import as_object, as_text, display
from rules.base.quantity import Quantity, parse
from rules.base.traits import CLAIM_IN_CONTAINER, KNOWN_CLAIMS
from rules.gpu.claims import declared_claims, device_classes, is_gpu_class
from rules.gpu.devices import request_of
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

_RAY = "ray.io"
_PARAMETERS_FIELD, _NUMBER_FIELD = "rayStartParams", "num-gpus"
_TRAINER = "trainer.kubeflow.org"
_TRAINER_CONTAINER = "node"
_PROCESSES = "numProcPerNode"


def check(pod: Pod, context: Context) -> Findings:
    """Yield the container whose GPUs its framework does not count."""
    if pod.path[-1:] != ("spec",):
        return
    if pod.object.group == _RAY:
        yield from _check_ray(pod, context)
    elif pod.object.group == _TRAINER:
        yield from _check_trainer(pod, context)


def _check_ray(pod: Pod, context: Context) -> Findings:
    ray = next((each for each in pod.containers if each.role == "app"), None)
    if ray is None or _NUMBER_FIELD in as_object(pod.holder.get(_PARAMETERS_FIELD)):
        return
    name = _claim_of_gpus(ray, pod, context)
    if name:
        has_parameters = isinstance(pod.holder.get(_PARAMETERS_FIELD), dict)
        yield Finding(
            path=(*pod.path[:-2], _PARAMETERS_FIELD, *((_NUMBER_FIELD,) if has_parameters else ())),
            key=_NUMBER_FIELD,
            message=f"{ray} has GPUs by the claim {display(name)}, and {_PARAMETERS_FIELD} have no "
            f"{_NUMBER_FIELD}: Ray counts none of them",
            container=ray,
            help=f"write {_NUMBER_FIELD} with the number of GPUs that the claim brings, as a text",
        )


def _check_trainer(pod: Pod, context: Context) -> Findings:
    torch = as_object(pod.owner_spec.get("mlPolicy")).get("torch")
    trainer = next((each for each in pod.containers if each.name == _TRAINER_CONTAINER), None)
    if not isinstance(torch, dict) or torch.get(_PROCESSES, "auto") != "auto" or trainer is None:
        return
    processes = _cpus(trainer)
    name = _claim_of_gpus(trainer, pod, context)
    if name and processes > 1:
        yield Finding(
            path=trainer.resources_path,
            key=_PROCESSES,
            message=f"{trainer} has GPUs by the claim {display(name)}, which Trainer does not "
            f"count: it starts {processes} processes, one for each CPU",
            container=trainer,
            help=f"set trainer.{_PROCESSES} in each TrainJob with this runtime, to the number of "
            "GPUs that the claim brings",
        )


def _cpus(container: Container) -> int:
    """Return how many CPUs Trainer counts, which are the requests if there are any."""
    for amounts in (container.requests, container.limits):
        amount = parse(amounts.get("cpu", 0))
        if isinstance(amount, Quantity) and amount.value > 0:
            return amount.value
    return 0


def _claim_of_gpus(container: Container, pod: Pod, context: Context) -> str:
    """The claim that is known to be for GPUs, of a container with no others; empty if none is."""
    return "" if request_of(container).first_name else next(_claims(container, pod, context), "")


def _claims(container: Container, pod: Pod, context: Context) -> Iterator[str]:
    used = {as_text(claim.get("name")) for _, claim in container.claims}
    for _, entry in declared_claims(pod):
        name = as_text(entry.get("name"))
        if name in used:
            classes = device_classes(entry, context.inventory, pod.object.namespace)
            if any(is_gpu_class(each, pod.profile, context.inventory) for each in classes):
                yield name


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(CLAIM_IN_CONTAINER, KNOWN_CLAIMS))
