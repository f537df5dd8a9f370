"""Apply a JSON Patch to YAML text, and change nothing else in the text.

`patch` turns the operations into insertions and deletions at the positions that the reader found.
Comments, order, quotes, indentation and line breaks elsewhere stay byte for byte. It refuses what
it cannot edit without touching something else, and checks the result by reading it again.
"""

from kubeyaml.patch.layout import one_line_text
from kubeyaml.patch.model import Operation, PatchedText, PatchError
from kubeyaml.patch.patching import patch

__all__ = ["Operation", "PatchError", "PatchedText", "one_line_text", "patch"]
