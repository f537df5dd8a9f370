"""Bundles: policies that come with gpuward, which other policies extend.

A bundle sets rules and nothing else. `profiles` in a bundle are those that it is for: a policy
that extends it must run them, so that the chart and the linter always read the same profiles.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from policies.policy import SECURITY_FAMILIES
from policies.policy_settings import ExtendedPolicy, PolicySettings, to_settings
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


@cache
def extended_bundle(name: str) -> ExtendedPolicy:
    """Return the bundle called `name` as policies extend it."""
    settings = to_settings(bundle(name)).with_source(f"bundle {name}")
    return ExtendedPolicy(name, settings, is_bundle=True)


def setting_of_rule(settings: PolicySettings, rule: str, *path: str) -> Any:
    """Return the value that a policy, or the last bundle that it extends, sets at `path` of `rule`.

    Return None if there is none. Files that the policy extends do not count.
    """
    bundles = [extended_bundle(name).settings for name in settings.extends if name in BUNDLES]
    for layer in (settings, *reversed(bundles)):
        if setting := layer.rules.get(rule, {}).get(path):
            return setting.value
    return None


def bases_with_missing_profiles(
    settings: PolicySettings, profile: Profile
) -> Iterator[tuple[int, str]]:
    """Yield each policy in `settings.bases` that is for profiles which `profile` does not contain.

    It is its index, and what is wrong.
    """
    for index, base in enumerate(settings.bases):
        if not base.is_bundle:
            inner = bases_with_missing_profiles(base.settings, profile)
            yield from ((index, message) for _, message in inner)
            continue
        wanted = [name for name in base.settings.profiles if isinstance(name, str)]
        if wanted and not set(merged_profile(wanted).active) <= set(profile.active):
            names = ", ".join(wanted)
            what = f"the bundle {base.name} is for the profile {names}"
            yield index, f"{what}: add profiles: [{names}]"
