"""The GpuExceptions of a cluster that its policy accepts, as the webhook accepts them."""

from __future__ import annotations

import datetime
from collections.abc import Callable

from cluster.source.objects import NotServedError, ObjectSource, SourceError
from cluster_commands.source.resources import GPU_EXCEPTIONS
from policies.gpu_exceptions import acceptances
from policies.policy import Policy


def with_gpu_exceptions(
    policy: Policy,
    source: ObjectSource,
    namespace: str | None,
    today: datetime.date,
    on_error: Callable[[SourceError], object],
) -> Policy:
    """`policy` with the GpuExceptions of `namespace`, or of all, that it accepts `today`.

    They are listed only if the policy delegates exceptions; without the definition of the kind
    there are none. What cannot be read is given to `on_error`.
    """
    if not policy.delegations:
        return policy
    listed = source.list(GPU_EXCEPTIONS, namespace)
    accepted = []
    try:
        for _, found in acceptances(listed, policy, today):
            if found.accepted and found.exception is not None:
                accepted.append(found.exception)
    except NotServedError:
        pass
    except SourceError as error:
        on_error(error)
    return policy._replace(exceptions=(*policy.exceptions, *accepted))
