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
    AGENT_WORDS,
    NVIDIA,
    OTHER_MAKERS,
    device_file_pattern,
)

_WORD_PATTERN = r"[^-_.\s]+"


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
    """Whether the CEL `image` is no CUDA image and sets the variable all the same."""
    return _is_image(image, _is_image_of(IMAGES_FOR_ANY_MAKER))


def maker_facts() -> list[dict[str, list[str]]]:
    """What `$makers` says of each maker: of images, of device files, and the words about it."""
    return [
        {
            "shown": [m.platform, GPU_WORD if m.is_gpu else ACCELERATOR_WORD, m.request],
            "folders": [f"/{folder}/" for folder in m.image_folders],
            "words": [word for word in m.image_words if not word.endswith("*")],
            "beginnings": [word[:-1] for word in m.image_words if word.endswith("*")],
            "files": [f"^{device_file_pattern([m])}$"] if m.files else [],
        }
        for m in (NVIDIA, *OTHER_MAKERS)
    ]


def maker_of_image(container: str) -> str:
    """`maker_of_image` of the image of the CEL `container`: a list of its facts, or of none."""
    words = "(t[1] + (t[3] == '' ? '-' + t[2] : ''))"
    shows = "m.words.exists(s, s == w) || m.beginnings.exists(s, w.startsWith(s))"
    is_of = f"m.folders.exists(s, folders.contains(s)) || words.exists(w, {shows})"
    image = f"string({container}.image)"
    return (
        f"{container}.hasCudaImage ? [variables.makers[0]]"
        f" : {image}.size() > {MAX_REFERENCE} ? []"
        f" : {_parts(image)}.map(t, [{words}.findAll({cel(_WORD_PATTERN)})].map(words,"
        f" ['/' + t[0]].map(folders, variables.makers.filter(m, {is_of}))[0])[0])[0]"
    )


def maker_of_file(path: str) -> str:
    """`maker_of_file` of the CEL `path`: a list of its facts, or of none."""
    return f"variables.makers.filter(maker, maker.files.exists(f, {path}.matches(f)))"


def is_agent_of_other_maker(image: str) -> str:
    """`is_agent_of_other_maker` of the CEL `image`."""
    words = f"t[1].findAll({cel(_WORD_PATTERN)})"
    is_agent = f"{words}.exists(w, w in {cel(sorted(AGENT_WORDS))})"
    return f"({image}.size() <= {MAX_REFERENCE} && {_parts(image)}.exists(t, {is_agent}))"


def _is_image(image: str, test: str) -> str:
    """Whether `test` holds for the parts `t` of the CEL `image`."""
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
    """Whether the parts `t` name one of `names`, no other maker's build of it, and fit `test`."""
    owner = (
        "[t[0].substring(0, t[0].size() > 0 ? t[0].size() - 1 : 0)]"
        ".map(o, '/' + o).map(o, o.substring(o.lastIndexOf('/') + 1) + '/' + t[1])[0]"
    )
    return (
        f"[{owner}].exists(o, o in {cel(sorted(names))} && !(t[3] == ''"
        f" && {cel(OTHER_VENDORS_TAGS)}.exists(s, t[2].contains(s))) && {test})"
    )
