"""Options of the linter that a policy has: the key `lint` of the outermost one in a repository."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from typing import Any

from rules.engine.rule_set import RuleSet
from sources.policy_file import Policies
from sources.sources import UsageError

# The options that no command line may leave to a file if it fixes: rendered text is in no file.
_OPTION_NOT_FOR_FIXES = "render"


def apply_policy_options(
    options: argparse.Namespace, policies: Policies, paths: Iterable[str]
) -> None:
    """Complete `options` by what the policy says that is outermost around the first of `paths`.

    What the command line says wins; files to leave out are added. Raises PolicyError.
    """
    place = next((path for path in paths if path != "-"), "")
    lint, folder = policies.lint_options(place)
    options.policy_exclude = (folder, tuple(lint.get("exclude", ())))
    if options.baseline is None and "baseline" in lint:
        options.baseline = os.path.relpath(os.path.join(folder, lint["baseline"]))
    if getattr(options, "fail_on", "") is None:
        options.fail_on = lint.get("failOn", "error")
    is_fixing = options.fix or options.diff
    if options.render is None:
        options.render = bool(lint.get("render")) and not is_fixing and os.name == "posix"
    if not options.also and not options.staged:
        options.also = ",".join(lint.get("also", ()))
    options.require_input = options.require_input or bool(lint.get("requireInput"))


def wanted_rules(select: list[str], ignore: list[str]) -> Callable[[str], bool] | None:
    """Which rules the user wants to see, by `--select` and `--ignore`; None for all.

    Both have names of rules and of families, with commas between them. Raises UsageError for one
    that does not exist.
    """
    if not select and not ignore:
        return None
    from policies.problems import suggestion_suffix  # noqa: PLC0415  # few runs select rules
    from rules.all_rules import ALL_RULES  # noqa: PLC0415

    families: dict[str, set[str]] = {}
    for rule in ALL_RULES:
        families.setdefault(rule.family, set()).add(rule.name)
        families[rule.name] = {rule.name}

    def named(values: list[str], option: str) -> set[str]:
        words = [word.strip() for value in values for word in value.split(",")]
        for word in words:
            if word not in families:
                hint = (
                    suggestion_suffix(word, families)
                    or "; gpuward rules lists all rules and families"
                )
                raise UsageError(f"{option}: there is no rule or family {word!r}{hint}")
        return set().union(*(families[word] for word in words))

    chosen = named(select, "--select") if select else set().union(*families.values())
    return (chosen - named(ignore, "--ignore")).__contains__


def restrict_rules(rules: RuleSet, wanted: Callable[[str], bool] | None) -> RuleSet:
    """`rules` without those that the user does not want."""
    if wanted is None:
        return rules
    kept: Any = (active for active in rules.rules if wanted(active.rule.name))
    return rules._replace(rules=tuple(kept))
