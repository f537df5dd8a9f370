"""Twins of `Container.added_capabilities` and what follows from it, in CEL."""


def added_capabilities(container: str) -> str:
    """`Container.added_capabilities` without the indices, of the CEL `container`.

    Runtimes write names in upper case as Unicode has it, where two more letters become I and S;
    CEL knows only ASCII.
    """
    written = f"{container}.?securityContext.?capabilities.?add.orValue([])"
    upper = 'x.replace("\u0131", "I").replace("\u017f", "S").upperAscii()'
    return f'{written}.map(x, {upper}).map(x, x.startsWith("CAP_") ? x.substring(4) : x)'
