"""What the kubelet makes of `$(NAME)` in a text of a container."""

from __future__ import annotations

import re

from rules.objects.container import Container

_REFERENCE = r"\$\(([^()$]*)\)"
# Many mounts may refer to one long value, so a longer result counts as unknown.
LONGEST = 256


def expand(container: Container, text: str) -> str | None:
    """`text` with the values of the variables to which it refers.

    None if the pod does not show the result: a value is a reference or refers to others, or the
    text has a `$$`. None also if the result has more than `LONGEST` characters.
    """
    if "$" not in text:
        return text
    if len(text) > LONGEST or "$$" in text:
        return None
    parts: list[str] = []
    length = end = 0
    for reference in re.finditer(_REFERENCE, text):
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
