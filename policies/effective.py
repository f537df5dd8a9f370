"""The effective policy: what every rule does, and where that is from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from policies.policy import DEFAULT_PROFILES, Policy
from policies.policy_settings import FIELD_BY_KEY, PolicySettings
from rules.all_rules import ALL_RULES
from rules.base.json_values import Path
from rules.engine.rule_set import ActiveRule
from rules.finding import FixScope

# What the policy's key voidEveryContainer sets is no option of a rule for users.
_HIDDEN_OPTION = "every_container"
DescribePosition = Callable[[Path], str]
"""Takes a path in the policy, and returns FILE:LINE."""


class EffectiveRule(NamedTuple):
    """A rule as it acts. `settings` is what a policy would have to say to make it act so."""

    active: ActiveRule
    settings: dict[str, Any]
    sources: dict[str, str]
    """for `action`, `fix`, `suppressible` and each option that is not the default: where it is from
    """


def effective_rules(
    policy: Policy, given: PolicySettings, position: DescribePosition
) -> Iterator[EffectiveRule]:
    """Yield every rule of the catalog by family and name, also those that are off.

    `given` are the settings of `policy`.
    """
    for rule in sorted(ALL_RULES, key=lambda rule: (rule.family, rule.name)):
        active = policy.activate(rule)
        sources = {}
        for path, setting in given.rules.get(rule.name, {}).items():
            sources[path[-1]] = setting.source or position(("rules", rule.name, *path))
        settings = _settings_of_rule(active)
        listed = policy.rules.get(rule.name)
        wanted = rule.action if listed is None or listed.action is None else listed.action
        if active.action is not wanted or (
            active.fix_scope is FixScope.NONE and "fix" not in sources
        ):
            sources["action"] = sources["fix"] = f"newer than catalog {policy.catalog}"
        yield EffectiveRule(active, settings, sources)


def effective_policy(
    policy: Policy, given: PolicySettings, rules: list[EffectiveRule]
) -> dict[str, Any]:
    """Return the whole policy without bundles and defaults, as the YAML of a policy.

    A policy with this content acts as the given one.
    """
    named = {key: getattr(policy, field) for key, field in FIELD_BY_KEY.items()}
    written = {
        "exceptions": [entry.raw for entry in given.exceptions],
        "gpuExceptions": [entry.raw for entry in given.gpu_exceptions],
        "perPath": [entry.raw for entry in given.per_path],
        "lint": given.lint,
    }
    return {
        "apiVersion": "gpuward.io/v1",
        "kind": "Policy",
        "profiles": list(given.profiles or DEFAULT_PROFILES),
        **{key: value for key, value in named.items() if value not in {None, ""}},
        "rules": {rule.active.rule.name: rule.settings for rule in rules},
        **{key: value for key, value in written.items() if value},
    }


def _settings_of_rule(active: ActiveRule) -> dict[str, Any]:
    settings: dict[str, Any] = {"action": active.action.word}
    if active.fix_scope is not FixScope.SAFE:
        settings["fix"] = active.fix_scope is FixScope.ALL
    if not active.suppressible:
        settings["suppressible"] = False
    options = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in active.options.items()
        if key != _HIDDEN_OPTION
    }
    return {**settings, "options": options} if options else settings
