"""What an inventory knows of an object of each kind. The classes have the names of the kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class ConfigMap(NamedTuple):
    """The keys that container runtimes read as variables, with their values."""

    variables: Mapping[str, str]


class RuntimeClass(NamedTuple):
    """The name by which the container runtime on the node knows the class."""

    handler: str


KINDS = tuple(kind.__name__ for kind in (ConfigMap, RuntimeClass))
"""The kinds of which an inventory has records."""
