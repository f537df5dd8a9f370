"""The makers of accelerators: by what their images, variables and device files are known.

This is the one table of them, for every rule that says the same of all makers. What container
runtimes do with variables, and which resources there are, is in the profiles.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple


class Maker(NamedTuple):
    """The facts about a maker's accelerators.

    - `vendor`: the maker as the profiles name it; empty if several makers have what follows.
    - `vendors`: these makers, where they are known.
    - `platform`: what programs for them use, completes "an image that uses …".
    - `devices`: what the maker's devices are called, completes "an image for …".
    - `request`: what a container asks for, as in `resources.limits`; empty if that is not known.
    - `is_gpu`: false for what is called an accelerator.
    - `image_folders`: parts of the paths of their images' repositories, each between slashes.
    - `image_words`: words in the names and tags of their images; a `*` ends what only begins so.
    - `files`: a regular expression of their device files below `/dev/`; empty if none is known.
    """

    vendor: str
    platform: str
    devices: str
    request: str
    is_gpu: bool = False
    image_folders: tuple[str, ...] = ()
    image_words: tuple[str, ...] = ()
    files: str = ""
    vendors: tuple[str, ...] = ()


NVIDIA_DEVICE = r"nvidia([0-9]+|ctl|-.+)"
NVIDIA = Maker(
    vendor="nvidia",
    platform="CUDA",
    devices="NVIDIA's GPUs",
    request="nvidia.com/gpu: 1",
    is_gpu=True,
    # The last two are those of NVIDIA's Tegra; dxg is a GPU under WSL. `gpu.images` knows images.
    files=rf"{NVIDIA_DEVICE}|dxg|nvhost-(.+-)?gpu|nvgpu(/.*)?|char/195:[0-9]+",
)
# The folders and words of images are those of the makers' own registries and releases; a mirror
# keeps them. `hpu`, `xpu` and `npu` stand in tags of others: vllm, sglang, optimum.
OTHER_MAKERS = (
    Maker(
        vendor="amd",
        platform="ROCm",
        devices="AMD's GPUs",
        request="amd.com/gpu: 1",
        is_gpu=True,
        image_folders=("rocm",),
        image_words=("rocm*",),
        files="kfd",
    ),
    Maker(
        vendor="habana",
        platform="Gaudi",
        devices="Gaudi",
        request="habana.ai/gaudi: 1",
        image_folders=("vault.habana.ai",),
        image_words=("gaudi*", "hpu"),
        files=r"hl([0-9]+|_controlD[0-9]+)",
    ),
    Maker(
        # The word neuron alone is also the name of other programs; quay.io/vllm/vllm-neuron.
        vendor="aws",
        platform="Neuron",
        devices="Neuron",
        request="aws.amazon.com/neuron: 1",
        image_folders=("neuron",),
        image_words=("neuronx", "vllm-neuron"),
        files=r"neuron[0-9]+",
    ),
    Maker(
        vendor="google",
        platform="TPUs",
        devices="Google's TPUs",
        request="google.com/tpu: 1",
        # pytorch/xla README.md: its repository has images for CUDA as well, by their tags.
        image_folders=("cloud-tpu-images",),
        image_words=("tpu", "tpuvm"),
    ),
    Maker(
        # The last two are virtual NPUs, and what manages all of them.
        vendor="huawei",
        platform="Ascend",
        devices="Ascend",
        request="huawei.com/Ascend910: 1",
        # Its images on Docker Hub: Ascend/docker-images, ascendai/pytorch and others.
        image_folders=("ascend", "ascendai"),
        image_words=("ascend", "cann"),
        files=r"v?davinci([0-9]+|_manager.*)",
    ),
    Maker(
        # registry.mthreads.com has also images for others' cards; musa is Moore Threads' CUDA.
        vendor="mthreads",
        platform="MUSA",
        devices="Moore Threads' GPUs",
        request="mthreads.com/gpu: 1",
        is_gpu=True,
        image_folders=("registry.mthreads.com",),
        image_words=("musa*",),
        files=r"mtgpu\.?[0-9]*",
    ),
    Maker(
        vendor="hygon",
        platform="DTK",
        devices="Hygon's DCUs",
        request="hygon.com/dcu: 1",
        is_gpu=True,
        image_folders=("dcu", "hcu"),
        image_words=("dtk*",),
        files="mkfd",
    ),
    Maker(
        vendor="metax",
        platform="MACA",
        devices="MetaX' GPUs",
        request="metax-tech.com/gpu: 1",
        is_gpu=True,
        image_folders=("cr.metax-tech.com", "mxcr.metax-tech.com", "maca"),
        image_words=("maca", "metax"),
        files="mxcd",
    ),
    Maker(
        vendor="iluvatar",
        platform="CoreX",
        devices="Iluvatar's GPUs",
        request="iluvatar.com/gpu: 1",
        is_gpu=True,
        # Of which HAMi's examples have one (Project-HAMi/HAMi examples/iluvatar).
        image_folders=("registry.iluvatar.com.cn",),
        image_words=("corex", "iluvatar"),
        files=r"iluvatar[0-9]*",
    ),
    Maker(
        vendor="cambricon",
        platform="Cambricon's MLUs",
        devices="Cambricon's MLUs",
        request="cambricon.com/mlu: 1",
        image_folders=("cambricon",),
        image_words=("cambricon", "mlu"),
        files="cambricon_.+",
    ),
    Maker(
        vendor="enflame",
        platform="Enflame's GCUs",
        devices="Enflame's GCUs",
        request="enflame.com/gcu: 1",
        image_words=("enflame", "topsrider"),
        files=r"gcu([0-9]+(vid[0-9]+)?|ctl)?",
    ),
    Maker(
        # rebellions-sw/rbln-k8s-device-plugin; rebellions-sw/vllm-rbln.
        vendor="rebellions",
        platform="RBLN",
        devices="Rebellions' NPUs",
        request="rebellions.ai/ATOM: 1",
        image_folders=("rebellions",),
        image_words=("rbln",),
        files=r"rbln[0-9]+",
    ),
    Maker(
        # furiosa-ai/furiosa-device-plugin: npu0 and npu0pe0 are of the older card, Warboy.
        vendor="furiosa",
        platform="Furiosa's NPUs",
        devices="Furiosa's NPUs",
        request="furiosa.ai/rngd: 1",
        image_folders=("furiosaai",),
        image_words=("furiosa",),
        files=r"rngd(/.*)?|npu[0-9]+(pe.*)?",
    ),
    Maker(
        vendor="biren",
        platform="Biren's GPUs",
        devices="Biren's GPUs",
        request="",
        is_gpu=True,
        files=r"biren(-m|/.*)?",
    ),
    Maker(
        vendor="kunlunxin",
        platform="Kunlunxin's XPUs",
        devices="Kunlunxin's XPUs",
        request="kunlunxin.com/xpu: 1",
        files=r"xpu([0-9]+|ctrl)",
    ),
    Maker(
        vendor="tenstorrent",
        platform="Tenstorrent",
        devices="Tenstorrent's cards",
        request="tenstorrent.com/n150: 1",
        files=r"tenstorrent(/.*)?",
    ),
    Maker(
        vendor="",
        platform="XPUs",
        devices="XPUs",
        request="gpu.intel.com/i915: 1",
        is_gpu=True,
        image_words=("xpu",),
        vendors=("intel", "kunlunxin"),
    ),
    Maker(
        # Processors of AMD and Intel have NPUs too.
        vendor="",
        platform="NPUs",
        devices="NPUs",
        request="huawei.com/Ascend910: 1",
        image_words=("npu",),
        vendors=("huawei", "rebellions", "furiosa", "amd", "intel"),
    ),
    # The kernel's files of GPUs of AMD and Intel, and of every accelerator (drm/drm_accel.h).
    Maker(
        vendor="",
        platform="",
        devices="",
        request="amd.com/gpu: 1 or gpu.intel.com/i915: 1",
        is_gpu=True,
        files=r"dri(/.*)?|char/226:[0-9]+",
    ),
    Maker(
        vendor="",
        platform="",
        devices="",
        request="habana.ai/gaudi: 1 or google.com/tpu: 1",
        files=r"accel([0-9]+|/.*)?|char/261:[0-9]+",
    ),
    # Vastai's cards, and Google's Coral.
    Maker("", "", "", "", files=r"vastai.*|apex_[0-9]+"),
)
ANY_ACCELERATOR = Maker("", "", "", "")
"""Of a maker that is not known."""
_MAKER_BY_VENDOR = {maker.vendor: maker for maker in (NVIDIA, *OTHER_MAKERS) if maker.vendor}


def advice_to_request(vendors: Iterable[str]) -> str:
    """Return the advice to ask for a device of `vendors`, with the first one's resource."""
    found = (_MAKER_BY_VENDOR[vendor] for vendor in vendors if vendor in _MAKER_BY_VENDOR)
    maker = next(found, None)
    what = "a GPU" if maker is None or maker.is_gpu else "an accelerator"
    example = f" (such as {maker.request})" if maker and maker.request else ""
    return f"ask for {what} in resources.limits{example}"


