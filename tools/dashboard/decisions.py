"""Panels about what became of objects."""

from __future__ import annotations

from tools.dashboard.panel import RANGE, Panel, verdicts

# What is too large to be judged is let pass, and refused in mode deny.
_REFUSED = 'verdict=~"would-be-denied|unjudged", path="validate"'
_FIXED = 'verdict="would-be-fixed"'

TO_DENY = [
    Panel(
        "Would be refused",
        "What mode deny would have refused in the chosen time, counted by rule and object. 0 for "
        "as long as your users need to come by with all that they run: the way to deny is free.",
        "short",
        {"": f"sum({verdicts(_REFUSED, over=RANGE)}) or vector(0)"},
        "stat",
        4,
        1,
    ),
    Panel(
        "Would be changed",
        "What mode deny would have fixed in the chosen time, counted by rule and object.",
        "short",
        {"": f"sum({verdicts(_FIXED, over=RANGE)}) or vector(0)"},
        "stat",
        4,
    ),
    Panel(
        "What deny would refuse, by rule",
        "For each rule the objects that it would have refused, by the mode that spared them. The "
        "log of the pods says in which namespaces.",
        "short",
        {"{{rule}} ({{mode}})": verdicts(_REFUSED, "rule, mode", RANGE)},
        "bargauge",
    ),
    Panel(
        "What deny would change, by rule",
        "For each rule the objects that it would have fixed.",
        "short",
        {"{{rule}} ({{mode}})": verdicts(_FIXED, "rule, mode", RANGE)},
        "bargauge",
    ),
]
DECISIONS = [
    Panel(
        "Verdicts, by rule and mode",
        "All that rules had to say, an hour. A rule that keeps rising in mode warn is what users "
        "still have to mend.",
        "short",
        {"{{rule}}: {{verdict}} ({{mode}})": verdicts('verdict!=""', "rule, verdict, mode")},
        width=24,
    ),
    Panel(
        "Refused, by rule",
        "Objects that were refused, an hour.",
        "short",
        {"{{rule}}": verdicts('verdict="denied"')},
    ),
    Panel(
        "Fixed, by rule",
        "Objects that were changed, an hour.",
        "short",
        {"{{rule}}": verdicts('verdict="fixed"')},
    ),
    Panel(
        "Accepted by exceptions, by rule",
        "Objects that an exception of the policy let pass, an hour.",
        "short",
        {"{{rule}}": verdicts('verdict="excepted"')},
    ),
]
