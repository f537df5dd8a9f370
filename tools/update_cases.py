"""Write what the product says now into the golden files of cases.

    python -m tools.update_cases                    # cases that have no golden file yet
    python -m tools.update_cases RULE [RULE/CASE …] # these, overwriting

Read the difference before committing it: a golden file is a promise.
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from tests.testkit.cases import answer, cases

ROOT = Path(__file__).parents[1]


def main(names: list[str]) -> int:
    """Rewrite the golden files; the names given must exist."""
    written = 0
    for case in cases():
        if {case.rule, case.name} & set(names) or not (names or case.expected_file.exists()):
            text = yaml.safe_dump(answer(case), sort_keys=False, allow_unicode=True, width=100)
            case.expected_file.write_text(text, encoding="utf-8")
            print(case.name)
            written += 1
    return 0 if written or not names else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
