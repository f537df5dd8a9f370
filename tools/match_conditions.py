"""The condition by which API servers tell by themselves which pods concern no rule.

It is one CEL expression, made from what the rules need, from their words and from the built-in
profiles. No policy changes it: it holds for every pod about which any rule could speak.
`%names%` in it are where the chart adds what a profile of a user's own knows besides.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from policies.profiles import built_in
from rules.gpu.devices import NATIVE
from rules.gpu.images import CUDA_IMAGES, NVIDIA_REGISTRIES
from rules.placement.gpu_nodes import SCHEDULE_ANYWAY
from rules.placement.node_affinity import REQUIRED
from rules.rule import Rule
from rules.traits import bits as traits
from tools.cel import either, holds, is_one_of
from tools.match_bounds import LONGEST, MOST
from tools.match_labels import is_label, is_label_of_gpu_nodes

FILE = "charts/gpuward/files/match-conditions.cel"

# The condition holds for every pod with one of these traits about which a rule speaks for it.
COVERED = (
    traits.GPU_RESOURCE,
    traits.ODD_AMOUNT,
    traits.SHARE,
    traits.UNKNOWN_RESOURCE,
    traits.CLAIM,
    traits.GPU_ANNOTATION,
    traits.GPU_VARIABLE,
    traits.CUDA_IMAGE,
    traits.HOST_PATH,
    traits.GPU_KEY,
    traits.QUOTA,
    traits.NODE_CONSTRAINT,  # on labels of GPU nodes: without a GPU, no rule is about other labels
    traits.RUNTIME_CLASS,  # of those that a profile knows
    traits.EPHEMERAL,  # with resources, which no ephemeral container may have
    traits.POD_RESOURCES,  # that are not Kubernetes' own
)
# Options that were looked at. `every_container` alone lets its rule speak of any pod, and where
# a policy sets it the chart registers no condition.
OPTIONS = frozenset({"every_container", "max_devices"})

# Anything may be missing, and these lists may be null: neither must be an error.
CONTAINERS = """optional.ofNonZeroValue(object.spec.?containers.orValue([])).orValue([])
  + object.spec.?initContainers.orValue([])
  + object.spec.?ephemeralContainers.orValue([])"""
TERMS = f"""optional.ofNonZeroValue(object.spec.?affinity.?nodeAffinity
  .?{REQUIRED}
  .?nodeSelectorTerms.orValue([])).orValue([])"""
SPREADS = "object.spec.?topologySpreadConstraints.orValue([])"
NEAR = f"object.spec.?affinity.?podAffinity.?{REQUIRED}.orValue([])"
ENV, ENV_FROM = "container.?env.orValue([])", "container.?envFrom.orValue([])"
EXPRESSIONS = "term.?matchExpressions.orValue([])"


def condition(catalog: Iterable[Rule[Any]]) -> str:
    """The condition for these rules; UncoveredError if it would not send the pods of one."""
    for rule in catalog:
        _require_coverage(rule)
    snippets = {
        "Other kinds than pods": ['request.resource.resource != "pods"'],
        "Containers": [f"[{CONTAINERS}].exists(containers, {either(_containers())})"],
        "Resources of the pod itself": _of_the_pod(),
        "Annotations and labels": chain(_keys("annotations"), _keys("labels")),
        "Labels of nodes": chain(_node_labels(), _topology_keys()),
        "Runtime classes": [_runtime_class()],
        "Paths of the node": _volumes(),
    }
    texts = (f"// {title}\n|| {either(tests)}\n" for title, tests in snippets.items())
    return "".join(texts).replace("|| ", "", 1)


class UncoveredError(ValueError):
    """The condition does not send all pods that a rule is about; the text says what to write."""


def _require_coverage(rule: Rule[Any]) -> None:
    """Refuse a rule that may find something in a pod which the condition does not send."""
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
    yield f"containers.exists(container, {either(tests)})"


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


def _images() -> Iterator[str]:
    # Mirrors keep the name of the registry in the path, and a port may follow it.
    registries = (registry.partition("/")[0] for registry in NVIDIA_REGISTRIES)
    tests = either(holds("name", {*registries, *CUDA_IMAGES}))
    named = f"[image.lowerAscii()].exists(name, {tests})"
    image = f"image.size() > {LONGEST['image']}\n|| {named}"
    yield f'[container.?image.orValue("")].exists(image, {image})'


def _variables() -> Iterator[str]:
    yield f'{ENV_FROM}.exists(source, source.?prefix.orValue("") != "")'
    words, known = traits.VARIABLE_WORDS, _facts("alternativeVariables")
    ordinary = {name for name in known if not _has_one(name, words)}
    tests = chain(holds("variable.name", words), is_one_of("variable.name", ordinary))
    name = f"variable.name.size() > {LONGEST['variable']}\n|| {either(tests)}"
    yield f"{ENV}.exists(variable, {name}%variables%)"


def _keys(field: str) -> Iterator[str]:
    keys = f"object.metadata.?{field}.orValue({{}})"
    yield f"{keys}.size() > {MOST[field]}"
    tests = [f"key.size() > {LONGEST['key']}", *holds("key.lowerAscii()", traits.KEY_WORDS)]
    if field == "labels":
        yield f"{keys}.exists(key, {either(tests)})"
        return
    ways = chain(_facts("fractions"), _facts("schedulers"))
    asking = {key for way in ways for key in way.get("annotations", ())}
    tests += is_one_of("key", {key for key in asking if not _has_one(key, traits.KEY_WORDS)})
    yield f"{keys}.exists(key, {either(tests)}%annotations%)"


def _node_labels() -> Iterator[str]:
    chosen = "object.spec.?nodeSelector.orValue({})"
    yield f"{chosen}.size() > {MOST['nodeSelector']}"
    label = either(is_label("key", "[object.spec.nodeSelector[key]]"))
    yield f"{chosen}.exists(key, {label}%nodeSelector%)"
    yield f"[{TERMS}].exists(terms, {either(_terms())})"


def _terms() -> Iterator[str]:
    yield f"terms.size() > {MOST['terms']}"
    yield f"terms.map(term, {EXPRESSIONS}.size()).sum() > {MOST['expressions']}"
    values = "expression.?values.orValue([])"
    sizes = f"{EXPRESSIONS}.map(expression, {values}.size()).sum()"
    yield f"terms.map(term, {sizes}).sum() > {MOST['values']}"
    away = 'expression.operator in ["DoesNotExist", "NotIn"]'
    label = either(is_label("expression.key", values, 'expression.operator != "In" || '))
    wanted = f"!({away}) && ({label}%nodeAffinity%)"
    yield f"terms.exists(term, {EXPRESSIONS}.exists(expression, {wanted}))"


def _topology_keys() -> Iterator[str]:
    yield f"{SPREADS}.size() > {MOST['topologySpreadConstraints']}"
    yield f"{NEAR}.size() > {MOST['podAffinity']}"
    spreads = f'{SPREADS}.filter(spread, spread.whenUnsatisfiable != "{SCHEDULE_ANYWAY}")'
    keys = f"({spreads}.map(spread, spread.topologyKey)\n  + {NEAR}.map(term, term.topologyKey))"
    yield f"{keys}.exists(key, {either(is_label_of_gpu_nodes('key'))}%nodeSelector%)"


def _runtime_class() -> str:
    known = either(is_one_of("name", set(_facts("runtimeClasses"))))
    return f'[object.spec.?runtimeClassName.orValue("")].exists(name, {known}%runtimeClasses%)'


def _volumes() -> Iterator[str]:
    volumes = "object.spec.?volumes.orValue([])"
    yield f"{volumes}.size() > {MOST['volumes']}"
    yield f"{volumes}.exists(volume, has(volume.hostPath))"


def _has_one(name: str, words: Iterable[str]) -> bool:
    return any(word in name for word in words)


def _facts(field: str) -> Iterator[Any]:
    """What the lists called `field` hold in the built-in profiles."""
    return chain.from_iterable(raw.get(field, ()) for raw in built_in().values())
