"""From where an API server calls: what the webhook answers to a pod that asks for it.

No object of a cluster says from which address API servers connect, as tunnels, proxies of Services
and networks change it. A call says it. So a dry run of a pod with the name ASKING_POD gets a
warning with the address of the connection on which it came. Who sends the review over a connection
of its own learns only its own address.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from webhook.admission.answer import Answer, Envelope, with_warning

ASKING_POD = "gpuward-doctor-caller"
"""The name of pods whose dry runs ask from where the webhook is called."""
_WARNING = re.compile(
    r"gpuward was called from ([0-9A-Fa-f.:]{2,45}) (with|without) a client certificate"
)


class Caller(NamedTuple):
    """The client that has called the webhook.

    `address` is that of the other end of the connection. `is_verified` says that it has shown a
    certificate that the webhook has verified.
    """

    address: str
    is_verified: bool = False


def asks_for_caller(envelope: Envelope) -> bool:
    """Return whether the review in `envelope` asks from where it comes."""
    return envelope.dry_run and envelope.name == ASKING_POD and envelope.kind == "Pod"


def with_caller(found: Answer, caller: Caller) -> Answer:
    """The answer, with a warning that says from where the review came."""
    shown = "with" if caller.is_verified else "without"
    address = _plain(caller.address)
    return with_warning(found, f"gpuward was called from {address} {shown} a client certificate")


def caller_in(warning: str) -> Caller | None:
    """The caller that a warning of `with_caller` names; None if it is another warning."""
    found = _WARNING.fullmatch(warning)
    return Caller(found[1], found[2] == "with") if found else None


def _plain(address: str) -> str:
    """The address as network policies have it: one of IPv4 also where it is mapped into IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(getattr(found, "ipv4_mapped", None) or found)
