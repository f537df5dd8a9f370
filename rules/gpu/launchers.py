"""With how many GPUs the command of a container works, by the options of known launchers.

Commands are often scripts. Only what one launcher is told once, on one machine, is certain; in
doubt the answer is None. Every function is linear in its input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rules.base.json_patch import Path
from rules.gpu.commands import CommandText
from rules.gpu.expansion import expand
from rules.gpu.images import image_name
from rules.gpu.shell_words import script_words
from rules.objects.container import Container

# Digits of the largest number that is taken for one of GPUs.
_DIGITS = 6


class Word(NamedTuple):
    """A word of a command, and the path of the text that it stands in.

    `is_mention` if it may be part of a text that is written, and start nothing.
    """

    text: str
    path: Path
    is_mention: bool


class Launcher(NamedTuple):
    """A program that starts processes on GPUs.

    - `starts`: how it is started: each a word, or two.
    - `image`: the name of an image whose entry point it is.
    - `sizes`: options whose product is the number of GPUs, each with its spellings.
    - `unclear`: options and words beside which that number is not certain.
    - `uses_all`: whether a GPU beyond that number stays idle.
    - `spans_pods`: whether the GPUs may be those of several pods.
    """

    name: str
    starts: tuple[tuple[str, ...], ...]
    sizes: tuple[tuple[str, ...], ...]
    unclear: tuple[str, ...] = ()
    image: str = ""
    uses_all: bool = True
    spans_pods: bool = False


class ParallelSize(NamedTuple):
    """`gpus` is how many GPUs `launcher` works with, as `options` say, at `path`."""

    launcher: Launcher
    gpus: int
    options: str
    path: Path


_LAUNCHERS = (
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
    ),
    # A process may work with several GPUs, but not with a part of one.
    Launcher(
        "torchrun",
        starts=(("torchrun",), ("torch.distributed.run",), ("torch.distributed.launch",)),
        sizes=(("--nproc-per-node",),),
        uses_all=False,
    ),
    Launcher(
        "DeepSpeed",
        starts=(("deepspeed",),),
        sizes=(("--num-gpus",),),
        unclear=("--hostfile", "-H", "--include", "-i", "--exclude", "-e", "--num-nodes"),
    ),
)
_BY_IMAGE = {launcher.image: launcher for launcher in _LAUNCHERS if launcher.image}
_BY_START: dict[str, list[tuple[Launcher, tuple[str, ...]]]] = {}
for _launcher in _LAUNCHERS:
    for _first, *_second in _launcher.starts:
        _BY_START.setdefault(_first, []).append((_launcher, tuple(_second)))
# Of a command; one that has more is a program, and to read it would take long.
_MAX_WORDS = 5000
# Beside these words a command starts several programs, or one on several machines.
_UNCLEAR = frozenset({"for", "while", "until", "mpirun", "srun", "ssh", "xargs", "parallel"})
_MASK = "CUDA_VISIBLE_DEVICES"


def parallel_size(container: Container, command: Iterable[CommandText]) -> ParallelSize | None:
    """How many GPUs the `command` of `container` works with; None in doubt."""
    words = _words(container, list(command))
    texts = [word.text for word in words]
    started = list(_started(container, words))
    if len(started) != 1 or _MASK in container.env or any(map(_is_unclear, texts)):
        return None
    launcher, is_mention = started[0]
    if is_mention:
        return None
    gpus, options, place = 1, [], None
    for names in launcher.sizes:
        stated = list(_options(words, names))
        if len(stated) > 1:
            return None
        for name, value, path in stated:
            size = expand(container, value)
            if size is None or not (size.isascii() and size.isdigit() and len(size) <= _DIGITS):
                return None
            gpus *= int(size)
            options.append(f"{name} {size}")
            place = place or path
    unclear = frozenset(launcher.unclear)
    if any(_name(text) in unclear or text.startswith("--data-parallel") for text in texts):
        return None
    return ParallelSize(launcher, gpus, " and ".join(options), place) if place else None


def _words(container: Container, command: Sequence[CommandText]) -> list[Word]:
    """The words of `command`; none if it names no launcher, or has too many."""
    if not _may_start(container, command):
        return []
    found = ((word, path) for path, text in command for word in script_words(text))
    words = [Word(word.text, path, word.is_mention) for word, path in found]
    return words if len(words) <= _MAX_WORDS else []


def _may_start(container: Container, command: Iterable[CommandText]) -> bool:
    """Whether a launcher is named anywhere: cheaper than to look at every word."""
    named = any(name in text for _, text in command for name in _BY_START)
    return named or image_name(container.image) in _BY_IMAGE


def _started(container: Container, words: Sequence[Word]) -> Iterator[tuple[Launcher, bool]]:
    """Each launcher that is named, and whether it is a mention."""
    if not container.raw.get("command") and image_name(container.image) in _BY_IMAGE:
        yield _BY_IMAGE[image_name(container.image)], False
    for index, word in enumerate(words):
        for launcher, second in _BY_START.get(word.text.rpartition("/")[2], ()):
            following = words[index + 1 : index + 1 + len(second)]
            if tuple(text for text, *_ in following) == second:
                yield launcher, word.is_mention


def _is_unclear(text: str) -> bool:
    in_background = text.endswith("&") and text != "&&"
    in_document = "<<" in text
    is_named = text in _UNCLEAR or "ray" in text or text.startswith(("#", _MASK))
    return is_named or in_background or in_document


def _options(words: Sequence[Word], names: Iterable[str]) -> Iterator[tuple[str, str, Path]]:
    """Each option of `words` that is called one of `names`, with its value and path.

    The value of one that may be part of a text is empty.
    """
    known = frozenset(names)
    for index, (text, path, is_mention) in enumerate(words):
        if _name(text) in known:
            name, equals, value = text.partition("=")
            following = words[index + 1].text if index + 1 < len(words) else ""
            stated = value.strip("\"'") if equals else following
            yield name, "" if is_mention else stated, path


def _name(text: str) -> str:
    """The option that `text` is, with dashes: these programs read underscores as well."""
    return text.partition("=")[0].replace("_", "-") if text.startswith("-") else ""
