"""Policies below other policies: what a team may change, and what stays as the outer one says."""

from __future__ import annotations

from policies.policy import Policy, RuleSettings
from rules.catalog.index import CATALOG
from rules.finding import Action


class LayerError(ValueError):
    """A policy that loosens what one around it protects; the message says what."""


def keep_protected(inner: Policy, outer: Policy, name: str) -> Policy:
    """`inner`, with the rules that `outer`, the file called `name`, lets nobody suppress.

    These act as `outer` says, or more strictly. Raises LayerError if `inner` makes an exception to
    one of them that `outer` does not make.
    """
    protected = {rule: s for rule, s in outer.rules.items() if not s.suppressible}
    if not protected:
        return inner
    for exception in inner.exceptions:
        for rule in exception.rules:
            if rule in protected and exception not in outer.exceptions:
                raise LayerError(
                    f"an exception to {rule}, which {name} lets nobody suppress "
                    "(suppressible: false): make the exception there"
                )
    defaults = {rule.name: rule.action for rule in CATALOG}
    rules = dict(inner.rules)
    for rule, settings in protected.items():
        default = defaults.get(rule, Action.OFF)
        own = rules.get(rule, RuleSettings())
        actions = [default if one.action is None else one.action for one in (own, settings)]
        rules[rule] = settings._replace(action=max(actions))
    # An older catalog would turn newer rules into notes.
    return inner._replace(rules=rules, catalog=outer.catalog)
