"""Programs that start processes on GPUs, and the options that tell them on how many."""

from typing import NamedTuple


class Launcher(NamedTuple):
    """A program that starts processes on GPUs.

    - `starts`: how it is started: each a word, or two. Without any, its options alone show it.
    - `image`: the name of an image whose entry point it is.
    - `sizes`: options whose product is the number of GPUs, each with its spellings.
    - `unclear`: options and words beside which that number is not certain.
    - `uses_all`: whether a GPU beyond that number stays idle.
    - `spans_pods`: whether the GPUs may be those of several pods.
    - `is_server`: whether it answers requests once it has loaded a model.
    """

    name: str
    starts: tuple[tuple[str, ...], ...]
    sizes: tuple[tuple[str, ...], ...]
    unclear: tuple[str, ...] = ()
    image: str = ""
    uses_all: bool = True
    spans_pods: bool = False
    is_server: bool = False


LAUNCHERS = (
    Launcher(
        "vLLM",
        starts=(
            ("vllm", "serve"),
            ("vllm.entrypoints.openai.api_server",),
            ("vllm.entrypoints.api_server",),
        ),
        image="vllm-openai",
        sizes=(("--tensor-parallel-size", "-tp"), ("--pipeline-parallel-size", "-pp")),
        unclear=(
            *("--distributed-executor-backend", "--nnodes", "--headless", "--config", "-n"),
            *("--prefill-context-parallel-size", "-pcp", "-dp", "-dpn", "-dpl", "-dpa"),
        ),
        spans_pods=True,
        is_server=True,
    ),
    Launcher(
        "SGLang",
        starts=(("sglang.launch_server",), ("sglang", "serve")),
        sizes=(
            ("--tp-size", "--tp", "--tensor-parallel-size"),
            ("--pp-size", "--pp", "--pipeline-parallel-size"),
        ),
        unclear=("--nnodes", "--node-rank", "--dist-init-addr", "--dp", "--dp-size", "--config"),
        spans_pods=True,
        is_server=True,
    ),
    Launcher(
        "Text Generation Inference",
        starts=(("text-generation-launcher",),),
        image="text-generation-inference",
        sizes=(("--num-shard",),),
        is_server=True,
    ),
    Launcher(
        "TensorRT-LLM",
        starts=(("trtllm-serve",),),
        sizes=(("--tp-size",), ("--pp-size",)),
        unclear=(
            *("--cp-size", "--cluster-size", "--gpus-per-node", "trtllm-llmapi-launch"),
            *("--extra-llm-api-options", "--config", "disaggregated", "disaggregated_mpi_worker"),
        ),
        spans_pods=True,
        is_server=True,
    ),
    Launcher(
        "LMDeploy",
        starts=(("lmdeploy", "serve"),),
        sizes=(("--tp",),),
        unclear=("--dp", "--cp", "--nnodes", "--node-rank", "--proxy-url"),
        spans_pods=True,
        is_server=True,
    ),
    # A process may work with several GPUs, but not with a part of one.
    Launcher(
        "torchrun",
        starts=(("torchrun",), ("torch.distributed.run",), ("torch.distributed.launch",)),
        sizes=(("--nproc-per-node",),),
        uses_all=False,
    ),
    # `--num-processes` counts those of all machines.
    Launcher(
        "Accelerate",
        starts=(("accelerate", "launch"), ("accelerate.commands.launch",)),
        sizes=(("--num-processes",),),
        unclear=(
            *("--num-machines", "--machine-rank", "--main-process-ip", "--config-file"),
            *("--cpu", "--tpu", "--use-xpu", "--mps"),
        ),
        uses_all=False,
    ),
    Launcher(
        "DeepSpeed",
        starts=(("deepspeed",),),
        sizes=(("--num-gpus",),),
        unclear=("--hostfile", "-H", "--include", "-i", "--exclude", "-e", "--num-nodes"),
    ),
)
# Programs of one's own with its Trainer take the option from LightningCLI or from Hydra. It counts
# the GPUs of a machine.
LIGHTNING = Launcher(
    "PyTorch Lightning",
    starts=(),
    sizes=(("trainer.devices", "--trainer.devices"),),
    unclear=(
        "--trainer.accelerator",
        *(f"trainer.accelerator={kind}" for kind in ("cpu", "tpu", "hpu", "mps")),
    ),
)
