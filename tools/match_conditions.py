"""Build the match condition, by which API servers send only pods that a rule may be about.

The condition is one CEL expression. It is generated from the `needs` of the rules, from the words
that the rules look for and from the built-in profiles. It does not depend on the policy: it is true
for every pod in which any rule could find something. At `%name%` the chart inserts the names that
only the profiles in its values list, and what concerns a rule where the webhook has an inventory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from policies.profiles import built_in
from rules.base import traits
from rules.gpu.devices import NATIVE
from rules.gpu.images import CUDA_IMAGES, NVIDIA_REGISTRIES
from rules.rule import Rule
from tools.cel import any_of, contains, matches
from tools.match_bounds import LONGEST, MOST
from tools.match_fields import CONTAINERS, ENV, ENV_FROM
from tools.match_nodes import hints_of_gpu_nodes, node_labels, topology_keys

FILE = "charts/gpuward/files/match-conditions.cel"

# The condition is true for every pod in which a rule finds something due to one of these traits.
COVERED = (
    traits.GPU_RESOURCE,
    traits.ODD_AMOUNT,
    traits.SHARE,
    traits.OTHER_GPU_RESOURCE,
    traits.SEVERAL_GPUS,
    traits.UNKNOWN_RESOURCE,
    traits.CLAIM,
    traits.POD_CLAIM,
    traits.GPU_ANNOTATION,
    traits.GPU_VARIABLE,
    traits.CUDA_IMAGE,
    traits.HOST_PATH,
    traits.GPU_KEY,
    traits.QUOTA,
    traits.DEVICE_CLAIM,
    traits.OBJECTS,
    traits.NODE_CONSTRAINT,  # only on labels of GPU nodes: on others, rules need a GPU as well
    traits.NODE_SELECTION,  # the same
    traits.RUNTIME_CLASS,  # those that a profile lists; all where the webhook knows their handlers
    traits.EPHEMERAL,  # only with resources, which the API server refuses there
    traits.POD_RESOURCES,  # only those that Kubernetes does not define
    traits.ENV_FROM,  # with a prefix; of ConfigMaps where the webhook knows their variables
    traits.TOLERATION,  # only of taints of GPU nodes, in pods with a privileged container
)
# Options of rules that the condition allows for. With `every_container` a rule finds something in
# any pod, so the chart registers no condition where the policy sets it. No other option lets a rule
# find something without its `needs`.
OPTIONS = frozenset(
    {"every_container", "max_devices", "node_devices", "repositories", "require_digest", "writers"}
)


def condition(catalog: Iterable[Rule[Any]]) -> str:
    """Return the condition for these rules as CEL text.

    Raises UncoveredError if the condition would not send every pod that a rule is about.
    """
    for rule in catalog:
        _require_coverage(rule)
    snippets = {
        "Other kinds than pods": ['request.resource.resource != "pods"'],
        "Containers": [f"[{CONTAINERS}].exists(containers, {any_of(_containers())})"],
        "Resources of the pod itself": _of_the_pod(),
        "Annotations and labels": chain(_keys("annotations"), _keys("labels")),
        "Labels of nodes": chain(node_labels(), topology_keys()),
        "Preferred nodes and tolerations of privileged containers": [hints_of_gpu_nodes()],
        "Runtime classes": [_runtime_class()],
        "Paths of the node": _volumes(),
    }
    texts = (f"// {title}\n|| {any_of(tests)}\n" for title, tests in snippets.items())
    return "".join(texts).replace("|| ", "", 1)


class UncoveredError(ValueError):
    """The condition does not send all pods that a rule is about; the message says what to add."""


def _require_coverage(rule: Rule[Any]) -> None:
    """Raise UncoveredError if the rule may find something in a pod that the condition omits."""
    unknown = rule.options.keys() - OPTIONS
    if unknown:
        raise UncoveredError(
            f"{rule.name} has the option {min(unknown)}: if no value of it lets the rule find "
            f"something without its `needs`, add it to OPTIONS in tools/match_conditions.py"
        )
    covered = sum(COVERED)
    if any(not entry & ~covered for entry in rule.needs):
        return
    missing = [traits.names_of(entry & ~covered) for entry in rule.needs]
    raise UncoveredError(
        f"API servers would not send every pod that {rule.name} is about. Each entry of its "
        f"`needs` allows a trait that the match condition does not test: {missing}. Write the "
        "test of one in CEL in tools/match_conditions.py and add the trait to COVERED there, or "
        "give the rule one more entry in `needs` of which all traits are in COVERED."
    )


def _containers() -> Iterator[str]:
    yield f"containers.size() > {MOST['containers']}"
    yield f"containers.map(container, {ENV}.size()).sum() > {MOST['variables']}"
    yield f"containers.map(container, {ENV_FROM}.size()).sum() > {MOST['sources']}"
    tests = chain(_resources(), _images(), _variables())
    yield f"containers.exists(container, {any_of(tests)})"


def _foreign(resources: str) -> str:
    native = json.dumps(sorted(NATIVE))
    return f"{resources}.orValue({{}}).exists(name, !(name in {native}))"


def _resources() -> Iterator[str]:
    yield _foreign("container.?resources.?limits")
    yield _foreign("container.?resources.?requests")
    yield "container.?resources.?claims.hasValue()"


def _of_the_pod() -> Iterator[str]:
    yield _foreign("object.spec.?resources.?limits")
    yield _foreign("object.spec.?resources.?requests")
    yield _foreign("object.spec.?overhead")
    yield "object.spec.?resourceClaims.orValue([]).size() > 0"


def _images() -> Iterator[str]:
    # Search the whole image name: a mirror has the registry's name in its path, and a port may
    # follow the name.
    registries = (registry.partition("/")[0] for registry in NVIDIA_REGISTRIES)
    tests = any_of(contains("name", {*registries, *CUDA_IMAGES}))
    known_name = f"[image.lowerAscii()].exists(name, {tests})"
    image = f"image.size() > {LONGEST['image']}\n|| {known_name}"
    yield f'[container.?image.orValue("")].exists(image, {image})'


def _variables() -> Iterator[str]:
    yield f'{ENV_FROM}.exists(source, source.?prefix.orValue("") != ""%sources%)'
    words, known = traits.VARIABLE_WORDS, ("alternativeVariables", "visibleDevices")
    ordinary = {n for field in known for n in _facts(field) if not _contains_one(n, words)}
    tests = chain(contains("variable.name", words), matches("variable.name", ordinary))
    name = f"variable.name.size() > {LONGEST['variable']}\n|| {any_of(tests)}"
    yield f"{ENV}.exists(variable, {name}%variables%)"


def _keys(field: str) -> Iterator[str]:
    keys = f"object.metadata.?{field}.orValue({{}})"
    yield f"{keys}.size() > {MOST[field]}"
    words = traits.KEY_WORDS + (traits.ANNOTATION_WORDS if field == "annotations" else ())
    tests = [f"key.size() > {LONGEST['key']}", *contains("key.lowerAscii()", words)]
    if field == "labels":
        yield f"{keys}.exists(key, {any_of(tests)})"
        return
    entries = chain(_facts("fractions"), _facts("schedulers"))
    known = {key for entry in entries for key in entry.get("annotations", ())}
    tests += matches("key", {key for key in known if not _contains_one(key, traits.KEY_WORDS)})
    yield f"{keys}.exists(key, {any_of(tests)}%annotations%)"


def _runtime_class() -> str:
    known = any_of(matches("name", set(_facts("runtimeClasses"))))
    return f'[object.spec.?runtimeClassName.orValue("")].exists(name, {known}%runtimeClasses%)'


def _volumes() -> Iterator[str]:
    volumes = "object.spec.?volumes.orValue([])"
    yield f"{volumes}.size() > {MOST['volumes']}"
    yield f"{volumes}.exists(volume, has(volume.hostPath))"


def _contains_one(name: str, words: Iterable[str]) -> bool:
    return any(word in name for word in words)


def _facts(field: str) -> Iterator[Any]:
    """Yield the items of the lists called `field` in all built-in profiles."""
    return chain.from_iterable(raw.get(field, ()) for raw in built_in().values())
