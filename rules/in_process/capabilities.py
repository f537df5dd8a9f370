"""Twins of `Container.added_capabilities` and what follows from it, in CEL."""

from rules.in_process.expression import Expression, choose, get


def added_capabilities(container: Expression) -> Expression:
    """`Container.added_capabilities` of `container`, as it was written, without the indices.

    Runtimes write names in upper case as Unicode has it, where two more letters become I and S;
    CEL knows only ASCII.
    """
    written = get(container, "securityContext.capabilities.add", [])
    in_capitals = written.map(
        lambda x: x.replace("\u0131", "I").replace("\u017f", "S").upperAscii()
    )
    return in_capitals.map(lambda x: choose((x.startsWith("CAP_"), x.substring(4)), otherwise=x))
