"""The traits of containers: in Python, and in CEL as tests of `container`.

Each test is beside the Python that it answers for. It may be true for more pods, never for fewer.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

from rules.base.json_values import as_object, as_objects, as_text
from rules.base.quantity import Quantity
from rules.base.text_matching import matches_any
from rules.base.traits import (
    ALIYUN_PREFIX,
    CLAIM_IN_CONTAINER,
    COMMAND_WORDS,
    CUDA_IMAGE,
    DEVICE_LIST_FOLDER,
    DEVICE_LIST_MOUNT,
    ENV_FROM,
    GPU_PROGRAM,
    GPU_RESOURCE,
    GPU_VARIABLE,
    LD_PREFIX,
    LD_VARIABLE,
    NVIDIA_CARD,
    ORDINARY_VARIABLES,
    OTHER_GPU_RESOURCE,
    OTHER_GPU_VARIABLE,
    OTHER_MAKER_IMAGE,
    POD_RESOURCES,
    PRIVILEGED,
    SAMPLE_IMAGES,
    SEVERAL_GPUS,
    SHARE,
    UNKNOWN_RESOURCE,
    UNUSUAL_AMOUNT,
    VARIABLE_PREFIXES,
    VARIABLE_WORDS,
    is_named_after_gpus,
)
from rules.gpu.commands.of_containers import EXEC_PATHS, gpu_program
from rules.gpu.devices import (
    FIELDS_OF_RESOURCES,
    MISPLACED_RESOURCE_FIELDS,
    NATIVE_RESOURCES,
    Device,
    parse_devices,
)
from rules.gpu.images import (
    CUDA_TAG_WORDS_BY_IMAGE,
    IMAGES_FOR_ANY_MAKER,
    NVIDIA_REGISTRIES,
    is_gpu_sample,
    is_platform_image,
    maker_of_image,
    sets_visible_devices,
)
from rules.objects.container import is_host_process
from rules.profile.platforms.makers import IMAGE_STEMS
from rules.profile.profile import Profile
from rules.relevance.expressions import (
    ADDED_CAPABILITIES,
    CONTAINERS,
    HOST_PROCESS,
    LONGEST,
    MOST,
    PRIVILEGED_CONTAINER,
    Scope,
    TraitTests,
    any_of,
    contains,
    contains_one,
    has_foreign_name,
    matches,
    tests_of,
)

_MISPLACED_RESOURCE_FIELDS = frozenset(MISPLACED_RESOURCE_FIELDS)
_NANO_OF_ONE = 10**9  # in the unit of `Quantity.nano`


def container_traits(
    raw: Mapping[str, Any], resources: Any, profile: Profile
) -> tuple[int, dict[str, Device]]:
    """Return the traits of a container, but for that of its role, and its GPU resources."""
    traits = variable_traits(raw.get("env"), profile) | _image_traits(raw)
    traits |= _source_traits(raw) | _mount_traits(raw) | _privilege_traits(raw)
    if not _MISPLACED_RESOURCE_FIELDS.isdisjoint(raw):
        traits |= POD_RESOURCES
    if not resources:
        return traits, {}
    if not FIELDS_OF_RESOURCES.issuperset(resources):
        traits |= POD_RESOURCES
    limits, requests = as_object(resources.get("limits")), as_object(resources.get("requests"))
    claims = resources.get("claims")
    if not claims and NATIVE_RESOURCES.issuperset(limits) and NATIVE_RESOURCES.issuperset(requests):
        return traits, {}
    known = parse_devices(limits, requests, profile)
    return traits | _resource_traits(limits, requests, known, as_objects(claims)), known


# Resources.


def _resource_traits(
    limits: Mapping[str, Any], requests: Mapping[str, Any], known: Mapping[str, Device], claims: Any
) -> int:
    traits = CLAIM_IN_CONTAINER if claims else 0
    if len(known) > 1:
        traits |= SEVERAL_GPUS
    for name in {*limits, *requests} - NATIVE_RESOURCES:
        traits |= _single_resource_traits(name, known.get(name))
    return traits


def _single_resource_traits(name: str, device: Device | None) -> int:
    traits = SHARE if name.startswith(ALIYUN_PREFIX) else 0
    if device is None:
        return traits | UNKNOWN_RESOURCE
    traits |= GPU_RESOURCE
    if name != NVIDIA_CARD:
        traits |= OTHER_GPU_RESOURCE
    if device.resource.sharing == "share":
        traits |= SHARE
    if not device.is_plain_count:
        traits |= UNUSUAL_AMOUNT
    for amount in (device.limit, device.request):
        if isinstance(amount, Quantity) and amount.nano > _NANO_OF_ONE:
            traits |= SEVERAL_GPUS
    return traits


def _resources(scope: Scope) -> Iterator[str]:
    fields = ("container.?resources.?limits", "container.?resources.?requests")
    ordinary = NATIVE_RESOURCES
    if not scope.needed & GPU_RESOURCE:
        ordinary |= {NVIDIA_CARD}
    yield from (has_foreign_name(field, ordinary) for field in fields)
    if scope.needed & (UNUSUAL_AMOUNT | SEVERAL_GPUS) and not scope.needed & GPU_RESOURCE:
        # One whole card, of which the request is the limit, is no unusual amount.
        limit, request = (f'{field}[?"{NVIDIA_CARD}"].orValue("")' for field in fields)
        yield f'!({limit} in ["", "1"]) || {request} != {limit}'


def _claims(_scope: Scope) -> Iterator[str]:
    yield "container.?resources.?claims.hasValue()"


# Images.


def _image_traits(raw: Mapping[str, Any]) -> int:
    image, traits = as_text(raw.get("image")), 0
    if sets_visible_devices(image):
        traits = CUDA_IMAGE
    elif maker_of_image(image) or is_platform_image(image):
        traits = OTHER_MAKER_IMAGE
    return traits | GPU_PROGRAM if is_gpu_sample(image) else traits


def _images(scope: Scope) -> Iterator[str]:
    # Search the whole image name: a mirror has the registry's name in its path, and a port may
    # follow the name.
    registries = (registry.partition("/")[0] for registry in NVIDIA_REGISTRIES)
    known = (*CUDA_TAG_WORDS_BY_IMAGE, *IMAGES_FOR_ANY_MAKER)
    # Several of one owner have one test: each costs API servers time for every container.
    counts = Counter(name.partition("/")[0] for name in known)
    owners = {f"{owner}/" for owner, count in counts.items() if count > 1}
    others = (name for name in known if not name.startswith(tuple(owners)))
    images = (*owners, *others, *SAMPLE_IMAGES)
    of_makers = IMAGE_STEMS if scope.needed & OTHER_MAKER_IMAGE else ()
    tests = any_of(contains("name", {*registries, *images, *of_makers}))
    known_name = f"[image.lowerAscii()].exists(name, {tests})"
    image = f"image.size() > {LONGEST['image']}\n|| {known_name}"
    yield f'[container.?image.orValue("")].exists(image, {image})'


# Variables.

ENV, ENV_FROM_LIST = "container.?env.orValue([])", "container.?envFrom.orValue([])"
_get_name = itemgetter("name")


def variable_traits(env: Any, profile: Profile) -> int:
    """Return the traits of a container with the list `env`."""
    names, traits = _variable_names(env), 0
    found = set(map(profile.variable_traits.get, names))
    if None in found:  # some of the names were not met before
        found = {traits_of_variable(name, profile) for name in names}
    for traits_of_one in found:
        traits |= traits_of_one or 0
    return traits


def _variable_names(env: Any) -> set[str]:
    """The names in `env`; in the usual case at a tenth of what it costs to look at each entry."""
    try:
        return set(map(_get_name, env or ()))
    except (LookupError, TypeError):  # not all are entries with a name
        return {as_text(entry.get("name")) for _, entry in as_objects(env)}


def traits_of_variable(name: Any, profile: Profile) -> int:
    """Return the traits of a container that sets the variable `name`."""
    name = as_text(name)
    traits = LD_VARIABLE if name.startswith(LD_PREFIX) else 0
    is_known = profile.visible_variable(name) is not None
    is_alternative = matches_any(profile.alternative_variables, name)
    if is_named_after_gpus(name) or is_known or is_alternative:
        traits |= GPU_VARIABLE
        if is_alternative or name not in ORDINARY_VARIABLES:
            traits |= OTHER_GPU_VARIABLE
    return profile.variable_traits.store(name, traits)


def _source_traits(raw: Mapping[str, Any]) -> int:
    sources, traits = raw.get("envFrom"), 0
    for _, source in as_objects(sources) if sources else ():
        traits |= GPU_VARIABLE | OTHER_GPU_VARIABLE if source.get("prefix") else ENV_FROM
    return traits


def _variables(scope: Scope) -> Iterator[str]:
    prefix = f'source.?prefix.orValue("") != ""{scope.place("sources")}'
    yield f"{ENV_FROM_LIST}.exists(source, {prefix})"
    names = {name for name in scope.names.variables if not contains_one(name, VARIABLE_WORDS)}
    names |= {f"{prefix}*" for prefix in VARIABLE_PREFIXES}
    tests = (*contains("variable.name", VARIABLE_WORDS), *matches("variable.name", names))
    name = f"variable.name.size() > {LONGEST['variable']}\n|| {any_of(tests)}"
    yield f"{ENV}.exists(variable, {name}{scope.place('variables')})"


def _loader_variables(_scope: Scope) -> Iterator[str]:
    yield f"{ENV}.exists(variable, variable.name.startsWith({json.dumps(LD_PREFIX)}))"


# Mounts.

MOUNTS = "container.?volumeMounts.orValue([])"


def _mount_traits(raw: Mapping[str, Any]) -> int:
    mounts = raw.get("volumeMounts")
    for _, mount in as_objects(mounts) if mounts else ():
        if DEVICE_LIST_FOLDER in as_text(mount.get("mountPath")):
            return DEVICE_LIST_MOUNT
    return 0


def _mounts(_scope: Scope) -> Iterator[str]:
    path = "mount.mountPath"
    # A search costs as much for one character as for ten, and twice as much for eleven.
    tests = [f"{path}.size() > {LONGEST['mount']}", *contains(path, [DEVICE_LIST_FOLDER[:10]])]
    yield f"{MOUNTS}.exists(mount, {any_of(tests)})"


# Privileges, and what privileged containers run.


def _privilege_traits(raw: Mapping[str, Any]) -> int:
    security, traits = raw.get("securityContext"), 0
    if security and isinstance(security, dict):
        added = as_object(security.get("capabilities")).get("add")
        is_privileged = security.get("privileged") is True
        if is_privileged or added or is_host_process(raw):
            traits = PRIVILEGED
        if is_privileged and gpu_program(raw, COMMAND_WORDS):
            traits |= GPU_PROGRAM
    return traits


def _privileges(_scope: Scope) -> Iterator[str]:
    yield PRIVILEGED_CONTAINER
    yield f"container.{HOST_PROCESS}"
    yield ADDED_CAPABILITIES


def _gpu_programs(_scope: Scope) -> Iterator[str]:
    """Yield a test of whether the container is privileged and its commands have something of GPUs.

    A sample image is one of the images.
    """
    word = any_of((f"word.size() > {LONGEST['word']}", *contains("word", COMMAND_WORDS)))
    command = f"words.size() > {MOST['words']}\n|| words.exists(word, {word})"
    fields = ("command", "args", *(f"{'.?'.join(path)}.?command" for path in EXEC_PATHS))
    lists = ", ".join(f"container.?{field}.orValue([])" for field in fields)
    yield f"{PRIVILEGED_CONTAINER} && [{lists}].exists(words, {command})"


# The condition.

_OF_AMOUNTS = GPU_RESOURCE | UNUSUAL_AMOUNT | SEVERAL_GPUS
TESTS: TraitTests = (
    (_OF_AMOUNTS | SHARE | OTHER_GPU_RESOURCE | UNKNOWN_RESOURCE, _resources),
    (CLAIM_IN_CONTAINER, _claims),
    (CUDA_IMAGE | OTHER_MAKER_IMAGE, _images),
    (GPU_VARIABLE, _variables),
    (DEVICE_LIST_MOUNT, _mounts),
    (GPU_PROGRAM, _gpu_programs),
)
TESTS_IN_POLICIES: TraitTests = ((LD_VARIABLE, _loader_variables), (PRIVILEGED, _privileges))
# The place of `_variables` is for those of ConfigMaps, where the webhook knows their variables.
COVERED_BY_VARIABLES = ENV_FROM


def container_tests(scope: Scope) -> Iterator[str]:
    """Yield a test of whether a container has one of the traits, or there are more than MOST."""
    tests = [*tests_of(TESTS + TESTS_IN_POLICIES, scope)]
    if not tests:
        return
    exist = [f"containers.size() > {MOST['containers']}"]
    if scope.needed & (GPU_VARIABLE | LD_VARIABLE):
        exist += [_has_more("variables", ENV)]
    if scope.needed & GPU_VARIABLE:
        exist += [_has_more("sources", ENV_FROM_LIST)]
    if scope.needed & DEVICE_LIST_MOUNT:
        exist += [_has_more("mounts", MOUNTS)]
    exist += [f"containers.exists(container, {any_of(tests)})"]
    yield f"[{CONTAINERS}].exists(containers, {any_of(exist)})"


def _has_more(what: str, items: str) -> str:
    return f"containers.map(container, {items}.size()).sum() > {MOST[what]}"
