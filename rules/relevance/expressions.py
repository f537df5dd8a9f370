"""The material of the CEL tests of traits: bounds, names of profiles, and parts of expressions.

A parameter called `text` or `key` is a CEL expression of a string, such as `variable.name`.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from rules.profile.profile import Profile

# The API server stops a condition that becomes too expensive, which is an error: with failurePolicy
# Ignore, a padded pod would bypass gpuward. So the condition sends every pod that has more of
# something than MOST, or a text of more characters than LONGEST.
MOST = {"containers": 64, "variables": 400, "sources": 100, "mounts": 200, "volumes": 200}
MOST |= {"annotations": 150, "labels": 150, "nodeSelector": 50}
MOST |= {"terms": 50, "expressions": 50, "values": 300}
MOST |= {"topologySpreadConstraints": 20, "podAffinity": 20, "tolerations": 20}
# In `command` or `args` of one privileged container, or in the command of a hook or a probe.
MOST |= {"words": 4}
# Of the preferred node affinity, which is read in privileged pods only.
MOST_PREFERRED = {"terms": 5, "expressions": 5, "values": 20}
LONGEST = {"variable": 100, "key": 100, "value": 63, "image": 256, "mount": 100, "word": 100}

# Fields may be missing and these lists may be null; neither may make the condition fail.
CONTAINERS = """optional.ofNonZeroValue(object.spec.?containers.orValue([])).orValue([])
  + object.spec.?initContainers.orValue([])
  + object.spec.?ephemeralContainers.orValue([])"""
PRIVILEGED_CONTAINER = "container.?securityContext.?privileged.orValue(false)"
ADDED_CAPABILITIES = "container.?securityContext.?capabilities.?add.orValue([]).size() > 0"
HOST_PROCESS = "?securityContext.?windowsOptions.?hostProcess.orValue(false)"


class ProfileNames(NamedTuple):
    """The names in profiles: of `node_labels`, with patterns of their values."""

    annotations: Collection[str]
    variables: Collection[str]
    runtime_classes: Collection[str]
    taints: Collection[str]
    node_labels: Mapping[str, Collection[str]]


class Scope(NamedTuple):
    """The subject of a condition.

    `needed` are the traits that it tests. With `has_places` it is that of the chart: it tests
    everything, and has places for more names.
    """

    names: ProfileNames
    needed: int
    has_places: bool

    def place(self, name: str) -> str:
        """Return the place for further names."""
        return f"%{name}%" if self.has_places else ""


TraitTests = tuple[tuple[int, Callable[[Scope], Iterator[str]]], ...]
"""Traits, and what yields the CEL tests of whether a pod may have one of them."""


def tests_of(table: TraitTests, scope: Scope) -> Iterator[str]:
    """Yield the tests of the traits that the condition needs."""
    for traits, tests in table:
        if scope.needed & traits:
            yield from tests(scope)


def names_of_profiles(profiles: Iterable[Profile]) -> ProfileNames:
    """Return all names in `profiles`."""
    labels: dict[str, set[str]] = {}
    profiles = tuple(profiles)
    for profile in profiles:
        for name, values in profile.node_labels.items():
            labels.setdefault(name, set()).update(values or ["*"])
        for name in profile.node_modes:
            labels.setdefault(name, set()).add("*")
    return ProfileNames(
        annotations={key for profile in profiles for key in profile.request_annotations},
        variables={
            name for p in profiles for name in (*p.alternative_variables, *p.visible_devices)
        },
        runtime_classes={name for profile in profiles for name in profile.runtime_classes},
        taints={taint.key for profile in profiles for taint in profile.taints},
        node_labels=labels,
    )


def any_of(tests: Iterable[str]) -> str:
    """Return one expression that is true if any of `tests` is, with each test on its own line."""
    return "\n|| ".join(test.replace("\n", "\n  ") for test in tests)


def contains(text: str, words: Collection[str]) -> Iterator[str]:
    """Yield tests of whether `text` contains one of `words`.

    A word that contains another word of `words` needs no test of its own.
    """
    for word in sorted(words):
        if not any(other in word for other in words if other != word):
            yield f"{text}.contains({json.dumps(word)})"


def starts_with(text: str, prefixes: Collection[str]) -> Iterator[str]:
    """Yield tests of whether `text` starts with one of `prefixes`.

    A prefix that starts with another one of `prefixes` needs no test of its own.
    """
    for prefix in sorted(prefixes):
        if not any(prefix.startswith(other) for other in prefixes if other != prefix):
            yield f"{text}.startsWith({json.dumps(prefix)})"


def matches(text: str, patterns: Collection[str]) -> Iterator[str]:
    """Yield tests of whether `text` may match one of `patterns`, in which `*` is any text.

    Only the part of a pattern before its first `*` is tested.
    """
    prefixes = {pattern.partition("*")[0] for pattern in patterns if "*" in pattern}
    names = sorted(p for p in patterns if "*" not in p and not p.startswith(tuple(prefixes)))
    if names:
        yield f"{text} in {json.dumps(names)}"
    yield from starts_with(text, prefixes)


def leading_letters(patterns: Iterable[str]) -> set[str]:
    """Return the letters and underscores that each of `patterns` starts with.

    They are enough to tell the values of one node label apart, and cheap to test.
    """
    return {re.split("[^A-Za-z_]", pattern, maxsplit=1)[0] for pattern in patterns}


def contains_one(name: str, words: Iterable[str]) -> bool:
    """Return whether `name` contains one of `words`."""
    return any(word in name for word in words)


def has_foreign_name(resources: str, ordinary: Collection[str]) -> str:
    """Return a test of whether the map `resources` has a name that is not `ordinary`."""
    return f"{resources}.orValue({{}}).exists(name, !(name in {json.dumps(sorted(ordinary))}))"
