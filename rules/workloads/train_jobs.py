"""The pods of a TrainJob, whose templates are in another object: its training runtime.

As Kubeflow Trainer 2.2 merges both. Where another version merges them in another way, the pods are
not known.

Source: kubeflow/trainer `pkg/runtime/core/trainingruntime.go` (`newRuntimeInfo`,
`mergeRuntimePatches`), `pkg/runtime/framework/plugins/jobset/builder.go` and
`pkg/runtime/framework/plugins/mpi/mpi.go` (`EnforceMLPolicy`)
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rules.base.json_values import Path, as_object, as_objects, as_text, count_values
from rules.inventory.inventory import ClusterTrainingRuntime, Inventory, TrainingRuntime
from rules.objects.container import POD_SPEC
from rules.objects.object_ref import ObjectRef
from rules.objects.pod import Pod
from rules.profile.profile import Profile
from rules.workloads.strategic_merge import strategic_merge

_GROUP = "trainer.kubeflow.org"
_RUNTIME_KINDS: Mapping[str, type[TrainingRuntime]] = {
    kind.__name__: kind for kind in (TrainingRuntime, ClusterTrainingRuntime)
}
_DEFAULT_KIND = ClusterTrainingRuntime.__name__
# Until Trainer 2.1 these changed the templates, each in a way of its own.
_OLD_PATCHES = ("podSpecOverrides", "podTemplateOverrides")
_STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
_TRAINER_STEP, _TRAINER_CONTAINER = "trainer", "node"
# The nodes of MPI, beside which its launcher is the trainer.
_MPI_NODES = "node"
# Step of a TrainJob -> the field of its `initializer`. The container has the name of the step.
_INITIALIZERS = {"dataset-initializer": "dataset", "model-initializer": "model"}
_VALUES_IN_A_STEP = 50  # that are copied or compared
_MERGED = POD_SPEC._replace(is_merged=True)


def merged_pods(
    raw: Mapping[str, Any],
    owner: ObjectRef,
    profile: Profile,
    base: Path,
    inventory: Inventory,
    own: Sequence[Pod],
    take_steps: Callable[[int], None],
) -> Iterator[Pod]:
    """The pods of the TrainJob `raw`, which is at `base`; none if its runtime is not known.

    `own` are those that the TrainJob itself has parts of. `take_steps` is called with the steps of
    the work before it is done.
    """
    spec = as_object(raw.get("spec"))
    reference = as_object(spec.get("runtimeRef"))
    runtime = _runtime(reference, owner.namespace, inventory)
    if runtime is None or any(field in spec for field in _OLD_PATCHES):
        return
    kind, name = type(runtime).__name__, as_text(reference.get("name"))
    home = owner.namespace if kind != _DEFAULT_KIND else ""
    referred = ObjectRef(kind, _GROUP, home, name)
    patches = _patches_by_job(spec)
    given = count_values([spec.get("trainer") or {}, spec.get("initializer") or {}])
    for job in runtime.jobs:
        name = as_text(job.get("name"))
        template = as_object(job.get("template"))
        size = count_values(template)
        for patch in patches.get(name, ()):
            size += count_values(patch)
            take_steps(1 + size // _VALUES_IN_A_STEP)
            template = as_object(strategic_merge(template, patch))
        containers = as_objects(_spec_of_pods(template).get("containers"))
        take_steps(1 + (size + given * len(containers)) // _VALUES_IN_A_STEP)
        pod_spec = _merged_spec(name, template, spec, runtime.policy)
        if pod_spec is None:
            continue
        path = (*base, "spec", "runtimeRef", name)
        pod = Pod(
            owner,
            profile,
            spec=(pod_spec, path),
            metadata=(_metadata_of_pods(template), (*path, "metadata")),
            stable_path=f"spec.runtimeRef.{name}",
            layout=_MERGED,
        )
        pod.holder = _with_count(name, template, spec, runtime.policy)
        of_runtime = as_object(job.get("template"))
        part = Pod(
            referred,
            profile,
            spec=(_spec_of_pods(of_runtime), path),
            metadata=(_metadata_of_pods(of_runtime), (*path, "metadata")),
            stable_path="",
        )
        pod.parts = (part, *own)
        yield pod


def _runtime(
    reference: Mapping[str, Any], namespace: str, inventory: Inventory
) -> TrainingRuntime | None:
    if as_text(reference.get("apiGroup") or _GROUP) != _GROUP:
        return None
    kind = _RUNTIME_KINDS.get(as_text(reference.get("kind") or _DEFAULT_KIND))
    if kind is None:
        return None
    home = None if kind is ClusterTrainingRuntime else namespace
    return inventory.find(kind, as_text(reference.get("name")), home)


def _pod_template(template: Mapping[str, Any]) -> Mapping[str, Any]:
    return as_object(as_object(template.get("spec")).get("template"))


def _spec_of_pods(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """The spec of the pods of the Job that `template` is for."""
    return as_object(_pod_template(template).get("spec"))


def _metadata_of_pods(template: Mapping[str, Any]) -> Mapping[str, Any]:
    return as_object(_pod_template(template).get("metadata"))


def _step(template: Mapping[str, Any]) -> str:
    """The step of a TrainJob that the Job with this template is."""
    labels = as_object(as_object(template.get("metadata")).get("labels"))
    return as_text(labels.get(_STEP_LABEL))


def _patches_by_job(spec: Mapping[str, Any]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """The patches of a TrainJob with this `spec` for the template of each Job, in their order."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for _, patch in as_objects(spec.get("runtimePatches")):
        made = as_object(as_object(patch.get("trainingRuntimeSpec")).get("template"))
        for _, changed in as_objects(as_object(made.get("spec")).get("replicatedJobs")):
            template = as_object(changed.get("template"))
            found.setdefault(as_text(changed.get("name")), []).append(template)
    return found


