"""Which build runs: for the first line of the log, and for a metric."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata


def build_info() -> Mapping[str, str]:
    """The versions of gpuward and of Python; gpuward's is empty if it is not installed."""
    try:
        version = metadata.version("gpuward")
    except metadata.PackageNotFoundError:
        version = ""
    return {"version": version, "python": platform.python_version()}
