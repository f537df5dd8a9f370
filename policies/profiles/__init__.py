"""The built-in profiles, one YAML file each, and how chosen ones come together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from kubeyaml import Chunk, read
from policies.suggestions import did_you_mean
from rules.profile.profile import Profile, merge_profiles
from rules.profile.records import (
    Component,
    Fraction,
    InjectedReference,
    NodeAffinity,
    Resource,
    Scheduler,
    Taint,
)

_FOLDER = os.path.dirname(__file__)
# What a profile that extends others adds to theirs; everything else it replaces.
_EXTENDED_KEYS = (
    *("resources", "nodeLabels", "components", "runtimeClasses", "alternativeVariables"),
    *("injectedReferences", "fractions", "limitQuotas"),
)
# Far more than anybody needs, and far less than Python's stack holds.
_MAX_EXTENDS = 20


class ProfileError(ValueError):
    """A choice of profiles that makes no sense; the text says which and why."""


@cache
def built_in() -> Mapping[str, Mapping[str, Any]]:
    """The raw built-in profiles by name."""
    raws: dict[str, Mapping[str, Any]] = {}
    for name in sorted(os.listdir(_FOLDER)):
        if name.endswith(".yaml"):
            with open(os.path.join(_FOLDER, name), encoding="utf-8") as file:
                document = read(Chunk(file.read()))
            raw: Any = document and document.value
            raws[raw["name"]] = raw
    return raws


def merged_profile(
    choice: Iterable[str | Mapping[str, Any]], own: Iterable[Mapping[str, Any]] = ()
) -> Profile:
    """The chosen profiles, names or raw ones of a user's own, merged; `own` may be named as well.

    Raises ProfileError for a name that does not exist or is taken, a circle of `extends`, or
    two profiles that describe one resource.
    """
    choice = list(choice)
    raws = {}
    for raw in (*(chosen for chosen in choice if not isinstance(chosen, str)), *own):
        if raw["name"] in raws:
            raise ProfileError(f"two profiles are called {raw['name']!r}")
        raws[raw["name"]] = raw
    names = [chosen if isinstance(chosen, str) else chosen["name"] for chosen in choice]
    family = _ProfileResolver({**built_in(), **raws})
    flat = [_profile(family.flattened(name)) for name in dict.fromkeys(names)]
    known = [_profile(raw) for raw in built_in().values()]
    try:
        return merge_profiles(flat, known)
    except ValueError as error:
        raise ProfileError(str(error)) from error


class _ProfileResolver:
    """Profiles by name, which may extend each other."""

    def __init__(self, raws: Mapping[str, Mapping[str, Any]]) -> None:
        self._raws = raws
        self._flat: dict[str, Mapping[str, Any]] = {}

    def flattened(self, name: str, path: tuple[str, ...] = ()) -> Mapping[str, Any]:
        """The profile `name` with all that it extends; `path` are those that led to it."""
        if name not in self._raws:
            hint = did_you_mean(name, self._raws, f"there are {', '.join(self._raws)}")
            raise ProfileError(f"there is no profile {name!r}; {hint}")
        path = (*path, name)
        if name in path[:-1]:
            raise ProfileError(f"profiles extend each other in a circle: {' -> '.join(path)}")
        if len(path) > _MAX_EXTENDS:
            raise ProfileError(f"more than {_MAX_EXTENDS} profiles extend each other in a row")
        if name not in self._flat:
            self._flat[name] = self._extended(self._raws[name], path)
        return self._flat[name]

    def _extended(self, raw: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
        whole: dict[str, Any] = {}
        for parent in raw.get("extends", ()):
            original = built_in().get(parent)
            # Under its own name a profile may extend the built-in one that it replaces.
            if parent == raw["name"] and original is not None and raw is not original:
                _add(whole, self._extended(original, path))
            else:
                _add(whole, self.flattened(parent, path))
        _add(whole, {key: value for key, value in raw.items() if key != "extends"})
        return whole


def _add(whole: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for key, value in layer.items():
        if key not in _EXTENDED_KEYS or key not in whole:
            whole[key] = value
        elif isinstance(value, dict):
            whole[key] = {**whole[key], **value}
        else:  # two parents may bring the same from a common one
            whole[key] = [*whole[key], *(item for item in value if item not in whole[key])]


def _profile(raw: Mapping[str, Any]) -> Profile:
    def tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
        words = {"serviceAccounts": "service_accounts"}
        return {
            words.get(key, key): tuple(value) if isinstance(value, list) else value
            for key, value in entry.items()
        }

    return Profile(
        name=raw["name"],
        description=raw.get("description", ""),
        resources={n: Resource(n, **tuples(r)) for n, r in raw.get("resources", {}).items()},
        taints=tuple(Taint(**tuples(t)) for t in raw.get("taints", ())),
        affinities=tuple(NodeAffinity(**tuples(a)) for a in raw.get("affinities", ())),
        schedulers=tuple(Scheduler(**tuples(s)) for s in raw.get("schedulers", ())),
        components=tuple(Component(**tuples(c)) for c in raw.get("components", ())),
        node_labels={key: tuple(values) for key, values in raw.get("nodeLabels", {}).items()},
        runtime_classes=tuple(raw.get("runtimeClasses", ())),
        alternative_variables=tuple(raw.get("alternativeVariables", ())),
        injected_references=tuple(
            InjectedReference(**r) for r in raw.get("injectedReferences", ())
        ),
        fractions=tuple(Fraction(**tuples(f)) for f in raw.get("fractions", ())),
        limit_quotas=tuple(raw.get("limitQuotas", ())),
    )
