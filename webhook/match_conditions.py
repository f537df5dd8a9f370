"""The match condition: by it API servers look no further at pods that no rule can be about.

The condition is one CEL expression, made of the `needs` of rules, of the words that they look for
and of profiles. It is true for every pod in which one of these rules could find something.

- The chart has the condition of all rules and all built-in profiles in its webhook entries: it does
  not depend on the policy. At `%name%` the chart inserts the names that only the profiles in its
  values list, and what concerns a rule where the webhook has an inventory.
- An exported policy has the condition of its own rules and of its policy's profile. It tests what
  these rules need, and no more: one about privileged containers passes over all other pods.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from rules.base import traits
from rules.gpu.commands import EXEC_PATHS
from rules.gpu.components import DAEMON_SET_CONTROLLERS
from rules.gpu.devices import NATIVE_RESOURCES
from rules.gpu.images import CUDA_TAG_WORDS_BY_IMAGE, IMAGES_FOR_ANY_MAKER, NVIDIA_REGISTRIES
from rules.inventory.inventory import HOSTNAME_LABEL
from rules.objects.pod import DEFAULT_SCHEDULER
from rules.placement.gpu_nodes import LABELS_OF_EVERY_NODE, SCHEDULE_ANYWAY
from rules.placement.named_nodes import NAME_FIELD
from rules.placement.node_affinity import PREFERRED_AFFINITY, REQUIRED_AFFINITY
from rules.profile.platforms.makers import IMAGE_STEMS
from rules.profile.profile import Profile
from rules.rule import Rule

# The condition is true for every pod in which a rule finds something due to one of these traits.
COVERED = (
    traits.GPU_RESOURCE,
    traits.UNUSUAL_AMOUNT,
    traits.SHARE,
    traits.OTHER_GPU_RESOURCE,
    traits.SEVERAL_GPUS,
    traits.UNKNOWN_RESOURCE,
    traits.CLAIM_IN_CONTAINER,
    traits.RESOURCE_CLAIMS_OF_POD,
    traits.GPU_ANNOTATION,
    traits.GPU_VARIABLE,
    traits.CUDA_IMAGE,
    traits.OTHER_MAKER_IMAGE,
    traits.HOST_PATH,
    traits.DEVICE_LIST_MOUNT,
    traits.GPU_METADATA_KEY,
    traits.OLD_GPU_KEY,
    traits.QUOTA,
    traits.CLAIM_OBJECT,
    traits.WHOLE_OBJECTS,
    traits.NODE_CONSTRAINT,  # only on labels of GPU nodes: on others, rules need a GPU as well
    traits.NODE_SELECTION,  # the same
    traits.RUNTIME_CLASS,  # those that a profile lists; all where the webhook knows their handlers
    traits.EPHEMERAL_CONTAINER,  # only with resources, which the API server refuses there
    traits.POD_RESOURCES,  # only those that Kubernetes does not define
    traits.ENV_FROM,  # with a prefix; of ConfigMaps where the webhook knows their variables
    traits.GPU_PROGRAM,
    traits.TOLERATION,  # only of taints of GPU nodes, in pods with privileges
    traits.KNOWN_GPU_NODES,  # where the webhook knows them: pods with privileges that name a node
)
# What the condition of an exported policy can test besides.
COVERED_IN_POLICIES = (
    *(traits.PRIVILEGED, traits.NODE_NAME, traits.PRIORITY_CLASS),
    *(traits.HOST_NAMESPACE, traits.LD_VARIABLE),
    *(traits.CUSTOM_SCHEDULER, traits.RESERVING_POD),
)
# Traits of COVERED whose test in CEL is narrower than the trait. Where the trait is there and the
# test is false, rules find something only in pods that have a GPU as well.
NOT_WITHOUT_A_GPU = (
    *(traits.NODE_CONSTRAINT, traits.NODE_SELECTION),
    *(traits.POD_RESOURCES, traits.TOLERATION),
)
# Those of resources by other names than that of NVIDIA's cards.
OTHER_RESOURCE_TRAITS = traits.OTHER_GPU_RESOURCE | traits.UNKNOWN_RESOURCE
# Those whose tests count what an exported policy counts.
SIZED_TRAITS = traits.GPU_VARIABLE | traits.DEVICE_LIST_MOUNT | traits.HOST_PATH
KEY_TRAITS = traits.GPU_ANNOTATION | traits.GPU_METADATA_KEY | traits.OLD_GPU_KEY
NODE_TRAITS = traits.NODE_CONSTRAINT | traits.NODE_SELECTION
# Options of rules that the condition allows for. With `every_container` a rule finds something in
# any pod, so the chart registers no condition where the policy sets it. No other option lets a rule
# find something without its `needs`.
OPTIONS = frozenset(
    {
        *("every_container", "max_devices", "namespaces", "node_devices", "repositories"),
        *("controllers", "require_digest", "reserved", "writers"),
    }
)

# The API server stops a condition that becomes too expensive, which is an error: with failurePolicy
# Ignore, a padded pod would bypass gpuward. So the condition sends every pod that has more of
# something than MOST, or a text of more characters than LONGEST.
MOST = {"containers": 64, "variables": 400, "sources": 100, "mounts": 200, "volumes": 200}
MOST |= {"annotations": 150, "labels": 150, "nodeSelector": 50}
MOST |= {"terms": 50, "expressions": 50, "values": 300}
MOST |= {"topologySpreadConstraints": 20, "podAffinity": 20, "tolerations": 20}
# Of the preferred node affinity, which is read in privileged pods only.
MOST_PREFERRED = {"terms": 5, "expressions": 5, "values": 20}
# In `command` or `args` of one privileged container, or in the command of a hook or a probe.
MOST |= {"words": 4}
LONGEST = {"variable": 100, "key": 100, "value": 63, "image": 256, "mount": 100, "word": 100}
# Names of resources in the limits of all containers; only exported policies count them.
MOST_RESOURCES = 100
# How many names the profiles of a user may add to those of the built-in ones. With more, there is
# no condition.
MOST_OWN_NAMES = 50

# Fields may be missing and these lists may be null; neither may make the condition fail.
CONTAINERS = """optional.ofNonZeroValue(object.spec.?containers.orValue([])).orValue([])
  + object.spec.?initContainers.orValue([])
  + object.spec.?ephemeralContainers.orValue([])"""
TERMS = f"""optional.ofNonZeroValue(object.spec.?affinity.?nodeAffinity
  .?{REQUIRED_AFFINITY}
  .?nodeSelectorTerms.orValue([])).orValue([])"""
PREFERENCES = f"""optional.ofNonZeroValue(object.spec.?affinity.?nodeAffinity
  .?{PREFERRED_AFFINITY}.orValue([])).orValue([]).map(choice, choice.preference)"""
TOLERATIONS = "object.spec.?tolerations.orValue([])"
PRIVILEGED = "container.?securityContext.?privileged.orValue(false)"
ADDED_CAPABILITIES = "container.?securityContext.?capabilities.?add.orValue([]).size() > 0"
HOST_PROCESS = "?securityContext.?windowsOptions.?hostProcess.orValue(false)"
SPREADS = "object.spec.?topologySpreadConstraints.orValue([])"
NEAR = f"object.spec.?affinity.?podAffinity.?{REQUIRED_AFFINITY}.orValue([])"
ENV, ENV_FROM = "container.?env.orValue([])", "container.?envFrom.orValue([])"
MOUNTS = "container.?volumeMounts.orValue([])"
EXPRESSIONS = "term.?matchExpressions.orValue([])"
FIELDS = "term.?matchFields.orValue([])"
VALUES = "expression.?values.orValue([])"


class _Scope(NamedTuple):
    """What a condition is about.

    The first five are what profiles call by name. `needed` are the traits that it tests. With
    `has_places` it is that of the chart: it tests everything, and has places for more names.
    """

    annotations: Collection[str]
    variables: Collection[str]
    runtime_classes: Collection[str]
    taints: Collection[str]
    node_labels: Mapping[str, Collection[str]]
    needed: int
    has_places: bool

    def place(self, name: str) -> str:
        """The place for further names."""
        return f"%{name}%" if self.has_places else ""


def condition(
    catalog: Iterable[Rule[Any]],
    profiles: Iterable[Profile],
    *,
    has_places: bool = False,
    with_large_pods: bool = False,
) -> str:
    """Return the condition for these rules and profiles as CEL text.

    With `has_places` it has places such as `%variables%`, where the chart inserts further names.
    With `with_large_pods` it is also true for every pod that has more of something than MOST.

    Raises UncoveredError if the condition would not be true for every pod that a rule is about.
    """
    needed = _needed(catalog, whole=has_places)
    if with_large_pods:
        needed |= SIZED_TRAITS
    scope = _scope(profiles, needed, has_places=has_places)
    containers = [*_containers(scope)]
    snippets = {
        "Other kinds than pods": ['request.resource.resource != "pods"'],
        "Containers": [f"[{CONTAINERS}].exists(containers, {_any_of(containers)})"]
        if containers
        else [],
        "Resources of the pod itself": _of_the_pod(scope),
        "Annotations and labels": chain(_keys("annotations", scope), _keys("labels", scope)),
        "Labels of nodes": chain(_node_labels(scope), _topology_keys(scope)),
        "Preferred nodes and tolerations of privileged containers": _hints_of_gpu_nodes(scope),
        "Runtime classes": _runtime_class(scope),
        "Paths of the node": _volumes(scope),
        "Other fields": _fields(scope),
        "More than is evaluated": _sizes() if with_large_pods else (),
    }
    tests = ((title, [*found]) for title, found in snippets.items())
    texts = (f"// {title}\n|| {_any_of(found)}\n" for title, found in tests if found)
    return "".join(texts).replace("|| ", "", 1)


def _needed(rules: Iterable[Rule[Any]], *, whole: bool) -> int:
    """Return the traits that the condition of `rules` must test; with `whole` all of COVERED.

    Raises UncoveredError if it would not be true for every pod that a rule is about.
    """
    covered, needed, of_nodes = sum(COVERED), 0, sum(NOT_WITHOUT_A_GPU)
    if not whole:
        covered |= sum(COVERED_IN_POLICIES)
    for rule in rules:
        _require_coverage(rule, covered)
        testable = (entry for entry in rule.needs if not entry & ~covered)
        needed |= min(testable, key=_price_of_entry)
    if needed & of_nodes:
        needed |= traits.GPU
    return sum(COVERED) if whole else needed


def _price_of_entry(entry: int) -> tuple[bool, bool, int]:
    """What an entry of `needs` costs: its tests, and that other pods are evaluated.

    Tests of the labels of nodes are long. A test of GPU resources lets in every GPU pod.
    """
    is_of_nodes, is_of_gpus = entry & sum(NOT_WITHOUT_A_GPU), entry & traits.GPU_RESOURCE
    return bool(is_of_nodes), bool(is_of_gpus), entry.bit_count()


def count_own_names(profile: Profile, built_in: Iterable[Profile]) -> int:
    """Return how many names `profile` adds to those of the `built_in` ones."""
    own, known = (_scope(each, 0, has_places=False) for each in ((profile,), built_in))
    return sum(len({*names} - {*others}) for names, others in zip(own[:5], known[:5], strict=True))


class UncoveredError(ValueError):
    """The condition does not send all pods that a rule is about; the message says what to add."""


def _scope(profiles: Iterable[Profile], needed: int, *, has_places: bool) -> _Scope:
    labels: dict[str, set[str]] = {}
    profiles = tuple(profiles)
    for profile in profiles:
        for name, values in profile.node_labels.items():
            labels.setdefault(name, set()).update(values or ["*"])
        for name in profile.node_modes:
            labels.setdefault(name, set()).add("*")
    return _Scope(
        annotations={key for profile in profiles for key in profile.request_annotations},
        variables={
            name for p in profiles for name in (*p.alternative_variables, *p.visible_devices)
        },
        runtime_classes={name for profile in profiles for name in profile.runtime_classes},
        taints={taint.key for profile in profiles for taint in profile.taints},
        node_labels=labels,
        needed=needed,
        has_places=has_places,
    )


def _require_coverage(rule: Rule[Any], covered: int) -> None:
    """Raise UncoveredError if the rule may find something in a pod that the condition omits."""
    unknown = rule.options.keys() - OPTIONS
    if unknown:
        raise UncoveredError(
            f"{rule.name} has the option {min(unknown)}: if no value of it lets the rule find "
            f"something without its `needs`, add it to OPTIONS in webhook/match_conditions.py"
        )
    if any(not entry & ~covered for entry in rule.needs):
        return
    missing = [traits.names_of(entry & ~covered) for entry in rule.needs]
    raise UncoveredError(
        f"API servers would not send every pod that {rule.name} is about. Each entry of its "
        f"`needs` allows a trait that the match condition does not test: {missing}. Write the "
        "test of one in CEL in webhook/match_conditions.py and add the trait to COVERED there, or "
        "give the rule one more entry in `needs` of which all traits are in COVERED."
    )


def _containers(scope: _Scope) -> Iterator[str]:
    tests = [
        *chain(_resources(scope), _images(scope), _variables(scope), _mounts(scope)),
        *chain(_gpu_programs(scope), _loader_variables(scope), _privileges(scope)),
    ]
    if not tests:
        return
    yield f"containers.size() > {MOST['containers']}"
    if scope.needed & (traits.GPU_VARIABLE | traits.LD_VARIABLE):
        yield f"containers.map(container, {ENV}.size()).sum() > {MOST['variables']}"
    if scope.needed & traits.GPU_VARIABLE:
        yield f"containers.map(container, {ENV_FROM}.size()).sum() > {MOST['sources']}"
    if scope.needed & traits.DEVICE_LIST_MOUNT:
        yield f"containers.map(container, {MOUNTS}.size()).sum() > {MOST['mounts']}"
    yield f"containers.exists(container, {_any_of(tests)})"


def _foreign(resources: str, ordinary: Collection[str]) -> str:
    return f"{resources}.orValue({{}}).exists(name, !(name in {json.dumps(sorted(ordinary))}))"


def _resources(scope: _Scope) -> Iterator[str]:
    fields = ("container.?resources.?limits", "container.?resources.?requests")
    if scope.needed & traits.GPU_RESOURCE:
        yield from (_foreign(field, NATIVE_RESOURCES) for field in fields)
    elif scope.needed & (traits.UNUSUAL_AMOUNT | traits.SEVERAL_GPUS):
        # One whole card, of which the request is the limit, is no unusual amount.
        limit, request = (f'{field}[?"{traits.NVIDIA_CARD}"].orValue("")' for field in fields)
        yield from (_foreign(field, NATIVE_RESOURCES | {traits.NVIDIA_CARD}) for field in fields)
        yield f'!({limit} in ["", "1"]) || {request} != {limit}'
    elif scope.needed & (traits.SHARE | OTHER_RESOURCE_TRAITS):
        ordinary = NATIVE_RESOURCES | {traits.NVIDIA_CARD}
        yield from (_foreign(field, ordinary) for field in fields)
    if scope.needed & traits.CLAIM_IN_CONTAINER:
        yield "container.?resources.?claims.hasValue()"


def _of_the_pod(scope: _Scope) -> Iterator[str]:
    if scope.needed & traits.POD_RESOURCES:
        yield _foreign("object.spec.?resources.?limits", NATIVE_RESOURCES)
        yield _foreign("object.spec.?resources.?requests", NATIVE_RESOURCES)
        yield _foreign("object.spec.?overhead", NATIVE_RESOURCES)
    if scope.needed & traits.RESOURCE_CLAIMS_OF_POD:
        yield "object.spec.?resourceClaims.orValue([]).size() > 0"


def _images(scope: _Scope) -> Iterator[str]:
    if not scope.needed & (traits.CUDA_IMAGE | traits.OTHER_MAKER_IMAGE):
        return
    # Search the whole image name: a mirror has the registry's name in its path, and a port may
    # follow the name.
    registries = (registry.partition("/")[0] for registry in NVIDIA_REGISTRIES)
    images = (*CUDA_TAG_WORDS_BY_IMAGE, *IMAGES_FOR_ANY_MAKER, *traits.SAMPLE_IMAGES)
    of_makers = IMAGE_STEMS if scope.needed & traits.OTHER_MAKER_IMAGE else ()
    tests = _any_of(_contains("name", {*registries, *images, *of_makers}))
    known_name = f"[image.lowerAscii()].exists(name, {tests})"
    image = f"image.size() > {LONGEST['image']}\n|| {known_name}"
    yield f'[container.?image.orValue("")].exists(image, {image})'


def _variables(scope: _Scope) -> Iterator[str]:
    if not scope.needed & traits.GPU_VARIABLE:
        return
    prefix = f'source.?prefix.orValue("") != ""{scope.place("sources")}'
    yield f"{ENV_FROM}.exists(source, {prefix})"
    words = traits.VARIABLE_WORDS
    names = {name for name in scope.variables if not _contains_one(name, words)}
    names |= {f"{prefix}*" for prefix in traits.VARIABLE_PREFIXES}
    tests = chain(_contains("variable.name", words), _matches("variable.name", names))
    name = f"variable.name.size() > {LONGEST['variable']}\n|| {_any_of(tests)}"
    yield f"{ENV}.exists(variable, {name}{scope.place('variables')})"


def _mounts(scope: _Scope) -> Iterator[str]:
    if not scope.needed & traits.DEVICE_LIST_MOUNT:
        return
    path = "mount.mountPath"
    # A search costs as much for one character as for ten, and twice as much for eleven.
    tests = [f"{path}.size() > {LONGEST['mount']}"]
    tests += _contains(path, [traits.DEVICE_LIST_FOLDER[:10]])
    yield f"{MOUNTS}.exists(mount, {_any_of(tests)})"


def _gpu_programs(scope: _Scope) -> Iterator[str]:
    """Yield a test of whether the container is privileged and runs a program for GPUs."""
    if not scope.needed & traits.GPU_PROGRAM:
        return
    word = _any_of((f"word.size() > {LONGEST['word']}", *_contains("word", traits.PROGRAM_WORDS)))
    command = f"words.size() > {MOST['words']}\n|| words.exists(word, {word})"
    fields = ("command", "args", *(f"{'.?'.join(path)}.?command" for path in EXEC_PATHS))
    lists = ", ".join(f"container.?{field}.orValue([])" for field in fields)
    yield f"{PRIVILEGED} && [{lists}].exists(words, {command})"


def _loader_variables(scope: _Scope) -> Iterator[str]:
    if scope.needed & traits.LD_VARIABLE:
        yield f"{ENV}.exists(variable, variable.name.startsWith({json.dumps(traits.LD_PREFIX)}))"


def _privileges(scope: _Scope) -> Iterator[str]:
    if scope.needed & traits.PRIVILEGED:
        yield PRIVILEGED
        yield f"container.{HOST_PROCESS}"
        yield ADDED_CAPABILITIES


def _fields(scope: _Scope) -> Iterator[str]:
    if scope.has_places:
        return
    if scope.needed & traits.PRIVILEGED:
        yield f"object.spec.{HOST_PROCESS}"
    if scope.needed & traits.HOST_NAMESPACE:
        yield "object.spec.?hostPID.orValue(false)"
        yield "object.spec.?hostIPC.orValue(false)"
    if scope.needed & traits.NODE_NAME:
        yield 'object.spec.?nodeName.orValue("") != ""'
    if scope.needed & traits.PRIORITY_CLASS:
        yield 'object.spec.?priorityClassName.orValue("") != ""'
    if scope.needed & traits.CUSTOM_SCHEDULER:
        known = json.dumps(["", DEFAULT_SCHEDULER])
        yield f'!(object.spec.?schedulerName.orValue("") in {known})'
    if scope.needed & traits.RESERVING_POD:
        label, value = map(json.dumps, traits.RESERVATION_LABEL)
        yield f'object.metadata.?labels[?{label}].orValue("") == {value}'
    if scope.needed & traits.EPHEMERAL_CONTAINER:
        yield "object.spec.?ephemeralContainers.orValue([]).size() > 0"


def _sizes() -> Iterator[str]:
    """Yield tests of whether a pod has more of something than MOST that no trait is about.

    Of what SIZED_TRAITS are about, their own tests say it.
    """
    resources = "container.?resources.?limits.orValue({}).size()"
    many = f"containers.map(container, {resources}).sum() > {MOST_RESOURCES}"
    yield f"[{CONTAINERS}].exists(containers, {many})"
    yield f"object.metadata.?annotations.orValue({{}}).size() > {MOST['annotations']}"
    yield f"object.spec.?nodeSelector.orValue({{}}).size() > {MOST['nodeSelector']}"
    yield f"{TOLERATIONS}.size() > {MOST['tolerations']}"
    for terms in (TERMS, PREFERENCES):
        yield f"[{terms}].exists(terms, {_any_of(_sizes_of_terms(MOST))})"


def _keys(field: str, scope: _Scope) -> Iterator[str]:
    """Yield tests of the keys in `field`; at an update, also of those that it removes."""
    if not scope.needed & KEY_TRAITS:
        return
    most, is_update = MOST[field], 'request.operation == "UPDATE"'
    keys, old_keys = (
        f"{which}.metadata.?{field}.orValue({{}})" for which in ("object", "oldObject")
    )
    yield f"{keys}.size() > {most}"
    yield f"{is_update} && {old_keys}.size() > {most}"
    removed = f"({is_update} ? {old_keys}.filter(key, !(key in {keys})) : [])"
    more = traits.ANNOTATION_WORDS if field == "annotations" else traits.LABEL_WORDS
    words = (*traits.KEY_WORDS, *more)
    has_word = f"[key.lowerAscii()].exists(lower, {_any_of(_contains('lower', words))})"
    tests = [f"key.size() > {LONGEST['key']}", has_word]
    own = ""
    if field == "annotations":
        known = {key for key in scope.annotations if not _contains_one(key, words)}
        tests += _matches("key", known)
        own = scope.place("annotations")
    exists = f"keys.size() > {most} || keys.exists(key, {_any_of(tests)}{own})"
    yield f"[{keys}.map(key, key) + {removed}].exists(keys, {exists})"


def _runtime_class(scope: _Scope) -> Iterator[str]:
    if scope.needed & traits.RUNTIME_CLASS:
        known = _any_of(_matches("name", scope.runtime_classes)) + scope.place("runtimeClasses")
        yield f'[object.spec.?runtimeClassName.orValue("")].exists(name, {known})'


def _volumes(scope: _Scope) -> Iterator[str]:
    if scope.needed & traits.HOST_PATH:
        volumes = "object.spec.?volumes.orValue([])"
        yield f"{volumes}.size() > {MOST['volumes']}"
        yield f"{volumes}.exists(volume, has(volume.hostPath))"


def _contains_one(name: str, words: Iterable[str]) -> bool:
    return any(word in name for word in words)


def _node_labels(scope: _Scope) -> Iterator[str]:
    """Yield tests of whether the pod requires a label of GPU nodes."""
    if not scope.needed & NODE_TRAITS:
        return
    selector = "object.spec.?nodeSelector.orValue({})"
    yield f"{selector}.size() > {MOST['nodeSelector']}"
    label = _any_of(_is_label(scope, "key", "[object.spec.nodeSelector[key]]"))
    yield f"{selector}.exists(key, {label}{scope.place('nodeSelector')})"
    yield f"[{TERMS}].exists(terms, {_any_of(_terms(MOST, scope))})"


def _hints_of_gpu_nodes(scope: _Scope) -> Iterator[str]:
    """Yield a test of whether a pod with privileges prefers GPU nodes or tolerates their taints."""
    if not scope.needed & traits.TOLERATION:
        return
    tests = _any_of((PRIVILEGED, f"container.{HOST_PROCESS}", ADDED_CAPABILITIES))
    privileged = f"object.spec.{HOST_PROCESS}\n|| ({CONTAINERS}).exists(container, {tests})"
    known = [*_is_label_of_gpu_nodes(scope, "toleration.key")]
    unknown = {key for key in scope.taints if not _contains_one(key, traits.KEY_WORDS)}
    known += _matches("toleration.key", unknown)
    tests = _any_of(known) + scope.place("tolerations")
    key = f"toleration.?key.hasValue() && ({tests})"
    hints = (
        f"{TOLERATIONS}.size() > {MOST['tolerations']}",
        f"{TOLERATIONS}.exists(toleration, {key})",
        f"[{PREFERENCES}].exists(terms, {_any_of(_terms(MOST_PREFERRED, scope))})",
        *_names_of_nodes(scope),
    )
    yield f"({privileged}) && ({_any_of(hints)})"


def _names_of_nodes(scope: _Scope) -> Iterator[str]:
    """Yield a test of whether the pod selects a node by its name, where the webhook knows names.

    The controller of DaemonSets writes the name of a node into each of their pods.
    """
    if not scope.has_places:
        return
    host, name, agents = map(json.dumps, (HOSTNAME_LABEL, NAME_FIELD, DAEMON_SET_CONTROLLERS))
    terms = (
        f"{EXPRESSIONS}.exists(expression, expression.key == {host})",
        f"{FIELDS}.exists(field, field.key == {name})",
    )
    many = f"terms.map(term, {FIELDS}.size()).sum() > {MOST['expressions']}"
    tests = (
        'request.operation == "CREATE" && object.spec.?nodeName.orValue("") != ""',
        f"{host} in object.spec.?nodeSelector.orValue({{}})",
        f"[{TERMS}].exists(terms, {many} || terms.exists(term, {_any_of(terms)}))",
    )
    is_agent = f"request.userInfo.username in {agents}"
    yield f"{scope.place('knowsNodes')} && !({is_agent}) && ({_any_of(tests)})"


def _sizes_of_terms(most: Mapping[str, int]) -> Iterator[str]:
    yield f"terms.size() > {most['terms']}"
    yield f"terms.map(term, {EXPRESSIONS}.size()).sum() > {most['expressions']}"
    sizes = f"{EXPRESSIONS}.map(expression, {VALUES}.size()).sum()"
    yield f"terms.map(term, {sizes}).sum() > {most['values']}"


def _terms(most: Mapping[str, int], scope: _Scope) -> Iterator[str]:
    yield from _sizes_of_terms(most)
    excludes = 'expression.operator in ["DoesNotExist", "NotIn"]'
    is_label = _is_label(scope, "expression.key", VALUES, 'expression.operator != "In" || ')
    requires = f"!({excludes}) && ({_any_of(is_label)}{scope.place('nodeAffinity')})"
    yield f"terms.exists(term, {EXPRESSIONS}.exists(expression, {requires}))"


def _topology_keys(scope: _Scope) -> Iterator[str]:
    """Yield tests of whether a required spread or affinity to pods has a label of GPU nodes."""
    if not scope.needed & NODE_TRAITS:
        return
    yield f"{SPREADS}.size() > {MOST['topologySpreadConstraints']}"
    yield f"{NEAR}.size() > {MOST['podAffinity']}"
    spreads = f'{SPREADS}.filter(spread, spread.whenUnsatisfiable != "{SCHEDULE_ANYWAY}")'
    keys = f"({spreads}.map(spread, spread.topologyKey)\n  + {NEAR}.map(term, term.topologyKey))"
    label = _any_of(_is_label_of_gpu_nodes(scope, "key")) + scope.place("nodeSelector")
    yield f"{keys}.exists(key, {label})"


def _is_label(scope: _Scope, key: str, values: str, extra_test: str = "") -> Iterator[str]:
    """Yield tests of whether a condition on a node label asks for GPU nodes.

    `key` and `values` are CEL expressions: the label's key, and the list of values asked for. A
    label that other nodes have as well asks for GPU nodes by one of its values. `extra_test` is
    put in front of that test of the values; it must end with its operator.
    """
    known, shared = _known_labels(scope)
    yield from _of_gpu_nodes(key, known.keys() - shared)
    by_values: dict[frozenset[str], set[str]] = {}
    for name in shared:
        by_values.setdefault(
            frozenset(_starts_with("value", _leading_letters(known[name]))), set()
        ).add(name)
    for tests, labels in sorted(by_values.items(), key=lambda pair: sorted(pair[1])):
        test = _any_of([f"value.size() > {LONGEST['value']}", *sorted(tests)])
        prefix = "" if labels <= LABELS_OF_EVERY_NODE else extra_test
        value = f"{values}.exists(value, {test})"
        yield f"{_any_of(_matches(key, labels))} && ({prefix}{value})"


def _is_label_of_gpu_nodes(scope: _Scope, key: str) -> Iterator[str]:
    """Yield tests of whether only GPU nodes have the label; `key` is a CEL expression."""
    known, _ = _known_labels(scope)
    yield from _of_gpu_nodes(key, known.keys() - LABELS_OF_EVERY_NODE)


def _of_gpu_nodes(key: str, names: Collection[str]) -> Iterator[str]:
    yield f"{key}.size() > {LONGEST['key']}"
    yield from _contains(key, traits.KEY_WORDS)
    yield from _matches(key, names)


def _known_labels(scope: _Scope) -> tuple[dict[str, Collection[str]], set[str]]:
    """Return the labels of GPU nodes with their values, and those that other nodes have as well.

    Labels that contain one of `KEY_WORDS` are left out, because those words have their own test.
    """
    known = {n: v for n, v in scope.node_labels.items() if not _contains_one(n, traits.KEY_WORDS)}
    shared = {
        n
        for n, v in known.items()
        if any("*" in value for value in v) and "" not in _leading_letters(v)
    }
    return known, shared | (known.keys() & LABELS_OF_EVERY_NODE)


# Tests in CEL, the expression language of match conditions. A parameter called `text` is a CEL
# expression of a string, such as `variable.name`.


def _any_of(tests: Iterable[str]) -> str:
    """Return one expression that is true if any of `tests` is, with each test on its own line."""
    return "\n|| ".join(test.replace("\n", "\n  ") for test in tests)


def _contains(text: str, words: Collection[str]) -> Iterator[str]:
    """Yield tests of whether `text` contains one of `words`.

    A word that contains another word of `words` needs no test of its own.
    """
    for word in sorted(words):
        if not any(other in word for other in words if other != word):
            yield f"{text}.contains({json.dumps(word)})"


def _starts_with(text: str, prefixes: Collection[str]) -> Iterator[str]:
    """Yield tests of whether `text` starts with one of `prefixes`.

    A prefix that starts with another one of `prefixes` needs no test of its own.
    """
    for prefix in sorted(prefixes):
        if not any(prefix.startswith(other) for other in prefixes if other != prefix):
            yield f"{text}.startsWith({json.dumps(prefix)})"


def _matches(text: str, patterns: Collection[str]) -> Iterator[str]:
    """Yield tests of whether `text` may match one of `patterns`, in which `*` is any text.

    Only the part of a pattern before its first `*` is tested.
    """
    prefixes = {pattern.partition("*")[0] for pattern in patterns if "*" in pattern}
    names = sorted(p for p in patterns if "*" not in p and not p.startswith(tuple(prefixes)))
    if names:
        yield f"{text} in {json.dumps(names)}"
    yield from _starts_with(text, prefixes)


def _leading_letters(patterns: Iterable[str]) -> set[str]:
    """Return the letters and underscores that each of `patterns` starts with.

    They are enough to tell the values of one node label apart, and cheap to test.
    """
    return {re.split("[^A-Za-z_]", pattern, maxsplit=1)[0] for pattern in patterns}
