"""PyYAML, imported in half the time.

PyYAML compiles a pattern of all printable characters of Unicode. That takes ten milliseconds, a
tenth of a start of the linter, and only its parser in Python needs the pattern: libyaml, by which
gpuward reads, does not. Here the pattern is compiled when it is first used.
"""

import re
from typing import Any

__all__ = ["yaml"]

_LAST_CHARACTER = "\U0010ffff"


class _LatePattern:
    """A pattern that is compiled when it is first used."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __getattr__(self, name: str) -> Any:
        return getattr(re.compile(self._text), name)


def _compile_late(pattern: Any, flags: int = 0) -> Any:
    if isinstance(pattern, str) and _LAST_CHARACTER in pattern and not flags:
        return _LatePattern(pattern)
    return _compile(pattern, flags)


_compile = re.compile
re.compile = _compile_late  # no longer than the import takes
try:
    import yaml
finally:
    re.compile = _compile