def _merged_spec(
    name: str, template: Mapping[str, Any], spec: Mapping[str, Any], policy: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """The spec of the pods of the Job `name`; None if it is not certain."""
    pods, step = _spec_of_pods(template), _step(template)
    if step in _INITIALIZERS:
        initializer = as_object(as_object(spec.get("initializer")).get(_INITIALIZERS[step]))
        return _with_container(pods, step, {"env": initializer.get("env")})
    trainer = as_object(spec.get("trainer"))
    fields: dict[str, Any] = {}
    if step == _TRAINER_STEP:
        fields = {field: trainer.get(field) for field in ("image", "command", "args")}
    elif not (as_object(policy.get("mpi")).get("runLauncherAsNode") and name == _MPI_NODES):
        return pods
    fields["env"] = trainer.get("env")
    wanted = as_object(trainer.get("resourcesPerNode"))
    for _, container in as_objects(pods.get("containers")):
        if container.get("name") == _TRAINER_CONTAINER and wanted:
            fields["resources"] = _resources(as_object(container.get("resources")), wanted)
            if fields["resources"] is None:
                return None
    return _with_container(pods, _TRAINER_CONTAINER, fields)


def _with_container(
    pods: Mapping[str, Any], name: str, fields: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The spec `pods` with the `fields` that are given in the container called `name`."""
    given = {field: value for field, value in fields.items() if value is not None}
    return {
        **pods,
        "containers": [
            _with_fields(container, given) if container.get("name") == name else container
            for _, container in as_objects(pods.get("containers"))
        ],
    }


def _with_fields(container: Mapping[str, Any], fields: Mapping[str, Any]) -> Mapping[str, Any]:
    made = {**container, **fields}
    if "env" in fields:
        made["env"] = strategic_merge(container.get("env"), fields["env"], "env")
    return made


def _resources(own: Mapping[str, Any], wanted: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The resources of a container with those of the TrainJob; None if they are not certain.

    Trainer 2.2 replaces all of them, and since its pull request 3602 only those of the same name.
    """
    if own.get("claims"):
        return None
    made: dict[str, Any] = {}
    for field in ("limits", "requests"):
        before, after = as_object(own.get(field)), as_object(wanted.get(field))
        if any("/" in name for name in before.keys() - after.keys()):
            return None
        if before or after:
            made[field] = {**before, **after}
    return made


def _with_count(
    name: str, template: Mapping[str, Any], spec: Mapping[str, Any], policy: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The spec of the Job `name`, with the number of its pods."""
    job = as_object(template.get("spec"))
    wanted = as_object(spec.get("trainer")).get("numNodes")
    mpi = as_object(policy.get("mpi"))
    count = None
    if mpi and name == _MPI_NODES and type(wanted) is int:
        count = max(wanted - 1, 1) if mpi.get("runLauncherAsNode") else wanted
    elif _step(template) == _TRAINER_STEP:
        count = policy.get("numNodes", 1) if policy else None
        count = count if mpi or wanted is None else wanted
    return job if count is None else {**job, "parallelism": count, "completions": count}