def makes_gpus(vendor: str) -> bool:
    """Return whether what `vendor` makes is called GPUs, as of a vendor that is not known."""
    maker = _MAKER_BY_VENDOR.get(vendor)
    return maker is None or maker.is_gpu


def device_file_pattern(makers: Iterable[Maker]) -> str:
    """A regular expression of the device files of `makers`."""
    return f"/dev/({'|'.join(maker.files for maker in makers if maker.files)})"


DEVICE_FILE_PATTERN = device_file_pattern((NVIDIA, *OTHER_MAKERS))


def image_pattern(makers: Iterable[Maker]) -> str:
    """A regular expression that is found in images of `makers`; empty if no sign of one is known.

    It is for the texts that `gpu.images` makes of references, and RE2 reads it as Python does.
    """
    makers = tuple(makers)
    folders = _one_of(folder for maker in makers for folder in maker.image_folders)
    words = [word for maker in makers for word in maker.image_words]
    whole = _one_of(word for word in words if not word.endswith("*"))
    begun = _one_of(word[:-1] for word in words if word.endswith("*"))
    ends = [f"{whole}([:._-]|$)"] if whole else []
    ends += [begun] if begun else []
    tests = [f"/{folders}(:[0-9]+)?/"] if folders else []
    tests += [f"[/:._-]({'|'.join(ends)})[^/]*$"] if ends else []
    return "|".join(tests)


