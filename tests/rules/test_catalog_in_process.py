"""What rules that API servers evaluate themselves cost ordinary pods."""

from __future__ import annotations

from policies.loading import default_policy
from webhook.in_process.statements import exported_rules
from webhook.match_conditions import condition


def test_no_exported_rule_is_about_every_gpu_pod() -> None:
    """API servers evaluate a policy for each pod that may concern one of its rules.

    The rules about Kueue's marks have a policy of their own, which concerns updates.
    """
    policy = default_policy()
    costly = [
        rule.name
        for rule in exported_rules(policy.rule_set())
        # The resources that do not concern it are those of pods without GPUs alone.
        if '["cpu", "ephemeral-storage", "memory"]'
        in condition([rule.active.rule], [policy.profile])
    ]
    assert costly == ["left-queue"], "one entry of `needs` must name what is rare among GPU pods"
