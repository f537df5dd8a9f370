"""Policies as code: the command `gpuward policy`, one module for each of its commands."""

from __future__ import annotations

import argparse
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001
"""The result of `add_subparsers`; argparse has no public name for it."""
