"""gpuward's release in a cluster: where it is, and what the chart has recorded about it."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cluster.source.objects import (
    CONFIG_MAPS,
    VALIDATING,
    Object,
    ObjectReader,
    Resource,
    SourceError,
)
from cluster.source.registered import is_own
from policies import POLICY_FILE
from policies.controller_files import EXCEPTIONS_FILE, parse_exceptions
from policies.gpu_exceptions import acceptances
from policies.loading import PolicyError, load_policy
from policies.policy import Policy
from rules.base.json_values import as_object, as_objects, as_text
from rules.engine.rule_set import PolicyException

_EXPECTATION, _OBJECTS = "expected.yaml", "objects.txt"


class Home(NamedTuple):
    """The Service behind gpuward's webhooks, whose name begins those of the release's objects."""

    namespace: str
    name: str

    @property
    def policy_name(self) -> str:
        """The name of the ConfigMap with the policy."""
        return f"{self.name}-policy"

    @property
    def exceptions_name(self) -> str:
        """The name of the ConfigMap with the accepted GpuExceptions."""
        return f"{self.name}-exceptions"

    @property
    def record_name(self) -> str:
        """The name of the ConfigMap in which the chart records the release."""
        return f"{self.name}-registration"

    def __str__(self) -> str:
        return f"service/{self.name} in {self.namespace}"


class Release(NamedTuple):
    """A release of the chart.

    `record` is what the chart has recorded about it: None if it is not there, or an error if it
    cannot be read.
    """

    home: Home
    record: Object | SourceError | None

    @property
    def expectation(self) -> str:
        """The manifests of the webhook configurations; empty if they are not recorded."""
        return self._text(_EXPECTATION)

    @property
    def objects(self) -> list[tuple[str, str]]:
        """Kind and name of each object that must be there; empty if they are not recorded."""
        lines = self._text(_OBJECTS).split()
        return [(kind, name) for kind, _, name in (line.partition("/") for line in lines)]

    def _text(self, key: str) -> str:
        record = self.record if isinstance(self.record, dict) else {}
        return as_text(as_object(record.get("data")).get(key))


def homes(configurations: Iterable[Object]) -> list[Home]:
    """The Services that gpuward's webhook configurations name, each once."""
    found = {
        Home(as_text(service.get("namespace")), as_text(service.get("name")))
        for item in configurations
        for _, entry in as_objects(item.get("webhooks"))
        if (service := as_object(as_object(entry.get("clientConfig")).get("service")))
    }
    return sorted(found)


def find_release(source: ObjectReader, configurations: Iterable[Object]) -> Release | None:
    """The release behind gpuward's webhook configurations; None if they name no Service.

    If they name several, a user has changed them: it is the first that has a record.
    """
    found = [*_releases(source, homes(configurations))]
    with_record = (release for release in found if isinstance(release.record, dict))
    return next(with_record, found[0] if found else None)


def _releases(source: ObjectReader, found: Iterable[Home]) -> Iterator[Release]:
    for home in found:
        try:
            record = source.get(CONFIG_MAPS, home.namespace, home.record_name)
        except SourceError as error:
            yield Release(home, error)
        else:
            yield Release(home, record)


def policy_text(config_map: Object) -> str | None:
    """The policy in the ConfigMap of a release; None if it has none."""
    text = as_object(config_map.get("data")).get(POLICY_FILE)
    return text if isinstance(text, str) else None


def policy_of(source: ObjectReader, home: Home) -> Policy | None:
    """The policy of a release; None if it cannot be read or used."""
    try:
        config_map = source.get(CONFIG_MAPS, home.namespace, home.policy_name)
        text = policy_text(config_map) if config_map else None
        return None if text is None else load_policy(text.encode(errors="replace"), POLICY_FILE)
    except (SourceError, PolicyError):
        return None


def exceptions_of(
    source: ObjectReader, home: Home, policy: Policy
) -> tuple[PolicyException, ...] | None:
    """The GpuExceptions that the webhook applies beside `policy`; None if they cannot be read."""
    if not policy.gpu_exception_limits:
        return ()
    try:
        config_map = source.get(CONFIG_MAPS, home.namespace, home.exceptions_name)
    except SourceError:
        return None
    text = as_text(as_object(as_object(config_map).get("data")).get(EXCEPTIONS_FILE))
    try:
        objects = parse_exceptions(text.encode(errors="replace")).objects
    except ValueError:
        return ()  # the webhook applies none either
    found = acceptances(objects, policy, datetime.datetime.now(datetime.UTC).date())
    return tuple(made.exception for _, made in found if made.exception is not None)


def describe(resource: Resource, home: Home, name: str) -> str:
    """Return the name by which rows and messages call an object in the release's namespace."""
    return f"{resource.kind.lower()}/{name} in {home.namespace}"


def read_policy(source: ObjectReader) -> str:
    """The text of the policy by which the registered webhook decides. Raises SourceError."""
    own = [item for item in source.list(VALIDATING) if is_own(item)]
    if not own:
        raise SourceError("no webhook of gpuward is registered, so the cluster has no policy")
    if not (found := homes(own)):
        why = "the registered webhooks name no Service, so it is not known where the policy is"
        raise SourceError(why)
    missing = []
    for home in found:
        config_map = source.get(CONFIG_MAPS, home.namespace, home.policy_name)
        text = policy_text(config_map) if config_map else None
        if text is not None:
            return text
        missing.append(describe(CONFIG_MAPS, home, home.policy_name))
    raise SourceError(f"there is no policy in {' or '.join(missing)}")
