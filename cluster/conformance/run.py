"""Run `gpuward conformance`: gather the evidence, and write the report."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Mapping

from cluster.api.errors import ClusterError, Object
from cluster.audit.audit import audit
from cluster.conformance.dry_runs import Send
from cluster.conformance.evidence import Evidence, absent_namespaces, gather
from cluster.conformance.report import to_document, to_html, to_markdown
from cluster.doctor.facts import Request, read_facts
from cluster.source.objects import NAMESPACES, ObjectReader, SourceError
from cluster.source.options import open_connection, open_source
from cluster.source.release import read_policy
from cluster.structured_output import format_document
from policies import POLICY_FILE
from policies.loading import PolicyError, default_policy, load_policy
from policies.policy import Policy
from rules.base.json_values import as_object, as_text
from sources.policy_file import PolicyChoice
from sources.sources import UsageError
from terminal import installed_version, write_error

_MAX_BYTES = 8 << 20


def run(options: argparse.Namespace) -> int:
    """Write the report about what the options name; the exit status."""
    try:
        evidence = _of_files(options) if options.files else _of_cluster(options)
    except (ClusterError, PolicyError, SourceError, UsageError) as error:
        write_error("gpuward conformance", *str(error).split("\n"))
        return 2
    if options.output == "json":
        sys.stdout.write(format_document(to_document(evidence), "json"))
    else:
        write = to_html if options.output == "html" else to_markdown
        sys.stdout.write(write(evidence))
    return evidence.exit_status


def _of_files(options: argparse.Namespace) -> Evidence:
    """Read what files have, which answer no dry run."""
    return _gather(options, open_source(options), None, None)


def _of_cluster(options: argparse.Namespace) -> Evidence:
    """Read the cluster, and make the dry runs."""
    # Files need no Kubernetes client.
    from cluster.source.api_server import ApiServerSource  # noqa: PLC0415

    connection = open_connection(options)
    connection.request("GET", "/version")  # an error, if there is no API server
    source = ApiServerSource(connection)
    acting = connection.as_user(options.user, options.groups) if options.user else connection

    def send(method: str, path: str, body: Object, sent: str) -> Object:
        return acting.request(method, path, body, sent, _MAX_BYTES)

    return _gather(options, source, source.get_text, send)


def _gather(
    options: argparse.Namespace, source: ObjectReader, request: Request | None, send: Send | None
) -> Evidence:
    policy, described = _policy(options, source)
    facts = read_facts(source, policy, request)
    namespaces = [*dict.fromkeys(options.namespaces)] or ["default"]
    if send and (absent := absent_namespaces(facts, namespaces)):
        raise SourceError(f"there is no namespace {', '.join(absent)}")
    about = {
        "gpuward": installed_version() or "unknown",
        "Kubernetes": source.server_version(),
        "cluster (UID of kube-system)": _cluster_uid(source),
        **described,
    }
    return gather(
        facts,
        send,
        audit(source, policy, None),
        namespaces,
        about,
        image=options.image,
        is_own=not options.user,
    )


def _cluster_uid(source: ObjectReader) -> str:
    """Return the UID by which many identify the cluster; empty if it is not known."""
    try:
        found = source.get(NAMESPACES, "", "kube-system")
    except SourceError:
        return ""
    return as_text(as_object((found or {}).get("metadata")).get("uid"))


def _policy(options: argparse.Namespace, source: ObjectReader) -> tuple[Policy, Mapping[str, str]]:
    """The policy by which running pods are judged, and what the report says about it.

    That is the policy of the cluster, if the options name none; without one, the default policy.
    """
    if options.policy or options.isolated or options.profile:
        choice = PolicyChoice(options.policy, options.profile, isolated=options.isolated)
        found = choice.load()
        return found.policy, {"policy": found.file or "the default policy"}
    try:
        text = read_policy(source)
    except SourceError as error:
        return default_policy(), {"policy": f"the default policy: {error}"}
    content = text.encode(errors="replace")
    described = {
        "policy": "that of the cluster",
        "policy sha256": hashlib.sha256(content).hexdigest(),
    }
    return load_policy(content, POLICY_FILE), described
