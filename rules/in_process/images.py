"""Twins of `rules.gpu.images`: what the name of an image shows, in CEL."""

from collections.abc import Callable, Collection

from rules.gpu.images import (
    AGENTS,
    CUDA_TAG_WORDS_BY_IMAGE,
    FOLDERS_WITHOUT_GPUS,
    IMAGES_FOR_ANY_MAKER,
    MAX_REFERENCE,
    NETWORK_FOLDERS,
    NVIDIA_OWNER,
    NVIDIA_REGISTRIES,
    OTHER_VENDORS_TAGS,
    PLATFORM_REGISTRIES,
    WITHOUT_GPUS,
)
from rules.in_process.expression import (
    POLICY,
    Expression,
    all_of,
    any_of,
    choose,
    expression,
    is_in,
    let,
    not_,
    string,
)
from rules.in_process.statement import CONTAINER
from rules.placement.gpu_nodes import ACCELERATOR_WORD, GPU_WORD
from rules.profile.platforms.makers import (
    AGENT_IMAGE_PATTERN,
    NVIDIA,
    OTHER_IMAGE_PATTERN,
    OTHER_MAKERS,
    device_file_pattern,
    image_pattern,
)

_CUDA_IMAGES_OF_PROGRAMS = CUDA_TAG_WORDS_BY_IMAGE.keys() - {
    f"{NVIDIA_OWNER}/{name}" for name in AGENTS
}


class _Parts:
    """The parts of the name of an image: those of a list in CEL."""

    def __init__(self, parts: Expression) -> None:
        self.path, self.name, self.tag = parts[0], parts[1], parts[2]
        self.pin = parts[3]


def is_cuda_image(container: Expression, *, with_agents: bool = True) -> Expression:
    """`is_cuda_image` of the image of `container`; without NVIDIA's agents, if that is wanted."""

    def test(parts: _Parts) -> Expression:
        in_registry = any_of(*(parts.path.contains(registry) for registry in NVIDIA_REGISTRIES))
        is_agent = is_in(parts.name, sorted(AGENTS))
        has_cuda = not_(_lacks_cuda(parts))
        of_nvidia = any_of(is_agent, has_cuda) if with_agents else all_of(not_(is_agent), has_cuda)
        names = CUDA_TAG_WORDS_BY_IMAGE if with_agents else _CUDA_IMAGES_OF_PROGRAMS
        known = _is_image_of(parts, names, lambda own: _has_cuda_tag(parts, own))
        return choose((in_registry, of_nvidia), otherwise=known)

    return _image_fits(container, test)


def is_platform_image(container: Expression) -> Expression:
    """`is_platform_image` of the image of `container`."""

    def test(parts: _Parts) -> Expression:
        is_of_platform = any_of(*(parts.path.contains(each) for each in PLATFORM_REGISTRIES))
        is_of_network = any_of(*(parts.path.contains(folder) for folder in NETWORK_FOLDERS))
        is_part = is_in(parts.name, sorted(WITHOUT_GPUS))
        return all_of(is_part, is_of_platform, not_(is_of_network))

    return _image_fits(container, test)


def _lacks_cuda(parts: _Parts) -> Expression:
    without = any_of(*(parts.path.contains(folder) for folder in FOLDERS_WITHOUT_GPUS))
    says_cuda = any_of(parts.name.contains("cuda"), parts.tag.contains("cuda"))
    return any_of(is_in(parts.name, sorted(WITHOUT_GPUS)), all_of(not_(says_cuda), without))


def _has_cuda_tag(parts: _Parts, own: Expression) -> Expression:
    """Return whether the tag has a word that says CUDA, where the image `own` needs one."""
    tag = choose((parts.tag == "", "latest"), otherwise=parts.tag)
    # A tag beside a digest says nothing about the digest.
    tags = choose((parts.pin != "", [tag, "latest"]), otherwise=[tag])
    words = expression(CUDA_TAG_WORDS_BY_IMAGE)[own]
    has_word = words.exists(lambda s: tags.exists(lambda tag: tag.contains(s)))
    return any_of(words.size() == 0, has_word)


def sets_visible_devices(container: Expression) -> Expression:
    """`sets_visible_devices` of the image of `container`."""
    return any_of(container.hasCudaImage, is_image_for_any_maker(container))


def is_image_for_any_maker(container: Expression) -> Expression:
    """Return whether the image of `container` is none of CUDA, and yet sets the variable."""
    return _image_fits(container, lambda parts: _is_image_of(parts, IMAGES_FOR_ANY_MAKER))


def maker_facts() -> list[dict[str, list[str]]]:
    """Return the facts in `POLICY.makers` of each maker: images, device files, words about it."""
    return [
        {
            "shown": [m.platform, GPU_WORD if m.is_gpu else ACCELERATOR_WORD, m.request],
            "images": [pattern] if (pattern := image_pattern([m])) else [],
            "files": [f"^{device_file_pattern([m])}$"] if m.files else [],
        }
        for m in (NVIDIA, *OTHER_MAKERS)
    ]


