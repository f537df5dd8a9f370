"""Variables for the cards of one maker beside a request for a card of another."""

from __future__ import annotations

from rules.base.json_access import display
from rules.finding import Action
from rules.gpu.devices import request_of
from rules.gpu.visibility import is_for_requested_gpu
from rules.objects.container import Container
from rules.profile.records import VisibleDevices


def foreign_request(known: VisibleDevices, container: Container) -> str:
    """The first GPU resource that `container` requests, if none is of the maker of `known`.

    Empty if one is, and if the container requests nothing or something of unknown vendor.
    """
    if container.claims or is_for_requested_gpu(known, container):
        return ""
    return request_of(container).first


def foreign_variable(
    container: Container, setting: str, known: VisibleDevices, resource: str
) -> str:
    """The message about `setting`, such as `sets X="all"`, of the variable `known`."""
    return (
        f"{container} asks for {display(resource)} and {setting}, which only the container runtime "
        f"for {known.maker} cards reads: its image or its settings are for another maker's cards"
    )


def action_beside(known: VisibleDevices, resource: str, container: Container) -> Action:
    """What the variable `known` beside `resource` deserves.

    On a machine with cards of both makers it grants cards. Some makers' cards are in machines of
    their own.
    """
    profile = container.profile
    requested = profile.resource(resource)
    is_apart = requested is not None and requested.exclusive
    return Action.WARN if is_apart or profile.is_exclusive(known.vendors) else Action.DENY
