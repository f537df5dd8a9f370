"""The built-in profiles, one YAML file each, and how chosen ones come together."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from kubeyaml import Chunk, read
from rules.profile import (
    Component,
    Fraction,
    InjectedReference,
    NodeAffinity,
    Profile,
    Resource,
    Scheduler,
    Taint,
    merged,
)

# What a profile that extends others adds to theirs; everything else it replaces.
_ADDED = (
    *("resources", "nodeLabels", "components", "runtimeClasses", "alternativeVariables"),
    *("injectedReferences", "fractions"),
)


class ProfileError(ValueError):
    """A choice of profiles that makes no sense; the text says which and why."""


@cache
def built_in() -> Mapping[str, Mapping[str, Any]]:
    """The raw built-in profiles by name."""
    folder = files("policies.profiles")
    texts = (
        entry.read_text(encoding="utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith(".yaml")
    )
    documents = (read(Chunk(text)) for text in texts)
    raws: list[Any] = [document.value for document in documents if document is not None]
    return {raw["name"]: raw for raw in sorted(raws, key=lambda raw: str(raw["name"]))}


def chosen_profile(choice: Iterable[str | Mapping[str, Any]]) -> Profile:
    """The chosen profiles, names of built-in ones or raw ones of a user's own, merged.

    Raises ProfileError for a name that does not exist, a circle of `extends`, or two
    profiles that describe one resource.
    """
    available = dict(built_in())
    names = []
    for chosen in choice:
        if isinstance(chosen, str):
            names.append(chosen)
        else:
            names.append(chosen["name"])
            # Under its own name a profile may extend the built-in one that it replaces.
            available[chosen["name"]] = _extended(chosen, available, (chosen["name"],))
    flat = [_profile(_flattened(name, available)) for name in dict.fromkeys(names)]
    known = [_profile(raw) for raw in built_in().values()]
    try:
        return merged(flat, known)
    except ValueError as error:
        raise ProfileError(str(error)) from error


def _flattened(
    name: str, available: Mapping[str, Mapping[str, Any]], path: tuple[str, ...] = ()
) -> Mapping[str, Any]:
    if name not in available:
        close = difflib.get_close_matches(name, available, n=1)
        hint = f'did you mean "{close[0]}"?' if close else f"there are {', '.join(available)}"
        raise ProfileError(f"there is no profile {name!r}; {hint}")
    if name in path:
        raise ProfileError(f"profiles extend each other in a circle: {' -> '.join((*path, name))}")
    return _extended(available[name], available, (*path, name))


def _extended(
    raw: Mapping[str, Any], available: Mapping[str, Mapping[str, Any]], path: tuple[str, ...]
) -> Mapping[str, Any]:
    whole: dict[str, Any] = {}
    own = {key: value for key, value in raw.items() if key != "extends"}
    parents = []
    for parent in raw.get("extends", ()):
        replaced = parent == path[-1] and parent in built_in()
        parents.append(
            _extended(built_in()[parent], available, (parent,))
            if replaced
            else _flattened(parent, available, path)
        )
    for layer in (*parents, own):
        for key, value in layer.items():
            if key in _ADDED and key in whole:
                joined = {**whole[key], **value} if isinstance(value, dict) else whole[key] + value
                whole[key] = joined
            else:
                whole[key] = value
    return whole


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
    )
