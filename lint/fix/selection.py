"""Which fixes a user wants: those of some rules, and also unsafe ones."""

from __future__ import annotations

from collections.abc import Collection

from policies.suggestions import did_you_mean
from rules.catalog.index import CATALOG
from rules.engine.rule_set import ActiveRule, RuleSet
from rules.finding import FixScope
from sources.sources import UsageError


def select_fixes(rule_set: RuleSet, names: Collection[str], *, unsafe: bool) -> RuleSet:
    """`rule_set` with only the fixes of the rules `names`, or of all rules if there are none.

    Unsafe fixes are made as well if the user says so, except those that the policy forbids. All
    rules still report. Raises UsageError for a rule that does not exist.
    """
    known = {rule.name for rule in CATALOG}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, "gpuward rules lists them all")
            raise UsageError(f"--rule: there is no rule {name!r}; {hint}")

    def scope(active: ActiveRule) -> FixScope:
        if names and active.rule.name not in names:
            return FixScope.NONE
        return FixScope.ALL if unsafe and active.scope is FixScope.SAFE else active.scope

    rules = tuple(active._replace(scope=scope(active)) for active in rule_set.rules)
    return rule_set._replace(rules=rules)
