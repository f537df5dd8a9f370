"""Panels about the outcomes of objects."""

from __future__ import annotations

from tools.dashboard.panel import OURS, RANGE, Panel, counted, rule_outcomes

# An object that is too large to evaluate is admitted, and refused in mode deny.
_REFUSED = 'outcome=~"would-be-denied|not-evaluated", path="validate"'
_FIXED = 'outcome="would-be-fixed"'

TO_DENY = [
    Panel(
        "Would be refused",
        "What mode deny would have refused in the selected time range, counted by rule and object. "
        "Switch to deny when this stays 0 for as long as your users need to run all their "
        "workloads.",
        "short",
        {"": f"sum({rule_outcomes(_REFUSED, over=RANGE)}) or vector(0)"},
        "stat",
        4,
        1,
    ),
    Panel(
        "Would be changed",
        "What mode deny would have fixed in the selected time range, counted by rule and object.",
        "short",
        {"": f"sum({rule_outcomes(_FIXED, over=RANGE)}) or vector(0)"},
        "stat",
        4,
    ),
    Panel(
        "What deny would refuse, by rule",
        "For each rule, the objects that mode deny would have refused, by their actual mode. The "
        "log of the pods names the namespaces.",
        "short",
        {"{{rule}} ({{mode}})": rule_outcomes(_REFUSED, "rule, mode", RANGE)},
        "bargauge",
    ),
    Panel(
        "What deny would change, by rule",
        "For each rule, the objects that mode deny would have fixed.",
        "short",
        {"{{rule}} ({{mode}})": rule_outcomes(_FIXED, "rule, mode", RANGE)},
        "bargauge",
    ),
    Panel(
        "What deny would refuse, by namespace",
        "The same for each namespace in monitoring.countedNamespaces, by rule.",
        "short",
        {
            "{{object_namespace}}: {{rule}}": counted(
                "gpuward_namespace_rule_outcomes_total",
                "object_namespace, rule",
                f"{OURS}, {_REFUSED}",
                RANGE,
            )
        },
        "bargauge",
        24,
    ),
]
DECISIONS = [
    Panel(
        "Outcomes, by rule and mode",
        "All outcomes of rules, per hour. A rule whose count keeps rising in mode warn shows what "
        "users still have to fix.",
        "short",
        {"{{rule}}: {{outcome}} ({{mode}})": rule_outcomes('outcome!=""', "rule, outcome, mode")},
        width=24,
    ),
    Panel(
        "Refused, by rule",
        "Objects that were refused, per hour.",
        "short",
        {"{{rule}}": rule_outcomes('outcome="denied"')},
    ),
    Panel(
        "Fixed, by rule",
        "Objects that were changed, per hour.",
        "short",
        {"{{rule}}": rule_outcomes('outcome="fixed"')},
    ),
    Panel(
        "Accepted by exceptions, by rule",
        "Objects that an exception of the policy accepted, per hour.",
        "short",
        {"{{rule}}": rule_outcomes('outcome="excepted"')},
    ),
]
