"""Write the current results of gpuward into the golden files (`*.expected.yaml`) of the cases.

    python -m tools.update_cases                    # only cases that have no golden file yet
    python -m tools.update_cases RULE [RULE/CASE …] # these cases; existing files are overwritten

Review the diff before you commit it: a golden file states the intended result.
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from tests.testkit.cases import cases, current_result

ROOT = Path(__file__).parents[1]


def main(names: list[str]) -> int:
    """Write the golden files of the cases and rules in `names`, or all that are missing.

    Returns the exit status: 1 if `names` select no case.
    """
    written = 0
    for case in cases():
        if {case.rule, case.name} & set(names) or not (names or case.expected_file.exists()):
            text = yaml.safe_dump(
                current_result(case), sort_keys=False, allow_unicode=True, width=100
            )
            case.expected_file.write_text(text, encoding="utf-8")
            print(case.name)
            written += 1
    return 0 if written or not names else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