def _one_of(texts: Iterable[str]) -> str:
    escaped = "|".join(text.replace(".", r"\.") for text in texts)
    return f"({escaped})" if escaped else ""


OTHER_IMAGE_PATTERN = image_pattern(OTHER_MAKERS)

IMAGE_STEMS = frozenset(
    text.rstrip("*")
    for maker in OTHER_MAKERS
    for text in (*maker.image_folders, *maker.image_words)
)
"""Texts of which every image of another maker than NVIDIA contains one, in small letters."""
# Words in the names of images of device plugins, exporters, operators and drivers, which every
# maker publishes beside those of programs.
AGENT_WORDS = (
    *("plugin", "deviceplugin", "k8sdeviceplugin", "exporter", "labeller", "operator"),
    *("driver", "discovery", "scheduler", "monitor", "manager", "detector", "toolkit"),
)
# In this one Intel publishes what manages Gaudi: its drivers in ghcr.io
# (intel/intel-resource-drivers-for-kubernetes deployments/*/base/resource-driver.yaml), its device
# plugin and exporter on Docker Hub (hub.docker.com/r/intel/gaudi-metric-exporter).
_FOLDERS_OF_AGENTS = ("intel",)
_FOLDERS = _one_of(
    (*(folder for maker in OTHER_MAKERS for folder in maker.image_folders), *_FOLDERS_OF_AGENTS)
)
# Built on the nodes, without a folder (Ascend/mind-cluster, Ascend Device Plugin's manifests).
_AGENTS_WITHOUT_FOLDER = ("ascend-k8sdeviceplugin",)
AGENT_IMAGE_PATTERN = (
    rf"^/(([^/]*\.[^/]*|localhost(:[0-9]+)?)/)?{_FOLDERS}(:[0-9]+)?/(.*/)?"
    rf"([^/:]*[._-])?{_one_of(AGENT_WORDS)}([._-][^/:]*)?(:[^/]*)?$"
    rf"|^/{_one_of(_AGENTS_WITHOUT_FOLDER)}(:[^/]*)?$"
)
"""A regular expression as of `image_pattern`, of images with one of AGENT_WORDS in their name.

They are in a folder of their maker, the first one after the registry's host if there is one: with
any owner, everybody could choose such a name.
"""
# Of these an agent's program has one in its name. No shell or interpreter is called so. In a volume
# it could be: `gpu.commands.own_programs` looks at volumes.
_WORDS_OF_PROGRAMS = (
    *("plugin", "exporter", "labeller", "operator", "driver", "discovery", "scheduler"),
    *("monitor", "manager", "detector", "toolkit", "gpu", "rocm", "habana", "gaudi", "neuron"),
    *("ascend", "npu", "mlu", "cambricon", "rbln", "furiosa", "metax", "iluvatar", "musa", "dcu"),
)
# Furiosa's charts name no other than `main` (furiosa-ai/helm-charts
# charts/furiosa-device-plugin). Entry points of images call their program, and so does Ascend's
# script (Ascend/mind-cluster component/*/build/*-310P-1usoc.yaml); MetaX's tool only reports.
_PROGRAMS_BY_NAME = ("main", "entrypoint", "entrypoint.sh", "run_for_310P_1usoc.sh", "mx-smi")
# These start no other program and show no content of files. `[` is the other name of `test`.
_IDLE_PROGRAMS = ("[", "echo", "false", "ls", "mkdir", "rm", "stat", "test", "true", "umask")
# A container that only waits is for those who execute commands in it; the last four are words of a
# shell's loops and conditions.
_WAITING_PROGRAMS = ("sleep", "do", "done", "then", "fi")
# What these read a container would write into its log; of probes the log has nothing.
_LOOKING_PROGRAMS = ("cat", "grpc_health_probe", "pgrep")


