"""With how many GPUs the command of a container works, by the options of known launchers.

Commands are often scripts. Only what one launcher is told once, on one machine, is certain; in
doubt the answer is None. Every function is linear in its input.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from math import prod
from typing import NamedTuple

from rules.base.json_values import Path
from rules.gpu.commands.of_containers import Command, expand_variables
from rules.gpu.images import image_name
from rules.objects.container import Container


class Launcher(NamedTuple):
    """A program that starts processes on GPUs.

    - `start_words`: how it is started: each a word, or two. Without any, its options alone show it.
    - `image`: the name of an image whose entry point it is.
    - `size_options`: options whose product is the number of GPUs, each with its spellings.
    - `size_variables`: the variables that set these, in the same order, each with its names. They
      show a launcher that cannot be told by how it is started.
    - `unclear_words`: options and words beside which that number is not certain.
    - `uses_all_gpus`: whether a GPU beyond that number stays idle.
    - `spans_pods`: whether the GPUs may be those of several pods.
    - `is_server`: whether it answers requests once it has loaded a model.
    """

    name: str
    start_words: tuple[tuple[str, ...], ...]
    size_options: tuple[tuple[str, ...], ...]
    unclear_words: tuple[str, ...] = ()
    image: str = ""
    size_variables: tuple[tuple[str, ...], ...] = ()
    uses_all_gpus: bool = True
    spans_pods: bool = False
    is_server: bool = False


LAUNCHERS = (
    Launcher(
        "vLLM",
        start_words=(
            ("vllm", "serve"),
            ("vllm.entrypoints.openai.api_server",),
            ("vllm.entrypoints.api_server",),
            ("dynamo.vllm",),
        ),
        image="vllm-openai",
        size_options=(("--tensor-parallel-size", "-tp"), ("--pipeline-parallel-size", "-pp")),
        unclear_words=(
            *("--distributed-executor-backend", "--nnodes", "--headless", "--config", "-n"),
            *("--prefill-context-parallel-size", "-pcp", "-dp", "-dpn", "-dpl", "-dpa"),
        ),
        spans_pods=True,
        is_server=True,
    ),
    Launcher(
        "SGLang",
        start_words=(("sglang.launch_server",), ("sglang", "serve"), ("dynamo.sglang",)),
        size_options=(
            ("--tp-size", "--tp", "--tensor-parallel-size"),
            ("--pp-size", "--pp", "--pipeline-parallel-size"),
        ),
        unclear_words=(
            "--nnodes",
            "--node-rank",
            "--dist-init-addr",
            "--dp",
            "--dp-size",
            "--config",
        ),
        spans_pods=True,
        is_server=True,
    ),
    Launcher(
        "Text Generation Inference",
        start_words=(("text-generation-launcher",),),
        image="text-generation-inference",
        size_options=(("--num-shard",),),
        size_variables=(("NUM_SHARD",),),
        is_server=True,
    ),
    Launcher(
        "TensorRT-LLM",
        start_words=(("trtllm-serve",),),
        size_options=(("--tp-size",), ("--pp-size",)),
        unclear_words=(
            *("--cp-size", "--cluster-size", "--gpus-per-node", "trtllm-llmapi-launch"),
            *("--extra-llm-api-options", "--config", "disaggregated", "disaggregated_mpi_worker"),
        ),
        spans_pods=True,
        is_server=True,
    ),
    Launcher(
        "LMDeploy",
        start_words=(("lmdeploy", "serve"),),
        size_options=(("--tp",),),
        unclear_words=("--dp", "--cp", "--nnodes", "--node-rank", "--proxy-url"),
        spans_pods=True,
        is_server=True,
    ),
    # A process may work with several GPUs, but not with a part of one.
    Launcher(
        "torchrun",
        start_words=(("torchrun",), ("torch.distributed.run",), ("torch.distributed.launch",)),
        size_options=(("--nproc-per-node",),),
        size_variables=(("PET_NPROC_PER_NODE",),),
        uses_all_gpus=False,
    ),
    # `--num-processes` counts those of all machines.
    Launcher(
        "Accelerate",
        start_words=(("accelerate", "launch"), ("accelerate.commands.launch",)),
        size_options=(("--num-processes",),),
        unclear_words=(
            *("--num-machines", "--machine-rank", "--main-process-ip", "--config-file"),
            *("--cpu", "--tpu", "--use-xpu", "--mps"),
        ),
        uses_all_gpus=False,
    ),
    Launcher(
        "DeepSpeed",
        start_words=(("deepspeed",),),
        size_options=(("--num-gpus",),),
        unclear_words=("--hostfile", "-H", "--include", "-i", "--exclude", "-e", "--num-nodes"),
    ),
)
# Images with a server that variables configure.
_LAUNCHERS_WITH_VARIABLES = (
    Launcher(
        "NVIDIA NIM",
        start_words=(),
        size_options=(),
        size_variables=(("NIM_TENSOR_PARALLEL_SIZE",), ("NIM_PIPELINE_PARALLEL_SIZE",)),
        unclear_words=(
            *("--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp", "--nnodes"),
            *("NIM_PASSTHROUGH_ARGS", "NIM_NUM_COMPUTE_NODES", "NIM_MULTI_NODE"),
        ),
        spans_pods=True,
    ),
    # It starts as many workers as fit.
    Launcher(
        "DJL Serving",
        start_words=(),
        size_options=(),
        size_variables=(
            ("OPTION_TENSOR_PARALLEL_DEGREE", "TENSOR_PARALLEL_DEGREE"),
            ("OPTION_PIPELINE_PARALLEL_DEGREE",),
        ),
        uses_all_gpus=False,
        spans_pods=True,
    ),
)
# Programs of one's own with its Trainer take the option from LightningCLI or from Hydra. It counts
# the GPUs of a machine.
LIGHTNING = Launcher(
    "PyTorch Lightning",
    start_words=(),
    size_options=(("trainer.devices", "--trainer.devices"),),
    unclear_words=(
        "--trainer.accelerator",
        *(f"trainer.accelerator={kind}" for kind in ("cpu", "tpu", "hpu", "mps")),
    ),
)
# Programs of one's own, which most often call the number of GPUs of a machine so.
PYTHON_PROGRAM = Launcher(
    "a Python program",
    start_words=(),
    size_options=(("--gpus", "--num-gpus"),),
    unclear_words=(
        *("--nnodes", "--num-nodes", "--nodes", "--num-machines", "--machine-rank", "--node-rank"),
        *("docker", "podman", "nerdctl"),
    ),
    uses_all_gpus=False,
    spans_pods=True,
)
_PYTHON = "python"  # also with a version behind it


# Digits of the largest number that is taken for one of GPUs.
_MAX_DIGITS = 6


class CommandWord(NamedTuple):
    """A word of a command.

    - `number`: the index of the entry of `command` and `args` that it is in.
    - `is_mention`: whether it may only be part of a text, as in an argument of `echo`.
    - `option`: the option that the word names, without a value; empty if it names none.
    """

    text: str
    number: int
    is_mention: bool
    option: str


class ParallelSize(NamedTuple):
    """`gpus` is how many GPUs `launcher` works with, as `options` say, at `path`."""

    launcher: Launcher
    gpus: int
    options: str
    path: Path


# Launchers that an image starts by itself, by the name of the image.
LAUNCHERS_BY_IMAGE = {launcher.image: launcher for launcher in LAUNCHERS if launcher.image}
_LAUNCHERS_BY_FIRST_WORD: dict[str, list[tuple[Launcher, tuple[str, ...]]]] = {}
for _launcher in LAUNCHERS:
    for _first, *_second in _launcher.start_words:
        _LAUNCHERS_BY_FIRST_WORD.setdefault(_first, []).append((_launcher, tuple(_second)))
_LIGHTNING_OPTIONS = frozenset(LIGHTNING.size_options[0])
_PYTHON_OPTIONS = frozenset(PYTHON_PROGRAM.size_options[0])
# One of them is in every command of interest.
LAUNCHER_MARKS = (*_LAUNCHERS_BY_FIRST_WORD, LIGHTNING.size_options[0][0], _PYTHON)
# One of them is in every command that says with how many GPUs it works.
_SIZE_MARKS = frozenset(
    name
    for launcher in (*LAUNCHERS, LIGHTNING, PYTHON_PROGRAM)
    for names in launcher.size_options
    for name in names
)
# A container with one of them may be told in it with how many GPUs to work.
SIZE_VARIABLES = frozenset(
    name
    for launcher in (*LAUNCHERS, *_LAUNCHERS_WITH_VARIABLES)
    for names in launcher.size_variables
    for name in names
)
# Of a command; one that has more is a program, and to read it would take long.
_MAX_WORDS = 5000
_SHELLS = frozenset({"sh", "bash", "ash", "dash", "zsh"})
_SHELL_REFERENCE_PATTERN = r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?-[^{}]*)?\})"
# What may set variables of a shell.
_WORDS_THAT_SET = frozenset({"source", ".", "eval", "read"})
# Beside these words a command starts several programs, or one on several machines.
_UNCLEAR_WORDS = frozenset({"for", "while", "until", "mpirun", "srun", "ssh", "xargs", "parallel"})
_MASK_VARIABLE = "CUDA_VISIBLE_DEVICES"
# One of them is in every other word that makes a command unclear.
_UNCLEAR_MARKS = ("ray", "&", "#", "<<", _MASK_VARIABLE)


def parallel_size(container: Container, command: Command) -> ParallelSize | None:
    """Return how many GPUs the `command` of `container` works with; None in doubt."""
    has_variable = not SIZE_VARIABLES.isdisjoint(container.env)
    if not has_variable and not (_may_state_size(command) and _may_start(container, command)):
        return None
    words = _words_of_command(command)
    texts = [word.text for word in words]
    started = (
        list(_named_launchers(container, words))
        or list(_lightning_by_options(words))
        or list(_python_by_options(words))
        or [(one, False) for one in _LAUNCHERS_WITH_VARIABLES if _sets_size(container, one)]
    )
    is_certain = len(started) == 1 and not started[0][1]
    if not is_certain or _MASK_VARIABLE in container.env or _are_unclear(texts):
        return None
    launcher = started[0][0]
    stated = _stated_sizes(container, command, launcher, words)
    everything = (*texts, *(word.option for word in words), *container.env)
    if any(text.startswith("--data-parallel") for text in texts) or not (
        frozenset(launcher.unclear_words).isdisjoint(everything)
    ):
        return None
    if not stated:
        return None
    gpus = prod(size for size, *_ in stated)
    return ParallelSize(launcher, gpus, " and ".join(text for _, text, _ in stated), stated[0][2])


def _stated_sizes(
    container: Container, command: Command, launcher: Launcher, words: Sequence[CommandWord]
) -> list[tuple[int, str, Path]]:
    """Each size that `launcher` is told, as it is written, and where; none in doubt."""
    sizes: list[tuple[int, str, Path]] = []
    for options, variables in zip_longest(
        launcher.size_options, launcher.size_variables, fillvalue=()
    ):
        stated = [
            (value, f"{name} {{}}", command.path(number))
            for name, value, number in _options_named(words, options)
        ]
        # An option wins over its variable.
        set_in = [] if stated else [name for name in variables if name in container.env]
        stated += [
            (container.env_value(name) or "", f"{name}={{}}", container.env_path(name))
            for name in set_in
        ]
        if len(stated) > 1:
            return []
        for value, text, path in stated:
            size = _value_in_shell(container, command, words, value)
            if size is None or not (size.isascii() and size.isdigit() and len(size) <= _MAX_DIGITS):
                return []
            sizes.append((int(size), text.format(size), path))
    return sizes


def _value_in_shell(
    container: Container, command: Command, words: Sequence[CommandWord], value: str
) -> str | None:
    """`value` with the values of variables of the container; None if it is not known.

    A shell knows them as `$NAME` and `${NAME}`, unless the script may set them itself.
    """
    reference = re.fullmatch(_SHELL_REFERENCE_PATTERN, value)
    if reference is None:
        return expand_variables(container, value)
    if not command.texts or command.texts[0].rpartition("/")[2] not in _SHELLS:
        return None
    name = reference[1] or reference[2]
    for word in words:
        if word.text in _WORDS_THAT_SET or word.text.partition("=")[0] == name:
            return None
    found = container.env_value(name) or ""
    return None if "$" in found else found


def _sets_size(container: Container, launcher: Launcher) -> bool:
    return any(name in container.env for names in launcher.size_variables for name in names)


def started_program(container: Container, command: Command) -> Launcher | None:
    """The one known program that the `command` of `container` starts; None in doubt."""
    if not _may_start(container, command):
        return None
    started = list(_named_launchers(container, _words_of_command(command)))
    return started[0][0] if len(started) == 1 and not started[0][1] else None


def _words_of_command(command: Command) -> list[CommandWord]:
    """The words of `command`; none if it has too many."""
    from rules.gpu.commands.scripts import script_words  # noqa: PLC0415  # few commands name a launcher

    words = [
        CommandWord(word, number, is_mention, _option_name(word))
        for number, text in enumerate(command.texts)
        for word, is_mention in script_words(text)
    ]
    return words if len(words) <= _MAX_WORDS else []


def _may_start(container: Container, command: Command) -> bool:
    """Return whether a launcher is named anywhere: cheaper than to look at every word."""
    whole = "\n".join(command.texts)
    for mark in LAUNCHER_MARKS:
        if mark in whole:
            return True
    return image_name(container.image) in LAUNCHERS_BY_IMAGE


def _may_state_size(command: Command) -> bool:
    """Return whether an option with a number of GPUs is named anywhere, as cheaply."""
    if not command.texts:
        return False
    whole = "\n".join(command.texts).replace("_", "-")
    return any(mark in whole for mark in _SIZE_MARKS)


def _named_launchers(
    container: Container, words: Sequence[CommandWord]
) -> Iterator[tuple[Launcher, bool]]:
    """Each launcher that is named, and whether it is a mention."""
    if not container.raw.get("command") and image_name(container.image) in LAUNCHERS_BY_IMAGE:
        yield LAUNCHERS_BY_IMAGE[image_name(container.image)], False
    for index, word in enumerate(words):
        for launcher, second in _LAUNCHERS_BY_FIRST_WORD.get(word.text.rpartition("/")[2], ()):
            following = words[index + 1 : index + 1 + len(second)]
            if tuple(text for text, *_ in following) == second:
                yield launcher, word.is_mention


def _lightning_by_options(words: Iterable[CommandWord]) -> Iterator[tuple[Launcher, bool]]:
    """Lightning for each word that sets its number of devices, and whether it is a mention."""
    for word in words:
        if word.option in _LIGHTNING_OPTIONS:
            yield LIGHTNING, word.is_mention


def _python_by_options(words: Iterable[CommandWord]) -> Iterator[tuple[Launcher, bool]]:
    """A program for each time that Python is started, and whether it is a mention."""
    if any(word.option in _PYTHON_OPTIONS for word in words):
        for word in words:
            if word.text.rpartition("/")[2].startswith(_PYTHON):
                yield PYTHON_PROGRAM, word.is_mention


def _are_unclear(words: Sequence[str]) -> bool:
    """Return whether one of `words` stands for several programs, or for text that is no command."""
    if not _UNCLEAR_WORDS.isdisjoint(words):
        return True
    whole = "\n".join(words)
    return any(mark in whole for mark in _UNCLEAR_MARKS) and any(map(_is_unclear, words))


def _is_unclear(word: str) -> bool:
    in_background = word.endswith("&") and word != "&&"
    in_document = "<<" in word
    return in_background or in_document or "ray" in word or word.startswith(("#", _MASK_VARIABLE))


def _options_named(
    words: Sequence[CommandWord], names: Iterable[str]
) -> Iterator[tuple[str, str, int]]:
    """Each option of `words` that is called one of `names`, its value, and its text's number.

    The value of one that may be part of a text is empty.
    """
    known = frozenset(names)
    for index, word in enumerate(words):
        if word.option in known:
            name, equals, value = word.text.partition("=")
            following = words[index + 1].text if index + 1 < len(words) else ""
            stated = value.strip("\"'") if equals else following
            yield name, "" if word.is_mention else stated, word.number


def _option_name(text: str) -> str:
    """The option that `text` is, with dashes: these programs read underscores as well.

    Hydra's are written without dashes, `trainer.devices=8`, and with `+` where they are new.
    """
    if text.startswith("-"):
        return text.partition("=")[0].replace("_", "-")
    return text.partition("=")[0].lstrip("+") if "=" in text else ""
