"""gpuward's release: what is registered is what the chart recorded, and all its parts are there."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.doctor.facts import DoctorFacts, by_name, name_of, own_configurations
from cluster.doctor.rows import Row, not_known, ok, wrong
from cluster.source.objects import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CRON_JOBS,
    DEPLOYMENTS,
    LEASES,
    MUTATING,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING,
    GetError,
    Object,
    Resource,
    SourceError,
)
from cluster.source.release import Home, describe, exceptions_of, policy_of, policy_text
from cluster.webhooks.comparison import ExpectationError, differences, parse_expectation
from policies import POLICY_FILE
from policies.loading import PolicyError, load_policy
from policies.policy import Policy
from reports.formats import many
from rules.base.json_values import as_object
from rules.engine.rule_set import PolicyException
from terminal import DOCS_URL

_REGISTRATION, _POLICY, _RELEASE = "registration", "policy", "release"
_RESOURCES = {each.kind: each for each in (MUTATING, VALIDATING)}
_NEEDED = {
    each.kind: each
    for each in (
        *(CONFIG_MAPS, CRON_JOBS, DEPLOYMENTS, LEASES, SECRETS, SERVICES, SERVICE_ACCOUNTS),
        *(ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS),
    )
}
_MAX_SHOWN = 3  # differences
_UPGRADE = (
    "run helm upgrade with the values of the release, which writes it as it should be; Helm 4 may "
    f"need --force-conflicts: {DOCS_URL}/uninstall.md"
)
_BY_CHART = (
    f"install gpuward with the chart, which records what it registers: {DOCS_URL}/install.md"
)
_RUNBOOK = f"see GpuwardPolicyRefused in {DOCS_URL}/monitoring.md"


def expected_configurations(facts: DoctorFacts) -> list[Object] | Row:
    """The webhook configurations that the release should have, or why they are not known."""
    release = facts.release
    if release is None:
        message = "the registered webhooks name no Service, so it is not known what they should be"
        return not_known(_REGISTRATION, "webhooks", message, _BY_CHART)
    subject = describe(CONFIG_MAPS, release.home, release.home.record_name)
    if isinstance(release.record, SourceError):
        return unread(_REGISTRATION, subject, release.record)
    if release.record is None:
        if facts.request is None:
            return not_in_files(_REGISTRATION, subject)
        message = "it does not exist, so it is not known what should be registered"
        return not_known(_REGISTRATION, subject, message, f"{_BY_CHART}; or {_UPGRADE}")
    try:
        expected = parse_expectation(release.expectation.encode(), subject)
    except ExpectationError as error:
        return wrong(_REGISTRATION, subject, f"it cannot be used: {error}", _UPGRADE)
    return [*expected.values()]


def check_registration(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each webhook configuration: whether it is what the chart recorded."""
    if not (own_configurations(facts, VALIDATING) or own_configurations(facts, MUTATING)):
        return  # the check of the webhook says why
    expected = expected_configurations(facts)
    if isinstance(expected, Row):
        yield expected
        return
    for manifest in expected:
        resource = _RESOURCES[manifest["kind"]]
        if resource in facts.missing:
            continue  # the check of the webhook says so
        name = name_of(manifest)
        subject = f"{name} ({resource.kind})"
        found = next((i for n, i in by_name(facts.objects(resource)) if n == name), None)
        if texts := _differences(manifest, found):
            more = f"; and {len(texts) - _MAX_SHOWN} more" if len(texts) > _MAX_SHOWN else ""
            message = f"not what the chart recorded: {'; '.join(texts[:_MAX_SHOWN])}{more}"
            yield wrong(_REGISTRATION, subject, message, _UPGRADE)
        else:
            yield ok(_REGISTRATION, subject, "as the chart recorded it")


def _differences(expected: Object, found: Object | None) -> list[str]:
    try:
        return differences(expected, found)
    except (AttributeError, KeyError, TypeError):  # of a file: API servers keep no such object
        return ["a field is missing or has another type than Kubernetes gives it"]


