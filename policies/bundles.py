"""Bundles: policies that come with gpuward, which other policies extend.

A bundle sets rules and nothing else. `profiles` in a bundle are those that it is for: a policy
that extends it must run them, so that the chart and the linter always read the same profiles.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from policies.policy import SECURITY_FAMILIES
from policies.profiles import merged_profile
from rules.catalog.index import CATALOG
from rules.finding import Action
from rules.profile.profile import Profile
from rules.rule import Rule

BUNDLES = ("essential", "recommended", "strict", "ack")

_STRICT_ACTION_BY_DEFAULT = {Action.WARN: "deny", Action.AUDIT: "warn"}
# Rules that `strict` treats unlike others with the same default action. None: as by default.
_STRICT_ACTION_BY_RULE = {
    "no-fitting-node": None,  # may no longer be true when it is said
    "affinity-default": None,  # a note about what admission sets
    "toleration-default": None,  # the same
    "idle-gpu-holder": None,  # people work in such pods
    "shared-memory-exceeds-limit": "warn",  # no author can mean it
}
_RULES_REFUSED_ON_ACK = (
    "mixed-families",
    "node-mode-mismatch",
    "unknown-node-label-value",
    "gpu-count-label",
    "memory-exceeds-card",
    "placement-label",
)


class Setting(NamedTuple):
    """A value that a policy sets for a rule; `source` names the bundle or file that it is from.

    It is empty for what the policy itself says.
    """

    value: Any
    source: str = ""


class ExtendedPolicy(NamedTuple):
    """A policy in a file that another policy extends."""

    name: str
    raw: Mapping[str, Any]

    def __str__(self) -> str:
        return self.name


@cache
def bundle(name: str) -> Mapping[str, Any]:
    """Return the bundle called `name`, one of `BUNDLES`, as a policy."""
    head = {"apiVersion": "gpuward.io/v1", "kind": "Policy"}
    if name == "ack":
        refused = {rule: {"action": "deny"} for rule in _RULES_REFUSED_ON_ACK}
        return {**head, "profiles": ["ack"], "rules": refused}
    settings_in: dict[str, Callable[[Rule[Any]], dict[str, Any]]] = {
        "essential": _essential_settings,
        "recommended": lambda _: {},
        "strict": _strict_settings,
    }
    found = {rule.name: settings_in[name](rule) for rule in CATALOG}
    return {**head, "rules": {rule: settings for rule, settings in found.items() if settings}}


def _essential_settings(rule: Rule[Any]) -> dict[str, Any]:
    """Only rules that refuse by default are on."""
    return {} if rule.action is Action.DENY else {"action": "off"}


def _strict_settings(rule: Rule[Any]) -> dict[str, Any]:
    """Warnings refuse, notes warn, and rules of hygiene that are off note.

    No comment lifts what protects others.
    """
    is_off_hygiene = rule.family == "hygiene" and rule.action is Action.OFF
    usual = "audit" if is_off_hygiene else _STRICT_ACTION_BY_DEFAULT.get(rule.action)
    action = _STRICT_ACTION_BY_RULE.get(rule.name, usual)
    settings: dict[str, Any] = {} if action is None else {"action": action}
    return settings | ({"suppressible": False} if rule.family in SECURITY_FAMILIES else {})


def rule_settings(raw: Mapping[str, Any]) -> dict[str, dict[tuple[str, ...], Setting]]:
    """Return what the policy `raw`, with the bundles that it extends, says about rules.

    For each rule, that are values by their path: `("action",)`, or `("options", "max_devices")`. A
    later bundle or file wins over an earlier one, and the policy itself over all.
    """
    merged: dict[str, dict[tuple[str, ...], Setting]] = {}
    for entry in raw.get("extends", ()):
        if isinstance(entry, ExtendedPolicy):
            for rule, values in rule_settings(entry.raw).items():
                known = merged.setdefault(rule, {})
                for path, setting in values.items():
                    known[path] = setting._replace(source=setting.source or entry.name)
        elif entry in BUNDLES:  # a file that has not been read is not
            _add_rule_settings(merged, bundle(entry), f"bundle {entry}")
    _add_rule_settings(merged, raw, "")
    return merged


def _add_rule_settings(
    merged: dict[str, dict[tuple[str, ...], Setting]], layer: Mapping[str, Any], source: str
) -> None:
    for rule, settings in layer.get("rules", {}).items():
        values = merged.setdefault(rule, {})
        for path, value in _values_by_path(settings):
            values[path] = Setting(value, source)


def entries_with_missing_profiles(
    raw: Mapping[str, Any], profile: Profile
) -> Iterator[tuple[int, str]]:
    """Yield each entry of `extends` that is for profiles which `profile` does not contain.

    It is the index of the entry, and what is wrong.
    """
    for index, name in enumerate(raw.get("extends", ())):
        if isinstance(name, ExtendedPolicy):
            yield from (
                (index, message) for _, message in entries_with_missing_profiles(name.raw, profile)
            )
            continue
        wanted = bundle(name).get("profiles")
        if wanted and not set(merged_profile(wanted).active) <= set(profile.active):
            names = ", ".join(wanted)
            yield index, f"the bundle {name} is for the profile {names}: add profiles: [{names}]"


def _values_by_path(settings: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in settings.items():
        if key == "options":
            yield from ((("options", option), given) for option, given in value.items())
        else:
            yield (key,), value
