"""Twins of `rules.gpu.images`: what the name of an image shows, in CEL."""

from collections.abc import Collection

from rules.gpu.images import (
    AGENTS,
    CUDA_TAG_WORDS_BY_IMAGE,
    FOLDERS_WITHOUT_GPUS,
    IMAGES_FOR_ANY_MAKER,
    MAX_REFERENCE,
    NVIDIA_REGISTRIES,
    OTHER_VENDORS_TAGS,
    WITHOUT_GPUS,
)
from rules.in_process.statement import any_of, cel
from rules.placement.gpu_nodes import ACCELERATOR_WORD, GPU_WORD
from rules.profile.platforms.makers import (
    AGENT_IMAGE_PATTERN,
    NVIDIA,
    OTHER_IMAGE_PATTERN,
    OTHER_MAKERS,
    device_file_pattern,
    image_pattern,
)


def is_cuda_image(image: str, *, with_agents: bool = True) -> str:
    """`is_cuda_image` of the CEL `image`; without NVIDIA's agents, if that is wanted."""
    in_registry = any_of(f"t[0].contains({cel(r)})" for r in NVIDIA_REGISTRIES)
    without = any_of(f"t[0].contains({cel(folder)})" for folder in FOLDERS_WITHOUT_GPUS)
    lacks = (
        f"(t[1] in {cel(sorted(WITHOUT_GPUS))}"
        f" || (!(t[1].contains('cuda') || t[2].contains('cuda')) && ({without})))"
    )
    tags = (
        "(t[3] != '' ? [t[2] == '' ? 'latest' : t[2], 'latest'] : [t[2] == '' ? 'latest' : t[2]])"
    )
    words = f"{cel(CUDA_TAG_WORDS_BY_IMAGE)}[o]"
    known = _is_image_of(
        CUDA_TAG_WORDS_BY_IMAGE,
        f"({words}.size() == 0 || {words}.exists(s, {tags}.exists(tag, tag.contains(s))))",
    )
    is_agent = f"t[1] in {cel(sorted(AGENTS))}"
    of_nvidia = f"{is_agent} || !{lacks}" if with_agents else f"!({is_agent}) && !{lacks}"
    return _is_image(image, f"({in_registry}) ? ({of_nvidia}) : {known}")


def sets_visible_devices(image: str) -> str:
    """`sets_visible_devices` of the CEL `image`."""
    return f"({is_cuda_image(image)} || {is_image_for_any_maker(image)})"


def is_image_for_any_maker(image: str) -> str:
    """Return, as CEL, whether `image` is no CUDA image and sets the variable all the same."""
    return _is_image(image, _is_image_of(IMAGES_FOR_ANY_MAKER))


def maker_facts() -> list[dict[str, list[str]]]:
    """Return the facts in `$makers` of each maker: images, device files, and words about it."""
    return [
        {
            "shown": [m.platform, GPU_WORD if m.is_gpu else ACCELERATOR_WORD, m.request],
            "images": [pattern] if (pattern := image_pattern([m])) else [],
            "files": [f"^{device_file_pattern([m])}$"] if m.files else [],
        }
        for m in (NVIDIA, *OTHER_MAKERS)
    ]


def is_image_of_maker() -> str:
    """Return, as CEL, whether the image of the container `c` has a `maker_of_image`."""
    return f"(c.hasCudaImage || {_searched('string(c.image)', OTHER_IMAGE_PATTERN)})"


def maker_of_image() -> str:
    """The facts of `maker_of_image` of the container `c`, whose image has one."""
    found = "variables.makers.filter(m, m.images.exists(p, t.matches(p)))"
    return (
        "(c.hasCudaImage ? variables.makers[0]"
        f" : [{_searched_text('string(c.image)')}].map(t, {found}[0])[0])"
    )


def maker_of_file(path: str) -> str:
    """`maker_of_file` of the CEL `path`: a list of its facts, or of none."""
    return f"variables.makers.filter(maker, maker.files.exists(f, {path}.matches(f)))"


def is_agent_of_other_maker() -> str:
    """`is_agent_of_other_maker` of the container `c`."""
    return _searched("string(c.image)", AGENT_IMAGE_PATTERN)


def _searched(image: str, pattern: str) -> str:
    """Return, as CEL, whether `pattern` is found in `image`."""
    text = _searched_text(image)
    return f"({image}.size() <= {MAX_REFERENCE} && {text}.matches({cel(pattern)}))"


def _searched_text(image: str) -> str:
    """The text of the CEL `image` in which patterns of makers are searched."""
    last = "r.substring(r.lastIndexOf('/') + 1)"
    unpinned = (
        "[t.substring(0, t.indexOf('@'))].map(r,"
        f" {last}.contains(':') ? r.substring(0, r.lastIndexOf('/') + 1 + {last}.indexOf(':')) : r"
        ")[0]"
    )
    return f"['/' + {image}.lowerAscii()].map(t, t.contains('@') ? {unpinned} : t)[0]"


def _is_image(image: str, test: str) -> str:
    """Return, as CEL, whether `test` holds for the parts `t` of `image`."""
    return f"({image}.size() <= {MAX_REFERENCE} && {_parts(image)}.exists(t, {test}))"


def _parts(image: str) -> str:
    """A list with the parts of the CEL `image`: path, name, tag, `pinned` or empty."""
    # `lastIndexOf` of an empty text is an error for API servers of Kubernetes 1.31.
    return (
        f"[string({image}).lowerAscii()].map(t, t == '' ? '-' : t)"
        ".map(t, t.substring(0, t.lastIndexOf('/') + 1).split('/')"
        ".map(s, s.matches(':[0-9]+$') ? s.substring(0, s.lastIndexOf(':')) : s).join('/')"
        " + t.substring(t.lastIndexOf('/') + 1))"
        ".map(t, [t.indexOf('@') > 0 ? t.substring(0, t.indexOf('@')) : t,"
        " t.contains('@') ? 'pinned' : ''])"
        ".map(t, [t[0].substring(0, t[0].lastIndexOf('/') + 1),"
        " t[0].substring(t[0].lastIndexOf('/') + 1), t[1]])"
        ".map(t, [t[0], t[1].contains(':') ? t[1].substring(0, t[1].indexOf(':')) : t[1],"
        " t[1].contains(':') ? t[1].substring(t[1].indexOf(':') + 1) : '', t[2]])"
    )


def _is_image_of(names: Collection[str], test: str = "true") -> str:
    """Return, as CEL, whether the parts `t` name one of `names`, of no other maker, and fit."""
    owner = (
        "[t[0].substring(0, t[0].size() > 0 ? t[0].size() - 1 : 0)]"
        ".map(o, '/' + o).map(o, o.substring(o.lastIndexOf('/') + 1) + '/' + t[1])[0]"
    )
    return (
        f"[{owner}].exists(o, o in {cel(sorted(names))} && !(t[3] == ''"
        f" && {cel(OTHER_VENDORS_TAGS)}.exists(s, t[2].contains(s))) && {test})"
    )
