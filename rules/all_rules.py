"""Every rule: those about objects of Kubernetes, and those about other files."""

from typing import Any

from rules.catalog.index import CATALOG
from rules.container_files.index import RULES
from rules.rule import Rule

ALL_RULES: tuple[Rule[Any], ...] = (*CATALOG, *RULES)
