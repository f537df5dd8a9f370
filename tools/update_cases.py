"""Write the current results of gpuward into the golden files (`*.expected.yaml`) of the cases.

    python -m tools.update_cases                    # only cases that have no golden file yet
    python -m tools.update_cases RULE [RULE/CASE …] # these cases; existing files are overwritten

It writes nothing for a case whose result shows a mistake in the rule. Review the diff before you
commit it: a golden file states the intended result.
"""

from __future__ import annotations

import sys

from kubeyaml.writing import write_yaml
from policies.problems import did_you_mean
from rules.base.traits import names_of
from rules.catalog.index import CATALOG
from rules.relevance.traits import traits_of
from rules.workloads.discovery import find_subjects
from rules.workloads.pod_search import MalformedField
from tests.testkit.cases import Case, cases, current_result, without_needs

RULE_NAMES = {rule.name for rule in CATALOG}


def main(names: list[str]) -> int:
    """Write the golden files of the cases and rules in `names`, or all that are missing.

    Returns the exit status: 1 if `names` has an unknown name, or a case shows a mistake.
    """
    all_cases = cases()
    known = {name for case in all_cases for name in (case.rule, case.name)}
    failed = False
    for name in names:
        if name not in known:
            failed = True
            print(f"tests/cases has no {name}", did_you_mean(name, known), file=sys.stderr)
    for case in all_cases:
        is_known = case.is_clean or case.expected_file.exists()
        if {case.rule, case.name} & set(names) or not (names or is_known):
            mistake = write_result(case)
            failed = failed or bool(mistake)
            done = "clean" if case.is_clean else "written"
            print(f"{case.name}: {mistake or done}", file=sys.stderr if mistake else sys.stdout)
    return int(failed)


def write_result(case: Case) -> str:
    """Write the golden file of `case`, unless the case is clean.

    Returns the mistake that it shows, or an empty text.
    """
    mistake = find_mistake(case)
    if not (mistake or case.is_clean):
        text = write_yaml(current_result(case))
        case.expected_file.write_text(text, encoding="utf-8")
    return mistake


def find_mistake(case: Case) -> str:
    """Return the mistake in the rule of `case`, as far as its result shows; empty without one."""
    if case.rule not in RULE_NAMES:
        return f"no rule is called {case.rule}: list it in rules/catalog/order.py"
    result = case.check(case.manifest)
    if result.failures:
        return "; ".join(f"the rule failed: {failure.error}" for failure in result.failures)
    if case.is_clean and result.findings:
        return "there are findings; the name of a case with findings does not begin with clean-"
    if result.findings or case.is_clean:
        return ""
    if case.check(case.manifest, without_needs(case.alone)).findings:
        return f"no pod has the traits that the rule needs; there are only {_traits(case)}"
    return "no findings; the name of a case without findings begins with clean-"


def _traits(case: Case) -> str:
    found = 0
    for subject in find_subjects(case.manifest, case.policy.profile):
        if not isinstance(subject, MalformedField):
            found |= traits_of(subject)
    return ", ".join(names_of(found)) or "none"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
