"""Nodes and webhook configurations, judged by the rules of the catalog that are about them."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterator

from cluster.doctor.facts import Facts, name_of
from cluster_commands.doctor.rows import Row, names, ok, wrong
from cluster_commands.source.resources import MUTATING, NODES, VALIDATING
from rules.all_rules import ALL_RULES
from rules.base.traits import NODE, WEBHOOK_CONFIGURATION, satisfies
from rules.engine.fixing import check
from rules.finding import Action
from rules.objects.kubernetes_object import KubernetesObject
from rules.profile.context import Context

# `check_requirements` has rows for what this rule finds, and also for what is not known.
_LEFT_OUT = "node-below-requirements"
_RULES = {
    rule.name: rule
    for rule in ALL_RULES
    if rule.subject is KubernetesObject and rule.name != _LEFT_OUT
}
_KINDS = {NODES: NODE, MUTATING: WEBHOOK_CONFIGURATION, VALIDATING: WEBHOOK_CONFIGURATION}


def check_by_catalog(facts: Facts) -> Iterator[Row]:
    """One row for each fault, with all objects that have it; and one for each kind without any.

    What the policy only notes is no fault. Other checks say that a kind could not be listed.
    """
    active = facts.policy.rule_set()
    evaluated = {each.rule.name for each in active.rules}.intersection(_RULES)
    context = Context(datetime.datetime.now(datetime.UTC).date())
    for resource, trait in _KINDS.items():
        rules = [name for name in evaluated if satisfies(trait, _RULES[name].needs)]
        items = facts.objects(resource)
        if not (rules and items):
            continue
        faults: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
        for item in items:
            for finding in check(item, active, context).findings:
                if finding.rule in _RULES and finding.action > Action.AUDIT:
                    found = faults[finding.rule, finding.help]
                    found.append((name_of(item), finding.message))
        for (rule_name, remedy), found in sorted(faults.items()):
            subject = names([*dict.fromkeys(name for name, _ in found)])
            advice = remedy or f"gpuward explain {rule_name}"
            yield wrong(rule_name, subject, found[0][1], advice)
        if not faults:
            message = f"{len(rules)} rules find no fault in {len(items):,}"
            yield ok(resource.name, "all", message)
