"""Other mutating webhooks for pods, and whether gpuward sees what they change."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.doctor.facts import Facts, by_name
from cluster.source.registered import is_own
from cluster_commands.doctor.registered import webhooks_for_pods
from cluster_commands.doctor.rows import Row, ok, wrong
from cluster_commands.source.resources import MUTATING
from rules.base.json_access import as_objects

_CHECK = "webhook order"
_REMEDY = (
    "gpuward's own webhooks have reinvocationPolicy IfNeeded: run `helm upgrade` with the "
    "values of the release"
)


def check_webhook_order(facts: Facts) -> Iterator[Row]:
    """One row for each foreign configuration that changes pods.

    API servers call mutating webhooks in the order of the names of their configurations. What a
    later one changes, gpuward sees again only with reinvocationPolicy IfNeeded, and only in pods
    that its match condition let through before.
    """
    configurations = list(by_name(facts.objects(MUTATING)))
    own = [(name, item) for name, item in configurations if is_own(item)]
    if not own:
        return  # the check of the webhook says why
    last = own[-1][0]
    sees_again = all(
        entry.get("reinvocationPolicy") == "IfNeeded"
        for _, item in own
        for _, entry in as_objects(item.get("webhooks"))
    )
    for name, item in configurations:
        if is_own(item) or not webhooks_for_pods(item):
            continue
        if name < last:
            yield ok(_CHECK, name, "is called before gpuward, which sees what it changes")
        elif sees_again:
            again = "is called again for the pods that it was sent"
            yield ok(_CHECK, name, f"is called after gpuward, which {again}")
        else:
            message = "is called after gpuward, which does not see what it changes"
            yield wrong(_CHECK, name, message, _REMEDY)