# Kubernetes replaces `$(NAME)` in a command by a variable, so no program has a `$`.
AGENT_PROGRAM_PATTERN = (
    rf"([^$]*/)?([^/$]*{_one_of(_WORDS_OF_PROGRAMS)}[^/$]*|{_one_of(_PROGRAMS_BY_NAME)})"
)
"""A regular expression of the programs of other makers' agents."""


def _usual_pattern(names: Iterable[str]) -> str:
    return rf"(/(usr/)?(local/)?s?bin/)?{_one_of(re.escape(name) for name in names)}"


IDLE_PATTERN = _usual_pattern(_IDLE_PROGRAMS)
"""A regular expression of other programs that containers of such agents may run."""
WAITING_PATTERN = _usual_pattern((*_IDLE_PROGRAMS, *_WAITING_PROGRAMS))
"""The same for init containers, which come to an end."""
LOOKING_PATTERN = _usual_pattern((*_IDLE_PROGRAMS, *_WAITING_PROGRAMS, *_LOOKING_PROGRAMS))
"""The same for hooks and probes."""
SHELL_PATTERN = r"(/(usr/)?bin/)?(ba)?sh"
# Nothing that a shell expands to a command, and no redirection.
_WORD = r"""([A-Za-z0-9_./=:,@%+*!\[\]-]+|"[^"$`\\]*"|'[^'$]*')"""
_PROGRAM = r"[A-Za-z0-9_./\[][A-Za-z0-9_./\[-]*"
_COMMAND = rf"{_PROGRAM}([ \t]+{_WORD})*"
AGENT_SCRIPT_PATTERN = rf"[ \t\n]*{_COMMAND}([ \t]*(;|&&|\|\|?|\n)[ \t\n]*{_COMMAND})*[ \t\n;]*"
"""A regular expression of scripts that are plain commands, one after another or in loops."""
COMMAND_BEGIN_PATTERN = (
    rf"(?:^|[;&|\n])[ \t\n]*(?:(?:until|while|do|if|then|exec)[ \t\n]+)*{_PROGRAM}"
)
"""A regular expression that finds each program in such a script, with what stands before it."""
PROGRAM_AT_END_PATTERN = r"[^;&| \t\n]+$"
"""A regular expression of the program in a text that COMMAND_BEGIN_PATTERN has found."""


def maker_of_file(path: str) -> Maker | None:
    """The first maker with a device file at the clean `path`; None if there is none."""
    name = path.removeprefix("/dev/")
    makers = (maker for maker in (NVIDIA, *OTHER_MAKERS) if maker.files)
    found = (maker for maker in makers if name != path and re.fullmatch(maker.files, name))
    return next(found, None)
