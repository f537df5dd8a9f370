"""Run `gpuward modes`: show the modes of namespaces, and change them in bulk."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from cluster.audit.audit import AuditResult, audit
from cluster.gpus.tables import Table, render
from cluster.source.objects import NAMESPACES, VALIDATING, Object, ObjectReader, SourceError
from cluster.source.options import open_connection, open_source
from cluster.source.registered import is_own, registered_mode
from cluster.source.release import read_policy
from cluster.structured_output import format_document
from policies import POLICY_FILE
from policies.loading import PolicyError, load_policy
from policies.policy import Policy
from reports.formats import many, some
from rules.base.json_values import as_object, as_text
from rules.finding import Action
from sources.policy_file import PolicyChoice
from sources.sources import UsageError
from terminal import printable, width_of, write_error
from webhook.registration import MODE_LABEL

VERSION = 1
"""Grows when a field of the document changes its meaning or goes away."""
FIELD_MANAGER = "gpuward-modes"
_NOT_SENT = "<not sent>"
_UNKNOWN = "<unknown>"


class NamespacePlan(NamedTuple):
    """A namespace: the mode that it has and the one that it is to get, as webhooks choose them.

    - `mode` and `new_mode`: empty if its objects are not sent to gpuward.
    - `refused`: the workloads and objects of which mode `deny` would refuse pods, or themselves;
      None if that is not known.
    - `kept_off`: the workloads of which mode `deny` would fix pods, so that they are kept off the
      GPU nodes on which they run now; None if that is not known.
    - `is_changed`: whether its label is to be written.
    """

    name: str
    mode: str
    new_mode: str
    refused: Sequence[str] | None
    kept_off: Sequence[str] | None
    is_changed: bool

    @property
    def is_hit(self) -> bool:
        """Return whether the new mode would refuse something, as far as is known."""
        return self.new_mode == Action.DENY.word and bool(self.refused)

    @property
    def is_safe(self) -> bool:
        """Return whether the new mode is known to refuse nothing that there is."""
        return self.new_mode != Action.DENY.word or self.refused == []


def run(options: argparse.Namespace) -> int:
    """Show or change the modes as the options say; the exit status."""
    try:
        source = open_source(options)
        policy = _policy(options, source)
        chosen = _chosen(source, options)
        own = [item for item in source.list(VALIDATING) if is_own(item)]
        result = audit(source, policy, None, refused_by="webhook")
    except (PolicyError, SourceError, UsageError) as error:
        write_error("gpuward modes", *str(error).split("\n"))
        return 2
    plans = [*plan(chosen, own, options.mode, result)]
    _print(plans, options)
    for missing in result.results.not_evaluated:
        write_error("gpuward modes", f"not evaluated: {missing.message}")
    if options.write and not _write(options, plans):
        return 2
    if any(each.refused is None for each in plans):
        return 3
    return int(any(each.is_changed and each.is_hit for each in plans))


def _policy(options: argparse.Namespace, source: ObjectReader) -> Policy:
    """The policy that the options mean: that of the cluster if they name none."""
    if options.policy or options.isolated:
        choice = PolicyChoice(options.policy, options.profile, isolated=options.isolated)
        return choice.load().policy
    try:
        text = read_policy(source)
    except SourceError as error:
        raise SourceError(f"{error}; name the policy with --policy, or --isolated") from error
    return load_policy(text.encode(errors="replace"), POLICY_FILE, options.profile)


def _chosen(source: Any, options: argparse.Namespace) -> list[Object]:
    """The namespaces that the options name. Raises SourceError if there is none."""
    selection = {"labels": options.selector} if options.selector else {}
    found = {_name(item): item for item in source.list(NAMESPACES, **selection)}
    if options.namespaces:
        if missing := [name for name in options.namespaces if name not in found]:
            raise SourceError(f"there is no namespace {', '.join(missing)}")
        return [found[name] for name in dict.fromkeys(options.namespaces)]
    if not found:
        if options.files:
            raise SourceError("the files have no Namespace")
        labels = f" with the labels {options.selector}" if options.selector else ""
        raise SourceError(f"there is no namespace{labels}")
    return [found[name] for name in sorted(found)]


def _name(item: Object) -> str:
    return as_text(as_object(item.get("metadata")).get("name"))


def plan(
    chosen: Iterable[Object], own: Sequence[Object], mode: str | None, result: AuditResult
) -> Iterator[NamespacePlan]:
    """Yield the change of each namespace; without a `mode`, as if it were to be `deny`.

    `own` are the validating configurations of gpuward, by which API servers choose the mode.
    `result` is an audit of what mode `deny` would refuse.
    """
    refused: dict[str, dict[str, None]] = defaultdict(dict)
    for located in result.results.findings:
        if about := located.owner or located.finding.object:
            refused[about.namespace][f"{about.kind}/{about.name}".lower()] = None
    for item in chosen:
        name, labels = _name(item), as_object(as_object(item.get("metadata")).get("labels"))
        now = registered_mode(own, name, labels)
        asked = mode or Action.DENY.word
        new = registered_mode(own, name, {**labels, MODE_LABEL: asked})
        is_known = result.listed_all and name not in result.incomplete
        hit = [*refused[name]] if is_known or refused[name] else None
        kept_off = result.kept_off.get(name, [])
        # A namespace that is excluded would get a label that says what is not so.
        is_changed = bool(mode) and labels.get(MODE_LABEL) != mode and bool(now or new)
        yield NamespacePlan(
            name=name,
            mode=now,
            new_mode=new if mode else now,
            refused=hit,
            kept_off=kept_off if is_known or kept_off else None,
            is_changed=is_changed,
        )


def _print(plans: Sequence[NamespacePlan], options: argparse.Namespace) -> None:
    if options.output != "table":
        document = {"version": VERSION, "namespaces": [_record(each) for each in plans]}
        sys.stdout.write(format_document(document, options.output))
        return
    with_kept_off = any(each.kept_off for each in plans)
    header = ("NAMESPACE", "MODE", *(["NEW"] if options.mode else []), "WOULD BE REFUSED")
    rows = [(each.name, *_cells(each, with_new=bool(options.mode))) for each in plans]
    if with_kept_off:
        header = (*header, "KEPT OFF GPU NODES")
        rows = [(*row, _listed(each.kept_off)) for row, each in zip(rows, plans, strict=True)]
    sys.stdout.write(render(Table(header, [*rows]), width=width_of(sys.stdout)))
    if options.mode:
        changed = [each for each in plans if each.is_changed]
        hit = [each for each in changed if not each.is_safe]
        hits = f", {len(hit)} in which mode deny would refuse something" if hit else ""
        sys.stdout.write(f"\n{many(len(changed), 'namespace')} to change{hits}\n")
        if not (options.write or options.files):
            sys.stdout.write("dry run: nothing is changed without --write\n")


def _cells(each: NamespacePlan, *, with_new: bool) -> tuple[str, ...]:
    new = (each.new_mode or _NOT_SENT,) if with_new else ()
    return (each.mode or _NOT_SENT, *new, _listed(each.refused))


def _listed(names: Sequence[str] | None) -> str:
    return _UNKNOWN if names is None else some(names) or "-"


def _record(each: NamespacePlan) -> dict[str, Any]:
    return {
        "namespace": each.name,
        "mode": each.mode or None,
        "newMode": each.new_mode or None,
        "wouldBeRefused": None if each.refused is None else [*each.refused],
        "wouldBeKeptOff": None if each.kept_off is None else [*each.kept_off],
        "changed": each.is_changed,
    }


def _write(options: argparse.Namespace, plans: Iterable[NamespacePlan]) -> bool:
    """Write the label on the namespaces that are to change; whether all could be written."""
    from cluster.api.errors import ClusterError, ForbiddenError, MissingError  # noqa: PLC0415

    connection, mode = open_connection(options), options.mode
    succeeded = True
    for each in plans:
        if not (each.mode or each.new_mode) and mode != Action.OFF.word:
            _say(f"namespace/{each.name} left as it is: the webhooks do not select it in any mode")
        if not each.is_changed:
            continue
        if not (each.is_safe or options.with_refusals):
            why = "mode deny would refuse what is in it" if each.refused else "not all is known"
            _say(f"namespace/{each.name} left as it is: {why}: see --with-refusals")
            continue
        body: Mapping[str, Any] = {"metadata": {"labels": {MODE_LABEL: mode}}}
        path = f"/api/v1/namespaces/{quote(each.name, safe='')}?fieldManager={FIELD_MANAGER}"
        try:
            connection.request("PATCH", path, dict(body), "application/merge-patch+json")
        except MissingError:
            continue  # it has been deleted meanwhile
        except ClusterError as error:
            needed = "; it needs the right to patch namespaces"
            right = needed if isinstance(error, ForbiddenError) else ""
            write_error("gpuward modes", f"namespace/{each.name} not changed: {error}{right}")
            succeeded = False
        else:
            _say(f"namespace/{each.name} labelled {MODE_LABEL}={mode}")
    return succeeded


def _say(line: str) -> None:
    sys.stderr.write(f"{printable(line)}\n")
