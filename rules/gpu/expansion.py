"""What the kubelet makes of `$(NAME)` in a text of a container."""

from __future__ import annotations

import re

from rules.objects.container import Container

_REFERENCE = re.compile(r"\$\(([^()$]*)\)")
# No path is longer, so a longer text is never the path of a mount.
LONGEST = 4096


def expand(container: Container, text: str) -> str | None:
    """`text` with the values of the variables to which it refers.

    None if the pod does not show the result: a value is a reference or refers to others, or the
    text is longer than any path, or it has a `$$`.
    """
    if "$" not in text:
        return text
    if len(text) > LONGEST or "$$" in text:
        return None
    parts: list[str] = []
    length = end = 0
    for reference in _REFERENCE.finditer(text):
        value = container.value_of(reference[1])
        if value is None or "$" in value:
            return None
        length += len(value)
        if length > LONGEST:
            return None
        parts += (text[end : reference.start()], value)
        end = reference.end()
    rest = text[end:]
    return None if "$(" in rest else "".join((*parts, rest))
