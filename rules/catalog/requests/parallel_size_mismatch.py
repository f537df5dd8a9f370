"""A command works with more, or with fewer, GPUs than its container requests.

What it does
------------
Reads the options that tell a program how many GPUs to use, and finds containers that request
another number of whole GPUs:

- `--tensor-parallel-size` and `--pipeline-parallel-size` of vLLM, SGLang, TensorRT-LLM and
  LMDeploy, and `--num-shard` of Text Generation Inference, in all their spellings, also of vLLM and
  SGLang in Dynamo, and the variable `NUM_SHARD`;
- `NIM_TENSOR_PARALLEL_SIZE` and `NIM_PIPELINE_PARALLEL_SIZE` of NVIDIA NIM. DJL Serving starts as
  many workers as fit, so only an `OPTION_TENSOR_PARALLEL_DEGREE` above the GPUs is reported;
- `trainer.devices` of PyTorch Lightning, as LightningCLI, NeMo and other programs with Hydra take
  it, and `--num_gpus` of DeepSpeed;
- `--nproc-per-node` of torchrun, or `PET_NPROC_PER_NODE`, and `--num_processes` of Accelerate;
  `nprocPerNode` of a PyTorchJob and `numProcPerNode` of a TrainJob, from which they are set: of a
  TrainJob also beside the GPUs of its runtime, where that is known. Their processes may use several
  GPUs each, so only more processes than GPUs are reported;
- `--gpus` and `--num-gpus` of a Python program, of which only more than the GPUs are reported;
- `rayStartParams.num-gpus` of KubeRay, also where the pod asks for no GPU at all, and
  `parallelism.tensor` of KServe's LLMInferenceService whose pods do not work together, and
  `multiNode.parallelism.tensor` of a NIMService whose pods have fewer GPUs each.

A shell's `$NAME` and `${NAME}` stand for the variables of the container that have a literal value,
unless the script may set them.

It says nothing where the number is not certain: beside options for several machines, Ray or data
parallelism, in scripts that start several programs, with `CUDA_VISIBLE_DEVICES`, for values that
the manifest does not show, for AWS's Neuron devices, which have several cores each, for TPUs with
two devices a chip or of an unknown generation, and for launchers that a script only names: in
quotation marks, in a here-document, or behind `echo`, `printf`, `pip` or `which`. The pods of a
custom resource may work together, so of servers with tensor parallelism only fewer GPUs are
reported there, but for Dynamo's and NIM's, which say so by `multinode` and `multiNode`. Of a pod it
reads at most 100,000 characters, and of a container 5,000 words.

Why it matters
--------------
With fewer GPUs than the command wants, the program ends at its start, after the pod has waited for
its GPUs. With more, the others stay idle, and nobody else can have them.

References
----------
- https://docs.vllm.ai/en/stable/serving/parallelism_scaling.html
- https://docs.sglang.io/advanced_features/server_arguments.html
- https://docs.pytorch.org/docs/stable/elastic/run.html
- https://www.deepspeed.ai/getting-started/
- https://lightning.ai/docs/pytorch/stable/common/trainer.html
- https://huggingface.co/docs/text-generation-inference/reference/launcher
- https://huggingface.co/docs/accelerate/package_reference/cli
- https://docs.nvidia.com/nim/large-language-models/latest/reference/advanced-configuration.html
- deepjavalibrary/djl-serving, `serving/docs/lmi/deployment_guide/configurations.md`
- https://awsdocs-neuron.readthedocs-hosted.com/en/latest/about-neuron/arch/neuron-hardware/
- https://docs.ray.io/en/latest/cluster/kubernetes/user-guides/config.html
- https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/pytorch/
- kubeflow/training-operator, `pkg/controller.v1/pytorch/envvar.go`; kubeflow/trainer,
  `pkg/apis/trainer/v1alpha1/trainjob_types.go`
- https://kserve.github.io/website/docs/model-serving/generative-inference/llmisvc/llmisvc-overview
- https://docs.jax.dev/en/latest/_autosummary/jax.experimental.pallas.tpu.ChipVersion.html
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from rules.base.json_values import Path, as_object, as_text, display
from rules.base.traits import GPU_RESOURCE, RAY_GPUS
from rules.gpu.commands.launchers import ParallelSize, parallel_size
from rules.gpu.commands.of_containers import commands_of
from rules.gpu.devices import pod_requests_gpu, request_of, whole_gpus
from rules.relevance.traits import RAY_GPUS_OPTION, RAY_OPTIONS_FIELD
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

# A device of Inferentia2 and Trainium1 has two cores, one of Trainium2 eight.
_NEURON_PREFIX = "aws.amazon.com/neuron"
_TPU_RESOURCE = "google.com/tpu"
_TPU_LABEL = "cloud.google.com/gke-tpu-accelerator"
# Their chips are one device for JAX: they have one core, or two that work as one. Those of v2, v3
# and TPU7x are two.
_TPUS_WITH_ONE_DEVICE_A_CHIP = frozenset(
    {
        *("tpu-v4-podslice", "tpu-v5-lite-device", "tpu-v5-lite-podslice"),
        *("tpu-v5p-slice", "tpu-v6e-slice"),
    }
)

_RAY_GROUP = "ray.io"
_KSERVE_GROUP = "serving.kserve.io"
_MAX_DIGITS = 6  # of a number of GPUs
_ANY_NUMBER = 10**_MAX_DIGITS
_PYTORCH_JOB, _TRAIN_JOB = ("kubeflow.org", "PyTorchJob"), ("trainer.kubeflow.org", "TrainJob")
# What the operator gives its settings to.
_PYTORCH_CONTAINER, _TRAINER_CONTAINER = "pytorch", "node"
# Kinds that say of each of their pods whether it is one of several that work together
# (ai-dynamo/dynamo deploy/operator/api, NVIDIA/k8s-nim-operator api/apps/v1alpha1).
_DYNAMO_KINDS = frozenset(
    ("nvidia.com", kind) for kind in ("DynamoGraphDeployment", "DynamoComponentDeployment")
)
_NIM_KINDS = frozenset(("apps.nvidia.com", kind) for kind in ("NIMService", "NIMPipeline"))
# KServe gives its arguments to the container of this name.
_KSERVE_CONTAINER = "main"


class StatedSize(NamedTuple):
    """The number of GPUs of `container` that are used: from `min_gpus` to `max_gpus`.

    `text` is the field at `path` with its value, and `framework` the one that reads it.
    """

    framework: str
    text: str
    path: Path
    container: Container
    min_gpus: int
    max_gpus: int


def stated_size(pod: Pod) -> StatedSize | None:
    """Return the size that the object around `pod` states; None if none is certain."""
    place = pod.path[: -2 if pod.path[-1:] == ("spec",) else -1]
    if pod.object.group == _RAY_GROUP:
        return _ray_size(pod, place)
    if pod.object.group == _KSERVE_GROUP and pod.object.kind.startswith("LLMInferenceService"):
        return _kserve_size(pod, place)
    kind = (pod.object.group, pod.object.kind)
    if kind in _NIM_KINDS:
        return _nim_size(pod)
    if kind == _PYTORCH_JOB and "pytorchReplicaSpecs" in pod.path:
        job = pod.path[: pod.path.index("pytorchReplicaSpecs")]
        return _process_count(pod, pod.owner_spec, (*job, "nprocPerNode"))
    return _train_job_size(pod) if kind == _TRAIN_JOB else None


def _train_job_size(pod: Pod) -> StatedSize | None:
    if not pod.layout.is_merged:
        return _process_count(pod, pod.spec, (*pod.path, "numProcPerNode"))
    trainer = as_object(pod.owner_spec.get("trainer"))
    path = (*pod.owner_spec_path, "trainer", "numProcPerNode")
    is_trainer = any(each.name == _TRAINER_CONTAINER for each in pod.containers)
    return _process_count(pod, trainer, path) if is_trainer else None


def _process_count(pod: Pod, holder: Mapping[str, Any], path: Path) -> StatedSize | None:
    """Return how many processes the field at `path` of `holder` starts, each with a GPU or more."""
    number = _positive_number(holder.get(str(path[-1])))
    containers = [each for each in pod.containers if each.role == "app"]
    if not number or not containers:
        return None
    main = (_PYTORCH_CONTAINER, _TRAINER_CONTAINER)
    named = (each for each in containers if each.name in main)
    container = next(named, containers[0])
    return StatedSize("Kubeflow", f"{path[-1]}: {number}", path, container, number, _ANY_NUMBER)


def _ray_size(pod: Pod, place: Path) -> StatedSize | None:
    value = as_object(pod.holder.get(RAY_OPTIONS_FIELD)).get(RAY_GPUS_OPTION)
    gpus = _positive_number(value)
    containers = [each for each in pod.containers if each.role == "app"]
    if not gpus or not containers:  # a head with `num-gpus: "0"` takes no work
        return None
    path = (*place, RAY_OPTIONS_FIELD, RAY_GPUS_OPTION)
    return StatedSize("Ray", f"num-gpus: {gpus}", path, containers[0], gpus, gpus)


def _kserve_size(pod: Pod, place: Path) -> StatedSize | None:
    parallelism = as_object(pod.holder.get("parallelism"))
    tensor = _positive_number(parallelism.get("tensor"))
    main = next((each for each in pod.containers if each.name == _KSERVE_CONTAINER), None)
    if not tensor or main is None or "worker" in pod.holder:  # several pods work together
        return None
    most = tensor * _parallel_factor(parallelism, "pipeline")
    most *= max(_parallel_factor(parallelism, "data"), _parallel_factor(parallelism, "dataLocal"))
    path = (*place, "parallelism", "tensor")
    return StatedSize("vLLM", f"parallelism.tensor: {tensor}", path, main, tensor, most)


def _nim_size(pod: Pod) -> StatedSize | None:
    """Return the GPUs that each of the pods that work together needs at least.

    The operator makes a pod for each step of the pipeline, and starts `tensor` processes in it.
    Source: NVIDIA/k8s-nim-operator, `api/apps/v1alpha1/nimservice_types.go`, GetLWSSize.
    """
    settings = as_object(as_object(pod.holder.get("spec")).get("multiNode"))
    parallelism = as_object(settings.get("parallelism"))
    tensor = _positive_number(parallelism.get("tensor"))
    containers = [each for each in pod.containers if each.role == "app"]
    if not tensor or not containers:
        return None
    text = f"multiNode.parallelism.tensor: {tensor}"
    if pods := _positive_number(parallelism.get("pipeline")):
        text += f", pipeline: {pods}"
    path = (*pod.path, "multiNode", "parallelism", "tensor")
    return StatedSize("NIM", text, path, containers[0], tensor, _ANY_NUMBER)


def _parallel_factor(parallelism: Mapping[str, Any], field: str) -> int:
    return _positive_number(parallelism.get(field)) or 1


def _positive_number(value: Any) -> int:
    """The number that `value` is, also as a text; 0 for everything else."""
    if type(value) is int:
        return value if 0 < value < 10**_MAX_DIGITS else 0
    text = as_text(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else 0


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each container whose command certainly works with another number of GPUs."""
    for container, command in commands_of([c for c in pod.containers if whole_gpus(c)]):
        size = parallel_size(container, command)
        gpus = (
            whole_gpus(container) if size and _has_one_device_per_process(pod, container) else None
        )
        if gpus is None or size is None or size.gpus == gpus:
            continue
        if size.gpus > gpus and size.launcher.spans_pods and _may_span_pods(pod):
            continue
        if size.gpus > gpus or size.launcher.uses_all_gpus:
            yield _finding(container, size, gpus)
    stated = stated_size(pod)
    if stated is not None and (pod_requests_gpu(pod) or not _asks_for_unknown_device(pod)):
        yield from _findings_of_stated_size(stated)