def is_image_of_maker(container: Expression = CONTAINER) -> Expression:
    """Return whether the image of `container` has a `maker_of_image`."""
    of_other = _searched(string(container.image), OTHER_IMAGE_PATTERN)
    return any_of(container.hasCudaImage, of_other)


def maker_of_image(container: Expression = CONTAINER) -> Expression:
    """Return the facts of `maker_of_image` of `container`, whose image has one."""
    of_other = let(
        _searched_text(string(container.image)),
        lambda t: POLICY.makers.filter(lambda m: m.images.exists(lambda p: t.matches(p)))[0],
    )
    return choose((container.hasCudaImage, POLICY.makers[0]), otherwise=of_other)


def maker_of_file(path: Expression) -> Expression:
    """`maker_of_file` of `path`: a list of its facts, or of none."""
    return POLICY.makers.filter(lambda maker: maker.files.exists(lambda f: path.matches(f)))


def is_agent_of_other_maker(container: Expression) -> Expression:
    """`is_agent_of_other_maker` of `container`."""
    return _searched(string(container.image), AGENT_IMAGE_PATTERN)


def _searched(image: Expression, pattern: str) -> Expression:
    """Return whether `pattern` is found in `image`."""
    return all_of(image.size() <= MAX_REFERENCE, _searched_text(image).matches(pattern))


def _searched_text(image: Expression) -> Expression:
    """Return the text of `image` in which patterns of makers are searched."""
    return let(
        "/" + image.lowerAscii(),
        lambda t: choose((t.contains("@"), _without_digest(t)), otherwise=t),
    )


def _without_digest(image: Expression) -> Expression:
    """Return `image` without its digest, and without the tag beside it."""

    def without_tag(r: Expression) -> Expression:
        start = r.lastIndexOf("/") + 1
        last = r.substring(start)
        return choose((last.contains(":"), r.substring(0, start + last.indexOf(":"))), otherwise=r)

    return let(image.substring(0, image.indexOf("@")), without_tag)


def _image_fits(container: Expression, test: Callable[[_Parts], Expression]) -> Expression:
    """Return whether `test` holds for the parts of the image of `container`."""
    # The members of a record have no types.
    parts = container.imageParts.map(lambda t: t.map(lambda p: string(p)))
    return parts.exists(lambda t: test(_Parts(t)))


def parts_of_image(image: Expression) -> Expression:
    """Return a list with the parts of `image`: path, name, tag, and `pinned` or empty.

    The list is empty if `image` is longer than any that is known.
    """

    def without_port(s: Expression) -> Expression:
        return choose((s.matches(":[0-9]+$"), s.substring(0, s.lastIndexOf(":"))), otherwise=s)

    def without_ports(t: Expression) -> Expression:
        start = t.lastIndexOf("/") + 1
        folders = t.substring(0, start).split("/").map(without_port).join("/")
        return folders + t.substring(start)

    def name_and_digest(t: Expression) -> list[Expression]:
        unpinned = choose((t.indexOf("@") > 0, t.substring(0, t.indexOf("@"))), otherwise=t)
        return [unpinned, choose((t.contains("@"), "pinned"), otherwise="")]

    def path_and_name(t: Expression) -> list[Expression]:
        start = t[0].lastIndexOf("/") + 1
        return [t[0].substring(0, start), t[0].substring(start), t[1]]

    def all_parts(t: Expression) -> list[Expression]:
        has_tag, colon = t[1].contains(":"), t[1].indexOf(":")
        name = choose((has_tag, t[1].substring(0, colon)), otherwise=t[1])
        tag = choose((has_tag, t[1].substring(colon + 1)), otherwise="")
        return [t[0], name, tag, t[2]]

    # `lastIndexOf` of an empty text is an error for API servers of Kubernetes 1.31.
    return (
        expression([image])
        .filter(lambda t: t.size() <= MAX_REFERENCE)
        .map(lambda t: string(t).lowerAscii())
        .map(lambda t: choose((t == "", "-"), otherwise=t))
        .map(without_ports)
        .map(name_and_digest)
        .map(path_and_name)
        .map(all_parts)
    )


def _is_image_of(
    parts: _Parts,
    names: Collection[str],
    test: Callable[[Expression], Expression] = lambda _: expression(True),
) -> Expression:
    """Return whether `parts` name one of `names`, of no other maker, for which `test` holds."""
    folder = parts.path.substring(
        0, choose((parts.path.size() > 0, parts.path.size() - 1), otherwise=0)
    )
    own = (
        expression([folder])
        .map(lambda o: "/" + o)
        .map(lambda o: o.substring(o.lastIndexOf("/") + 1) + "/" + parts.name)[0]
    )
    is_others = all_of(
        parts.pin == "",
        expression(OTHER_VENDORS_TAGS).exists(lambda s: parts.tag.contains(s)),
    )
    return expression([own]).exists(
        lambda o: all_of(is_in(o, sorted(names)), not_(is_others), test(o))
    )
