"""What tells an object from an earlier one of the same name."""

from __future__ import annotations

from typing import NamedTuple

from cluster.source.objects import Object
from rules.base.json_access import as_object, as_text


class Identity(NamedTuple):
    """The version of its API, and what tells it from an earlier object of the same name."""

    api_version: str
    uid: str


def identity_of(raw: Object) -> Identity:
    """The identity of an object."""
    uid = as_text(as_object(raw.get("metadata")).get("uid"))
    return Identity(as_text(raw.get("apiVersion")), uid)
