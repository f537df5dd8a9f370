"""Suppressing findings, which the linter does because of comments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from rules.engine.rule_set import ActiveRule
from rules.finding import Finding

Suppress: TypeAlias = Callable[[Finding, ActiveRule], bool]
"""Whether a finding is suppressed, as by a comment in a file."""


def suppress_nothing(_finding: Finding, _rule: ActiveRule) -> bool:
    """Suppress nothing."""
    return False
