"""Refusals for one container, whatever another container of the pod does."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from tests.testkit.admission.reviews import Admission
from tests.testkit.coverage.table import Bypass, bypasses

ADMISSION = Admission()
PAIRS_FOR_EACH = 12
# A bypass with a user of its own is about who creates the pod, and some are about the whole pod.
BYPASSES = [b for b in bypasses() if not b.user and not b.entry.get("owners")]
# `beside` adds no node. Without the one that it names, a pod that also asks for the accelerators of
# other machines runs nowhere.
OTHERS = [b for b in BYPASSES if "nodeName" not in b.pod["spec"]]
REFUSED = [b for b in BYPASSES if b.cell("pods") == "refused" and b.rules]


def beside(one: Bypass, other: Bypass) -> dict[str, Any]:
    """The pod of `one`, with the container, the volumes and the metadata of `other` besides."""
    manifest, added = copy.deepcopy(one.pod), copy.deepcopy(other.pod)
    for field in ("annotations", "labels"):
        manifest["metadata"][field] = added["metadata"][field] | manifest["metadata"][field]
    spec, more = manifest["spec"], added["spec"]
    for mounted in more["containers"]:
        mounted["name"] = "other"
        for mount in mounted.get("volumeMounts", ()):
            mount["name"] += "-other"
    for volume in more.get("volumes", ()):
        volume["name"] += "-other"
    for field in ("containers", "volumes", "tolerations"):
        if field in spec or field in more:
            spec[field] = spec.get(field, []) + more.get(field, [])
    return manifest


@pytest.mark.parametrize("bypass", REFUSED, ids=lambda bypass: bypass.name)
def test_another_container_does_not_hide_a_bypass(bypass: Bypass) -> None:
    chooser = random.Random(bypass.name)  # noqa: S311  # no secret
    for other in chooser.sample(OTHERS, PAIRS_FOR_EACH):
        assert not ADMISSION.validate(beside(bypass, other)).allowed, other.name
