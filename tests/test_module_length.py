"""Modules stay short enough to be read at once, as docs/decisions/0015 says."""

from __future__ import annotations

import pytest

from tests.testkit.paths import ROOT

MAX_LINES = 200
# Longer for the reasons in docs/decisions/0015
LONGER = ["kubeyaml/composer.py", "rules/catalog/index.py", "rules/catalog/order.py"]
PACKAGES = (
    *(
        "benchmarks",
        "certs",
        "cluster",
        "cluster_commands",
        "delegation",
        "kubeyaml",
        "lint",
        "policies",
        "registration",
        "rules",
    ),
    *("terminal", "tests/testkit", "webhook"),
)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_is_longer_than_200_lines(package: str) -> None:
    lengths = {
        str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines())
        for file in (ROOT / package).rglob("*.py")
    }
    assert lengths
    long = {name: lines for name, lines in lengths.items() if lines > MAX_LINES}
    assert sorted(long) == [name for name in LONGER if name.startswith(f"{package}/")], (
        f"{long}: split these modules, or give the reason in docs/decisions/0015"
    )