def check_policy(facts: DoctorFacts) -> Iterator[Row]:
    """One row: whether gpuward can use the policy of the release. None without a release."""
    if (release := facts.release) is None:
        return
    home = release.home
    subject = describe(CONFIG_MAPS, home, home.policy_name)
    try:
        config_map = facts.get(CONFIG_MAPS, home.namespace, home.policy_name)
    except SourceError as error:
        yield unread(_POLICY, subject, error)
        return
    if config_map is None:
        yield _missing(facts, _POLICY, subject)
        return
    text = policy_text(config_map)
    if text is None:
        yield wrong(_POLICY, subject, "it has no policy: the key gpuward.yaml is missing", _UPGRADE)
        return
    try:
        load_policy(text.encode(errors="replace"), POLICY_FILE).rule_set()
    except PolicyError as error:
        first, *others = str(error).splitlines()
        more = f" (and {len(others)} more)" if others else ""
        message = f"gpuward cannot use it, and goes by an earlier policy: {first}{more}"
        yield wrong(_POLICY, subject, message, _RUNBOOK)
    else:
        yield ok(_POLICY, subject, "gpuward can use it")


def policy_in_force(facts: DoctorFacts) -> Policy | None:
    """That of the release; without one, that of the command. None if it cannot be read or used."""
    if facts.release is None:
        return facts.policy
    return policy_of(facts.snapshot.source, facts.release.home)


def accepted_exceptions(facts: DoctorFacts, policy: Policy) -> tuple[PolicyException, ...] | None:
    """The GpuExceptions that the webhook applies beside `policy`; None if they cannot be read."""
    if facts.release is None:
        return ()
    return exceptions_of(facts.snapshot.source, facts.release.home, policy)


def check_release(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each object of the release that is missing or does not run, one for the rest."""
    if (release := facts.release) is None or not isinstance(release.record, dict):
        return  # the check of the registration says why
    if not release.objects:
        subject = describe(CONFIG_MAPS, release.home, release.home.record_name)
        yield not_known(_RELEASE, subject, "it does not say which objects there are", _UPGRADE)
    found = [_fault(facts, release.home, kind, name) for kind, name in release.objects]
    yield from filter(None, found)
    if there := found.count(None):
        yield ok(_RELEASE, str(release.home), f"{many(there, 'object')} of the release are there")


def _fault(facts: DoctorFacts, home: Home, kind: str, name: str) -> Row | None:
    """The row about an object that is missing, does not run, or cannot be read; else None."""
    if (resource := _NEEDED.get(kind)) is None:
        return not_known(_RELEASE, f"{kind}/{name}", "gpuward does not know this kind", _UPGRADE)
    namespace = home.namespace if resource.is_namespaced else ""
    subject = describe(resource, home, name) if namespace else f"{kind.lower()}/{name}"
    try:
        found = facts.get(resource, namespace, name)
    except SourceError as error:
        return unread(_RELEASE, subject, error)
    if found is None:
        return _missing(facts, _RELEASE, subject)
    if why := _why_not_whole(resource, found):
        remedy = f"see why: kubectl describe {kind.lower()} {name} -n {home.namespace}"
        return wrong(_RELEASE, subject, why, remedy)
    return None


def _why_not_whole(resource: Resource, found: Object) -> str:
    """Return why not all of a Deployment runs; empty if it does, or is no Deployment."""
    if resource != DEPLOYMENTS:
        return ""
    wanted = as_object(found.get("spec")).get("replicas")
    available = as_object(found.get("status")).get("availableReplicas")
    if wanted == 0:
        return "scaled to 0 replicas: nothing of it runs"
    if not isinstance(available, int) or not available:
        return "no replica is available"
    if isinstance(wanted, int) and available < wanted:
        return f"{available} of {wanted} replicas are available"
    return ""


def _missing(facts: DoctorFacts, check: str, subject: str) -> Row:
    if facts.request is None:
        return not_in_files(check, subject)
    return wrong(check, subject, "it does not exist: somebody has deleted it", _UPGRADE)


def not_in_files(check: str, subject: str) -> Row:
    """The row about an object that the files lack."""
    return not_known(check, subject, "it is not in the files", "run it against the cluster")


def unread(check: str, subject: str, error: SourceError) -> Row:
    """The row about an object that cannot be read."""
    return not_known(check, subject, str(error), _reason(error))


def _reason(error: SourceError) -> str:
    """Return what to do about an object that cannot be read."""
    if isinstance(error, GetError) and error.right:
        return f"grant the right to {error.right}"
    return f"see whether the API server answers: {error}"
