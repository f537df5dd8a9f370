"""Devices that several pods or claims have, and sick ones: remarks, and Events at the pods."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import NamedTuple

from cluster.accounting.claims import claims_by_group, groups_of
from cluster.accounting.device_holders import DeviceHolders, GivenTwice, Holder
from cluster.accounting.device_status import SickDevice, device_statuses, sick_devices
from cluster.accounting.pod_requests import has_terminated
from cluster.source.objects import Object
from reports.formats import many, some
from reports.results import Remark
from rules.base.json_values import as_object, as_objects, as_text
from rules.objects.object_ref import ObjectRef
from rules.profile.profile import Profile

_MAX_REMARKS = 20
_NAMED_HOLDERS = 3  # in an Event: a device may have any number
_SHARED, _SICK = "DeviceGivenTwice", "DeviceUnhealthy"
_HELP = (
    "they use the same memory, so one can end the other or read what it leaves there. Help: delete "
    "one of the pods, and its claim if it has one of its own; its controller makes another pod, "
    "which gets another device"
)


_REPLACE = (
    "what runs there may fail or compute wrong results. Help: delete the pod; its controller makes "
    "another one, and the administrator sees by gpuward doctor what is wrong with the device"
)


class DeviceFault(NamedTuple):
    """A fault of a device that a pod has: `reason` in one word, and `note` for its owner."""

    pod: ObjectRef
    uid: str
    reason: str
    note: str


class _User(NamedTuple):
    """A pod that uses a device, of itself or by a claim."""

    name: str
    uid: str


class DeviceRemarks:
    """Collects the holders of devices. `profile` says which resources are GPUs.

    `sick` are the devices of pods that their plugins call unhealthy: node, resource and name.
    """

    def __init__(self, profile: Profile) -> None:
        self.sick: dict[tuple[str, str, str], list[SickDevice]] = {}
        self._profile = profile
        self._holders = DeviceHolders(profile)
        self._uids: dict[tuple[bool, Holder], str] = {}
        self._users: dict[tuple[bool, Holder], list[_User]] = {}
        self._groups: dict[Holder, tuple[str, ...]] = {}
        """The PodGroups for which claims are reserved."""
        self._members: dict[tuple[str, Holder], list[_User]] = {}
        """The pods of PodGroups, by group and claim."""

    def add(self, raw: Object) -> None:
        """Add an object, if it is a pod or a claim with devices."""
        kind, status = raw.get("kind"), as_object(raw.get("status"))
        if kind == "Pod" and "schedulingGroup" in as_object(raw.get("spec")):
            self._add_member(raw)
        if kind == "ResourceClaim" and status.get("allocation"):
            self._holders.add_claim(raw)
            users = [user for _, user in as_objects(status.get("reservedFor"))]
            used_by = [
                _User(as_text(user.get("name")), as_text(user.get("uid")))
                for user in users
                if user.get("resource") == "pods"
            ]
            self._groups[_holder(raw)] = groups_of(users)
            self._keep(raw, used_by, is_claim=True)
        elif kind == "Pod" and (devices := [*device_statuses(raw)]) and not has_terminated(raw):
            metadata = as_object(raw.get("metadata"))
            node = as_text(as_object(raw.get("spec")).get("nodeName"))
            since = as_text(status.get("startTime"))
            self._holders.add_pod(_holder(raw), node, devices, since)
            user = _User(as_text(metadata.get("name")), as_text(metadata.get("uid")))
            self._keep(raw, [user], is_claim=False)
            for sick in sick_devices(raw, self._profile):
                place = (sick.node, sick.resource, sick.device)
                self.sick.setdefault(place, []).append(sick)

    def _add_member(self, pod: Object) -> None:
        if has_terminated(pod):
            return
        metadata = as_object(pod.get("metadata"))
        user = _User(as_text(metadata.get("name")), as_text(metadata.get("uid")))
        for group, claim in claims_by_group(pod):
            holder = Holder(as_text(metadata.get("namespace")), claim)
            self._members.setdefault((group, holder), []).append(user)

    def _users_of(self, holder: Holder, *, is_claim: bool) -> Iterator[_User]:
        groups = self._groups[holder] if is_claim else ()
        members = chain.from_iterable(self._members.get((group, holder), ()) for group in groups)
        yield from dict.fromkeys((*self._users[is_claim, holder], *members))

    def _keep(self, raw: Object, users: list[_User], *, is_claim: bool) -> None:
        key = is_claim, _holder(raw)
        self._uids[key] = as_text(as_object(raw.get("metadata")).get("uid"))
        self._users[key] = users

    @property
    def given_twice(self) -> int:
        """Return how many devices several have."""
        return len(self._holders.given_twice())

    def remarks(self) -> Iterator[Remark]:
        """A warning for each such device."""
        twice = [str(each) for each in self._holders.given_twice()]
        sick = [str(each) for place in sorted(self.sick) for each in self.sick[place]]
        for found, what in ((twice, "given twice"), (sick, "unhealthy")):
            texts = found[:_MAX_REMARKS]
            if (rest := len(found) - _MAX_REMARKS) > 0:
                texts.append(f"{many(rest, 'more device')} {what}: gpuward doctor says what to do")
            yield from (Remark("warning", "", 0, 0, text) for text in texts)

    def faults(self) -> Iterator[DeviceFault]:
        """Yield each fault at each pod that uses the device."""
        for twice in self._holders.given_twice():
            for holder in twice.holders:
                for user in self._users_of(holder, is_claim=twice.device.is_of_driver):
                    pod = ObjectRef("Pod", "", holder.namespace, user.name)
                    yield DeviceFault(
                        pod=pod, uid=user.uid, reason=_SHARED, note=self._note(twice, holder)
                    )
        for each in chain.from_iterable(self.sick.values()):
            holder = Holder(each.namespace, each.pod)
            yield DeviceFault(
                pod=ObjectRef("Pod", "", each.namespace, each.pod),
                uid=self._uids[False, holder],
                reason=_SICK,
                note=f"this pod has {each.what}: {_REPLACE}",
            )

    def _note(self, given: GivenTwice, own: Holder) -> str:
        """Return the words for the owner of a pod. Of other namespaces they have no name, but UIDs.

        kube-scheduler does the same in the Event about a pod that it evicts.
        """
        kind = "claim" if given.device.is_of_driver else "pod"
        others = [
            f"the {kind} {other.name}"
            if other.namespace == own.namespace
            else f"a {kind} in another namespace with the UID "
            f"{self._uids[given.device.is_of_driver, other]}"
            for other in islice((each for each in given.holders if each != own), _NAMED_HOLDERS)
        ]
        this = f"the claim {own.name} of this pod" if given.device.is_of_driver else "this pod"
        more = len(given.holders) - 1 - len(others)
        words = f"{some(others)} and {more:,} more" if more > 0 else some(others)
        return f"{this} and {words} have {given.what}: {_HELP}"


def _holder(raw: Object) -> Holder:
    metadata = as_object(raw.get("metadata"))
    return Holder(as_text(metadata.get("namespace")), as_text(metadata.get("name")))
