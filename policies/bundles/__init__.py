"""Bundles: policies that come with gpuward, which other policies extend.

A bundle sets rules and nothing else. `profiles` in a bundle are those that it is for: whoever
extends it must run them, so that the chart and the linter always read the same profiles.
"""

import os
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from kubeyaml import Chunk, read
from policies.profiles import merged_profile
from rules.profile.profile import Profile

_FOLDER = os.path.dirname(__file__)
BUNDLES = ("essential", "recommended", "strict", "ack")


class Setting(NamedTuple):
    """A value that a policy sets for a rule; `bundle` names the bundle that it is from."""

    value: Any
    bundle: str = ""


@cache
def bundle(name: str) -> Mapping[str, Any]:
    """Return the bundle called `name`, one of `BUNDLES`, as parsed YAML."""
    with open(os.path.join(_FOLDER, f"{name}.yaml"), encoding="utf-8") as file:
        document = read(Chunk(file.read()))
    raw: Any = document and document.value
    content: Mapping[str, Any] = raw
    return content


def rule_settings(raw: Mapping[str, Any]) -> dict[str, dict[tuple[str, ...], Setting]]:
    """Return what the policy `raw`, with the bundles that it extends, says about rules.

    For each rule, that are values by their path: `("action",)`, or `("options", "max_devices")`. A
    later bundle wins over an earlier one, and the policy itself over all.
    """
    merged: dict[str, dict[tuple[str, ...], Setting]] = {}
    layers = [(name, bundle(name)) for name in raw.get("extends", ())]
    for name, layer in (*layers, ("", raw)):
        for rule, settings in layer.get("rules", {}).items():
            values = merged.setdefault(rule, {})
            for path, value in _values(settings):
                values[path] = Setting(value, name)
    return merged


def missing_profiles(raw: Mapping[str, Any], profile: Profile) -> Iterator[tuple[int, str]]:
    """Yield each entry of `extends` that is for profiles which `profile` does not contain.

    It is the index of the entry, and what is wrong.
    """
    for index, name in enumerate(raw.get("extends", ())):
        wanted = bundle(name).get("profiles")
        if wanted and not set(merged_profile(wanted).active) <= set(profile.active):
            names = ", ".join(wanted)
            yield index, f"the bundle {name} is for the profile {names}: add profiles: [{names}]"


def _values(settings: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in settings.items():
        if key == "options":
            yield from ((("options", option), given) for option, given in value.items())
        else:
            yield (key,), value
