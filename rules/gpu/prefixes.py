"""Findings about prefixes in `envFrom` from which a key can form a variable."""

from __future__ import annotations

from collections.abc import Iterator

from rules.base.json_access import as_text, display
from rules.finding import Finding
from rules.gpu.visibility import matching_prefixes
from rules.objects.container import Container


def prefix_findings(
    container: Container,
    variable: str,
    *,
    effect: str,
    subject: str = "",
    remedy: str = "",
    within: str = "",
) -> Iterator[Finding]:
    """Yield a finding if a prefix of `container` and some key can form `variable`.

    `variable` may end in `*`. `effect` continues the message, `remedy` the advice; `subject` begins
    the message, if not with the container alone. Only prefixes that begin with `within` count.
    """
    found = matching_prefixes(container, variable)
    for index, source in [e for e in found if as_text(e[1]["prefix"]).startswith(within)][-1:]:
        name = variable.removesuffix("*")
        yield Finding(
            path=(*container.path, "envFrom", index, "prefix"),
            key=f"envFrom.{name}",
            message=(
                f"{subject or container} takes variables with the prefix "
                f"{display(source['prefix'])}, which a key can complete to {name}{effect}"
            ),
            container=container,
            help=f"choose a prefix that {name} does not begin with{remedy}",
        )
