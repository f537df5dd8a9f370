"""Devices that a device plugin offers under several names; the scheduler counts each name alone.

Neuron's offers the cores of its chips, and the chips, which until release 2.20 had a second name. A
pod has all cores of a chip that it asks for.
Source: awsdocs-neuron, "Neuron Device Plugin", and the announcement of the end of `neurondevice`
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from cluster.accounting.nodes import Total
from cluster.accounting.shares import Amount


class OtherNames(NamedTuple):
    """The names of the same devices: `whole` ones, and `parts` of which each has as many."""

    whole: tuple[str, ...]
    parts: str


class Unhealthy(NamedTuple):
    """The number of devices that count as unhealthy.

    Unless it `is_known`, some of them may be healthy and those that pods have by another name.
    """

    number: Amount
    is_known: bool = True


NEURON = OtherNames(
    ("aws.amazon.com/neuron", "aws.amazon.com/neurondevice"), "aws.amazon.com/neuroncore"
)
_BY_NAME = dict.fromkeys((*NEURON.whole, NEURON.parts), NEURON)


def by_other_names(
    resource: str, amounts: Mapping[str, Amount], totals: Mapping[str, Total]
) -> Amount:
    """Return how many devices of `resource` pods have by `amounts` of its other names.

    `totals` are what the node offers. Which parts a pod has is not known: they are counted as if
    they were of as few devices as possible.
    """
    names = _BY_NAME.get(resource)
    if names is None or resource not in totals:
        return 0
    whole = sum(amounts.get(name, 0) for name in names.whole if name != resource)
    parts, devices = totals.get(names.parts), _devices(names, totals)
    if parts is None or not devices or not parts.capacity:
        return whole
    if resource == names.parts:
        return -(-whole * parts.capacity // devices)
    return whole + -(-amounts.get(names.parts, 0) * devices // parts.capacity)


def _devices(names: OtherNames, totals: Mapping[str, Total]) -> Amount:
    return max((totals[name].capacity for name in names.whole if name in totals), default=0)


def unhealthy_devices(
    resource: str, amounts: Mapping[str, Amount], totals: Mapping[str, Total]
) -> Unhealthy:
    """Return how many devices of `resource` count as unhealthy.

    A device plugin takes unhealthy devices out of what is allocatable by each name. It may also
    take out what pods have by another name; where both are possible, the devices are unhealthy.
    """
    names = _BY_NAME.get(resource)
    if names is None or resource not in totals:
        return Unhealthy(0)
    offered = [n for n in (*names.whole, names.parts) if n in totals and totals[n].capacity]
    if len(offered) == 1:
        return Unhealthy(0)
    devices, parts = _devices(names, totals), totals.get(names.parts)
    size = Fraction(parts.capacity) / Fraction(devices) if parts and devices else Fraction(1)
    out, taken = {}, {}  # in parts
    for name in offered:
        unit = 1 if name == names.parts else size
        out[name] = Fraction(totals[name].capacity - totals[name].allocatable) * unit
        taken[name] = Fraction(by_other_names(name, amounts, totals)) * unit
    known = max(Fraction(0), *(out[name] - taken[name] for name in offered))
    possible = min(out.values())
    unit = Fraction(1) if resource == names.parts else size
    return Unhealthy(ceil(max(known, possible) / unit), is_known=possible <= known)


def devices_with_unknown_parts(
    amounts: Mapping[str, Amount], totals: Mapping[str, Total]
) -> tuple[str, ...]:
    """Return the resources of whose devices pods have parts by `amounts`, and not known of which.

    None if it makes no difference for how many devices are free.
    """
    for names in dict.fromkeys(_BY_NAME.values()):
        parts, devices = totals.get(names.parts), _devices(names, totals)
        has = amounts.get(names.parts, 0)
        if parts is None or not (has and devices and parts.capacity):
            continue
        left = devices - sum(amounts.get(name, 0) for name in names.whole)
        fewest = -(-has * devices // parts.capacity)
        if fewest < min(has, left):
            return tuple(name for name in names.whole if name in totals)
    return ()
