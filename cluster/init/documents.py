"""The text of a policy for a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cluster.init import differences
from cluster.init.choice import Choice, ancestors
from cluster.init.differences import Entry
from cluster.init.survey import Survey
from cluster_commands.init.lines import commented, item, line, note, section
from kubeyaml.patch.layout import one_line
from policies.profiles import ProfileError, built_in, merged_profile
from rules.profile.profile import Profile

_NAME = "cluster"  # of the profile that is written
# What a profile replaces if it extends others.
_REPLACED = ("taints", "affinities", "schedulers")
_MAX_NAMED = 20


def write_policy(survey: Survey, choice: Choice) -> tuple[list[str], Profile]:
    """The lines of the policy, and its profile as far as it is certain."""
    names = list(choice.chosen)
    combined = _combined(names)
    profile = merged_profile(combined)
    new = {
        "taints": differences.taints(survey, profile),
        "affinities": [],
        "schedulers": differences.schedulers(survey, profile),
        "components": differences.components(survey, profile),
        "runtimeClasses": differences.runtime_classes(survey, profile),
    }
    tables = {
        "nodeModes": differences.node_modes(survey, profile),
        "resources": differences.resources(survey, profile),
    }
    # Of several profiles that one extends, the last replaces what the others say.
    differs = any(new.values()) or any(tables.values()) or combined != names
    replaces = differs and len(names) > 1
    sections = {
        key: [*_known(names, key), *entries]
        if key in _REPLACED and (replaces or entries)
        else entries
        for key, entries in new.items()
    }
    body = [
        *(text for key, entries in sections.items() for text in _list(key, entries)),
        *(text for key, entries in tables.items() for text in _table(key, entries)),
    ]
    lines = ["apiVersion: gpuward.io/v1", "kind: Policy"]
    if not names:
        lines += _nothing(choice)
    elif not body:
        lines += ["profiles:", *_names(choice, 2)]
    else:
        why = "the built-in profiles below, and what differs from them here"
        lines += ["profiles:", line(f"- name: {_NAME}", why, 2)]
        lines += ["    extends:", *_names(choice, 6), *body]
    lines += _remarks(survey, profile)
    return lines, profile


def _combined(names: list[str]) -> list[Any]:
    """The profiles, or one that extends them all where they describe the same resources."""
    try:
        merged_profile(names or ["nvidia"])
    except ProfileError:
        return [{"name": _NAME, "extends": names, **{k: _union(names, k) for k in _REPLACED}}]
    return names or ["nvidia"]


def _union(names: Sequence[str], key: str) -> list[Any]:
    """The entries of all profiles; what they have in common by `extends` only if none has more."""
    own = [_inherited(name, key) for name in names]
    parents = [ancestors(name) for name in names]
    shared = {
        p for i, some in enumerate(parents) for p in some if p in set().union(*parents[i + 1 :])
    }
    common = [_inherited(name, key) for name in shared]
    special = [entries for entries in own if entries not in common]
    unique: list[Any] = []
    for entries in special or own:
        unique += [entry for entry in entries if entry not in unique]
    return unique


def _inherited(name: str, key: str) -> list[Any]:
    """What the built-in profile says, or the last that it extends."""
    raw = built_in()[name]
    if key in raw:
        return list(raw[key])
    found = (_inherited(parent, key) for parent in reversed(raw.get("extends", ())))
    return next(found, [])


def _known(names: Sequence[str], key: str) -> list[Entry]:
    return [Entry(value, "of the profiles above") for value in _union(names, key)]


def _list(key: str, entries: Sequence[Entry]) -> list[str]:
    lines = [(item(entry.value, entry.why, 6), entry.certain) for entry in entries]
    return section(key, [t for t, sure in lines if sure], [t for t, sure in lines if not sure], 4)


def _table(key: str, entries: Sequence[Entry]) -> list[str]:
    lines = [line(one_line(entry.value)[1:-1], entry.why, 6) for entry in entries]
    return section(key, [], lines, 4)


def _names(choice: Choice, indent: int) -> list[str]:
    certain = [item(name, why, indent) for name, why in choice.chosen.items()]
    return [*certain, *commented(_possible(choice, indent))]


def _possible(choice: Choice, indent: int) -> list[str]:
    lines = []
    for name, why in choice.possible.items():
        contained = [parent for parent in choice.chosen if parent in ancestors(name)]
        instead = f"instead of {', '.join(contained)}, perhaps: " if contained else "perhaps: "
        lines.append(item(name, instead + why, indent))
    return lines


def _nothing(choice: Choice) -> list[str]:
    return commented(
        [
            line("profiles:", "nothing was seen that is certain; without profiles: nvidia"),
            *_possible(choice, 2),
            *([] if choice.possible else [item("nvidia", "the default; nothing was seen", 2)]),
        ]
    )


def _remarks(survey: Survey, profile: Profile) -> list[str]:
    lines = []
    if unseen := differences.unseen_schedulers(survey, profile):
        lines += note(f"Not seen, though the profiles name it: the scheduler {', '.join(unseen)}.")
    if names := [*differences.unknown_resources(survey, profile)]:
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        listed = ", ".join(names[:_MAX_NAMED])
        lines += note(
            f"Nodes offer {listed}{more}, of which no profile knows. If one is a GPU, describe it "
            "under `resources` of a profile of your own."
        )
    return lines