def _asks_for_unknown_device(pod: Pod) -> bool:
    """Return whether the pod asks for an extended resource, which may stand for GPUs."""
    return any("/" in name for container in pod.containers for name in container.limits)


def _may_span_pods(pod: Pod) -> bool:
    """Return whether the pods of a group may work together, as those of a custom resource."""
    kind = (pod.object.group, pod.object.kind)
    if kind in _DYNAMO_KINDS:  # in its first version of a service, later of a component
        return "multinode" in pod.holder
    if kind in _NIM_KINDS:
        return "multiNode" in as_object(pod.holder.get("spec"))
    return not pod.is_final


def _findings_of_stated_size(stated: StatedSize) -> Findings:
    gpus = whole_gpus(stated.container)
    if gpus is None or stated.min_gpus <= gpus <= stated.max_gpus:
        return
    name = request_of(stated.container).first_name
    asked = f"{gpus} of {display(name)}" if name else "none"
    used, consequence = stated.max_gpus, "the rest stays idle"
    if gpus < stated.min_gpus:
        used = stated.min_gpus
        consequence = f"{stated.framework} counts on GPUs that it does not have"
    yield Finding(
        path=stated.path,
        key="parallel-size.stated",
        message=f"{stated.framework} is told to use {_gpus_words(used)} ({stated.text}), and "
        f"{stated.container} asks for {asked}: {consequence}",
        container=stated.container,
        help="write the same number in both",
    )


def _has_one_device_per_process(pod: Pod, container: Container) -> bool:
    """Return whether a process works with one of what `container` requests."""
    if any(name.startswith(_NEURON_PREFIX) for name in container.limits):
        return False
    generation = as_text(pod.node_selector.get(_TPU_LABEL))
    return _TPU_RESOURCE not in container.limits or generation in _TPUS_WITH_ONE_DEVICE_A_CHIP


def _finding(container: Container, size: ParallelSize, gpus: int) -> Finding:
    name = request_of(container).first_name
    too_few, too_many = "the program ends when it finds too few", "the rest stays idle"
    return Finding(
        path=size.path,
        key="parallel-size",
        message=f"{container} starts {size.launcher.name} on {_gpus_words(size.gpus)} "
        f"({size.options}) and asks for {gpus} of {display(name)}: "
        f"{too_few if size.gpus > gpus else too_many}",
        container=container,
        help="ask for as many GPUs as the command works with, or change its options",
    )


def _gpus_words(number: int) -> str:
    return "1 GPU" if number == 1 else f"{number} GPUs"


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(GPU_RESOURCE | RAY_GPUS,), needs_resources=True
)
