"""Load the built-in profiles, and merge the profiles of a policy."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from policies.problems import did_you_mean
from rules.base.text_matching import matches
from rules.profile.profile import (
    Component,
    Fraction,
    InjectedReference,
    NodeAffinity,
    Profile,
    Resource,
    Scheduler,
    Taint,
    VisibleDevices,
    merge_profiles,
)

# What the YAML files beside it say, in a form that is loaded far faster: `make docs`.
_BUILT_IN_FILE = os.path.join(os.path.dirname(__file__), "built_in.json")
# The keys to which a profile adds, if it extends others.
_EXTENDED_KEYS = (
    *("resources", "nodeLabels", "nodeModes", "components", "runtimeClasses"),
    *("alternativeVariables", "visibleDevices", "injectedReferences", "fractions", "limitQuotas"),
)
# Of these it replaces what the others say of the same resources. An empty list replaces all.
_KEYS_REPLACED_BY_RESOURCE = ("taints", "affinities", "schedulers")
_SUBJECT_KEYS = ("resources", "annotations")
# A limit far above every use, and far below Python's recursion limit.
_MAX_EXTENDS_DEPTH = 20


class ProfileError(ValueError):
    """The profiles cannot be used together; the message names them and the reason."""


@cache
def built_in_profiles() -> Mapping[str, Mapping[str, Any]]:
    """Return the built-in profiles as parsed YAML, by name."""
    with open(_BUILT_IN_FILE, encoding="utf-8") as file:
        raws: dict[str, Mapping[str, Any]] = json.load(file)
    return raws


def merged_profile(
    choice: Iterable[str | Mapping[str, Any]], custom: Iterable[Mapping[str, Any]] = ()
) -> Profile:
    """Return one profile that merges all profiles in `choice`.

    `choice` has names of profiles, and profiles that a user defines, as parsed YAML. The profiles
    in `custom` are not chosen, but `choice` and `extends` may name them.

    Raises ProfileError for an unknown name, for a name that two custom profiles have, for a circle
    of `extends`, and for two profiles that describe the same resource.
    """
    choice = list(choice)
    raws = {}
    for raw in (*(entry for entry in choice if not isinstance(entry, str)), *custom):
        if raw["name"] in raws:
            raise ProfileError(f"two profiles are called {raw['name']!r}")
        raws[raw["name"]] = raw
    names = [entry if isinstance(entry, str) else entry["name"] for entry in choice]
    resolver = _ProfileResolver({**built_in_profiles(), **raws})
    flat = [_profile_from_raw(resolver.flattened(name)) for name in dict.fromkeys(names)]
    try:
        return merge_profiles(flat, _profiles_by_themselves())
    except ValueError as error:
        raise ProfileError(str(error)) from error


@cache
def _profiles_by_themselves() -> tuple[Profile, ...]:
    """Return each built-in profile without those that it extends."""
    return tuple(_profile_from_raw(raw) for raw in built_in_profiles().values())


@cache
def merged_built_in_profiles() -> tuple[Profile, ...]:
    """Return what each built-in profile says if it is chosen alone."""
    return tuple(merged_profile([name]) for name in built_in_profiles())


class _ProfileResolver:
    """Resolves `extends` between profiles."""

    def __init__(self, raws: Mapping[str, Mapping[str, Any]]) -> None:
        self._raws = raws
        self._flat: dict[str, Mapping[str, Any]] = {}

    def flattened(self, name: str, path: tuple[str, ...] = ()) -> Mapping[str, Any]:
        """Return the profile `name`, merged with all profiles that it extends.

        `path` has the names of the profiles that extend it, from the chosen one on. Raises
        ProfileError for an unknown name, a circle, and more than `_MAX_EXTENDS_DEPTH` levels.
        """
        if name not in self._raws:
            hint = did_you_mean(name, self._raws, f"there are {', '.join(self._raws)}")
            raise ProfileError(f"there is no profile {name!r}; {hint}")
        path = (*path, name)
        if name in path[:-1]:
            raise ProfileError(f"profiles extend each other in a circle: {' -> '.join(path)}")
        if len(path) > _MAX_EXTENDS_DEPTH:
            raise ProfileError(
                f"more than {_MAX_EXTENDS_DEPTH} profiles extend each other in a row"
            )
        if name not in self._flat:
            self._flat[name] = self._with_parents(self._raws[name], path)
        return self._flat[name]

    def _with_parents(self, raw: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
        merged: dict[str, Any] = {}
        for parent in raw.get("extends", ()):
            original = built_in_profiles().get(parent)
            # A profile may extend the built-in profile with the same name, which it replaces.
            if parent == raw["name"] and original is not None and raw is not original:
                _add_layer(merged, self._with_parents(original, path))
            else:
                _add_layer(merged, self.flattened(parent, path))
        _add_layer(merged, {key: value for key, value in raw.items() if key != "extends"})
        return merged


def _add_layer(merged: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for key, value in layer.items():
        if key in _KEYS_REPLACED_BY_RESOURCE and value and key in merged:
            merged[key] = [*_entries_about_others(merged[key], value), *value]
        elif key not in _EXTENDED_KEYS or key not in merged:
            merged[key] = value
        elif isinstance(value, dict):
            merged[key] = {**merged[key], **value}
        else:  # two parents may have the same items from a common parent
            merged[key] = [*merged[key], *(item for item in value if item not in merged[key])]


def _entries_about_others(
    entries: Iterable[Mapping[str, Any]], replacements: Iterable[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """Yield `entries` without the resources of the `replacements`, if any of theirs are left.

    An entry may be about annotations as well, or instead.
    """
    replaced = {s: [n for entry in replacements for n in entry.get(s, ())] for s in _SUBJECT_KEYS}
    for entry in entries:
        kept = {
            subject: [name for name in entry[subject] if not _overlaps(name, replaced[subject])]
            for subject in _SUBJECT_KEYS
            if subject in entry
        }
        if any(kept.values()):
            yield {**entry, **kept}


def _overlaps(pattern: str, others: Iterable[str]) -> bool:
    return any(matches(pattern, other) or matches(other, pattern) for other in others)


def _profile_from_raw(raw: Mapping[str, Any]) -> Profile:
    def tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
        fields = {
            "serviceAccounts": "service_accounts",
            "toleratedFor": "tolerated_for",
            "driverOnly": "driver_only",
            "hiddenValue": "hiding_value",
            "fromAnnotation": "from_annotation",
            "emptyGrants": "empty_grants",
            "resourceAnnotations": "resource_annotations",
            "remoteAnnotations": "remote_annotations",
            "vendorAnnotation": "vendor_annotation",
        }
        return {
            fields.get(key, key): tuple(value) if isinstance(value, list) else value
            for key, value in entry.items()
        }

    modes = raw.get("nodeModes", {})
    return Profile(
        name=raw["name"],
        description=raw.get("description", ""),
        resources={n: Resource(n, **tuples(r)) for n, r in raw.get("resources", {}).items()},
        taints=tuple(Taint(**tuples(t)) for t in raw.get("taints", ())),
        affinities=tuple(NodeAffinity(**tuples(a)) for a in raw.get("affinities", ())),
        schedulers=tuple(Scheduler(**tuples(s)) for s in raw.get("schedulers", ())),
        components=tuple(Component(**tuples(c)) for c in raw.get("components", ())),
        node_labels={
            **dict.fromkeys(modes, ()),
            **{key: tuple(values) for key, values in raw.get("nodeLabels", {}).items()},
        },
        node_modes={
            key: {value: tuple(offered) for value, offered in values.items()}
            for key, values in modes.items()
        },
        runtime_classes=tuple(raw.get("runtimeClasses", ())),
        visible_devices={
            n: VisibleDevices(n, **tuples(v)) for n, v in raw.get("visibleDevices", {}).items()
        },
        alternative_variables=tuple(raw.get("alternativeVariables", ())),
        injected_references=tuple(
            InjectedReference(**r) for r in raw.get("injectedReferences", ())
        ),
        fractions=tuple(Fraction(**tuples(f)) for f in raw.get("fractions", ())),
        limit_quotas=tuple(raw.get("limitQuotas", ())),
    )
