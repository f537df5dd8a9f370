"""The command `gpuward export`: the policy as objects that API servers evaluate themselves."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any

from kubeyaml.writing import write_yaml
from policies.loading import PolicyError
from policies.policy import Policy
from rules.engine.rule_set import ActiveRule
from rules.finding import Action, FixScope
from rules.profile.profile import Profile
from sources.policy_file import PolicyChoice
from terminal import DOCS_URL, CommandParser, reason_of, write_error
from webhook.in_process.exports import EXPORTS
from webhook.in_process.guard import Guard
from webhook.in_process.objects import ExportOptions
from webhook.in_process.statements import (
    fixing_rules,
    left_out,
    reason_against,
    reason_against_fix,
)
from webhook.in_process.static_manifests import differences, digests, static_files, write_folder
from webhook.registration import MODES, RegistrationOptions

_DESCRIPTION = f"""\
Write the policy as objects that API servers evaluate themselves, without the webhook:

  vap   ValidatingAdmissionPolicies, which refuse and warn: Kubernetes 1.30 and newer. Before 1.36
        API servers may crash while they compile any such policy: {DOCS_URL}/in-process.md
  map   a MutatingAdmissionPolicy, which fixes new pods in mode deny: Kubernetes 1.36 and newer

  static   a folder with both, which API servers read at their start, and which no request can
           change: Kubernetes 1.37 and newer, {DOCS_URL}/static-manifests.md"""
_EPILOG = """\
examples:
  gpuward export vap --policy gpuward.yaml | kubectl apply -f -
  gpuward export vap map --policy gpuward.yaml | kubectl apply -f -
  gpuward export static --mode deny --break-glass-user alice --folder admission
  gpuward export static --mode deny --break-glass-user alice --check admission

exit status: 0 written, or the checked folder is that of the policy, 1 it is not, 2 wrong usage, or
a policy that cannot be used or is too large
"""

MAX_ANNOTATION_BYTES = 262_144
"""So large may all annotations of an object be together."""
_COPY_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
# Go's encoding/json writes each of these as six bytes, such as \u003c, and Python does not.
_ESCAPED_BY_GO = "&<>\u2028\u2029"
_ESCAPE_BYTES = 6
MAX_OBJECT_BYTES = 1_500_000
"""A little less than what etcd accepts by default."""

_STATIC = "static"
_NOTHING = "the policy has nothing that can be exported"
_DNS_LABEL = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
DEFAULT_PATH_ON_NODE = "/etc/kubernetes/gpuward"
"""kubeadm and others have the other files of API servers in the folder above."""


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = CommandParser(
        prog="gpuward export",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "kinds",
        choices=(*EXPORTS, _STATIC),
        nargs="+",
        metavar="KIND",
        help="vap, map, or both; or static",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="list instead which rules are exported, what of them is left out, and which rules are "
        "not exported and why",
    )
    parser.add_argument("--policy", metavar="FILE", help="the policy, or a ConfigMap with one")
    parser.add_argument(
        "--profile",
        metavar="NAME",
        action="append",
        default=[],
        help="a GPU platform, in place of those of the policy; repeatable",
    )
    words = [mode.word for mode in MODES]
    parser.add_argument(
        "--mode",
        choices=words,
        default=Action.WARN.word,
        help="the mode of namespaces without the label gpuward.io/mode (default: warn)",
    )
    parser.add_argument(
        "--minimum-mode",
        choices=[*words, "off"],
        default="off",
        help="the weakest mode that the label of a namespace can choose (default: off)",
    )
    parser.add_argument(
        "--exclude-namespace",
        metavar="NAME",
        action="append",
        default=[],
        help="a namespace in which nothing is evaluated, beside kube-system, kube-public and "
        "kube-node-lease; repeatable",
    )
    parser.add_argument(
        "--failure-policy",
        choices=("Fail", "Ignore"),
        default="Fail",
        help="what happens in mode deny to a pod of which an expression fails (default: Fail)",
    )
    _add_static_options(parser.add_argument_group("options of static"))
    return parser


def _add_static_options(group: argparse._ArgumentGroup) -> None:
    default = Guard()
    place = group.add_mutually_exclusive_group()
    place.add_argument("--folder", metavar="DIR", help="write into this folder; it may be missing")
    place.add_argument(
        "--check", metavar="DIR", help="write nothing, and say what in this folder differs"
    )
    group.add_argument(
        "--path-on-node",
        metavar="DIR",
        default=DEFAULT_PATH_ON_NODE,
        help="where the folder will be on the machines of API servers, as an absolute path "
        f"(default: {DEFAULT_PATH_ON_NODE})",
    )
    group.add_argument(
        "--namespace",
        metavar="NAME",
        default=default.namespace,
        help=f"the namespace of gpuward, which is guarded (default: {default.namespace})",
    )
    group.add_argument(
        "--release",
        metavar="NAME",
        default=default.release,
        help=f"how the names of its objects begin, which are guarded (default: {default.release})",
    )
    group.add_argument(
        "--break-glass-user",
        metavar="NAME",
        action="append",
        default=[],
        help="a user who may change what is guarded, and the modes of namespaces; repeatable",
    )
    group.add_argument(
        "--break-glass-group",
        metavar="NAME",
        action="append",
        default=[],
        help="a group of such users; repeatable",
    )
    group.add_argument(
        "--no-guard", action="store_true", help="guard nothing of gpuward: only evaluate pods"
    )


def main(arguments: list[str]) -> int:
    """Write the objects, or what is in them; the exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        policy = PolicyChoice(options.policy, options.profile).load().policy
    except PolicyError as error:
        write_error("gpuward", *str(error).split("\n"))
        return 2
    if options.explain:
        kinds = [*EXPORTS] if _STATIC in options.kinds else options.kinds
        sys.stdout.writelines(_explain(policy, kinds))
        return 0
    registration = RegistrationOptions(
        default=Action[options.mode.upper()],
        minimum=Action[options.minimum_mode.upper()],
        excluded_namespaces=tuple(options.exclude_namespace),
    )
    if registration.default < registration.minimum:
        parser.error("--mode is weaker than --minimum-mode")
    export_options = ExportOptions(registration, options.failure_policy)
    if _STATIC not in options.kinds and (options.folder or options.check):
        parser.error(f"--{'folder' if options.folder else 'check'} is an option of static")
    if _STATIC in options.kinds:
        return _static(parser, options, policy, export_options)
    objects = [made for kind in options.kinds for made in EXPORTS[kind](policy, export_options)]
    if not objects:
        write_error("gpuward export", _NOTHING)
        return 2
    sizes = {made["metadata"]["name"]: len(json.dumps(made).encode()) for made in objects}
    name, size = max(sizes.items(), key=itemgetter(1))
    if size > MAX_OBJECT_BYTES:
        write_error(
            "gpuward export",
            f"{name} would have {size:,} bytes, and API servers accept {MAX_OBJECT_BYTES:,}: "
            f"the policy has {len(policy.exceptions):,} exceptions; replace some by patterns",
        )
        return 2
    sizes = {made["metadata"]["name"]: annotation_bytes(made) for made in objects}
    name, size = max(sizes.items(), key=itemgetter(1))
    if size > MAX_ANNOTATION_BYTES:
        write_error(
            "gpuward export",
            f"{name} has {size:,} bytes: use `kubectl apply --server-side`; without this "
            f"option kubectl keeps a copy in an annotation of at most {MAX_ANNOTATION_BYTES:,}",
        )
    sys.stdout.write("---\n".join(write_yaml(made) for made in objects))
    return 0


def annotation_bytes(made: Mapping[str, Any]) -> int:
    """Return how large all annotations of an object are together after `kubectl apply`.

    kubectl adds one with the object in JSON, in which Go writes some characters as escapes.
    """
    annotations = made["metadata"].get("annotations", {})
    copy = json.dumps(made, ensure_ascii=False, separators=(",", ":")) + "\n"
    own = (*annotations.keys(), *annotations.values(), _COPY_ANNOTATION, copy)
    added = sum(copy.count(one) * (_ESCAPE_BYTES - len(one.encode())) for one in _ESCAPED_BY_GO)
    return sum(len(text.encode()) for text in own) + added


def _guard(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Guard | None:
    for option, value in (("--namespace", options.namespace), ("--release", options.release)):
        if not _DNS_LABEL.fullmatch(value):
            parser.error(f"{option}: {value!r} is no name of an object of Kubernetes")
    if options.no_guard:
        return None
    named = options.break_glass_user, options.break_glass_group
    return Guard(options.namespace, options.release, *named)


def _static(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    policy: Policy,
    export_options: ExportOptions,
) -> int:
    """Write or check the folder of static manifests; the exit status."""
    if len(options.kinds) > 1:
        parser.error("static has vap and map in it: name it alone")
    chosen = options.folder or options.check
    if not chosen:
        parser.error("static needs --folder or --check")
    path_on_node = PurePosixPath(options.path_on_node)
    if not path_on_node.is_absolute():
        parser.error(f"--path-on-node: {options.path_on_node} is no absolute path")
    guard = _guard(parser, options)
    files = static_files(policy, export_options, guard, path_on_node)
    if not digests(files):
        write_error("gpuward export", _NOTHING)
        return 2
    folder = Path(chosen)
    try:
        if options.folder:
            write_folder(folder, files)
        found = [*differences(folder, files)]
    except OSError as error:
        why = reason_of(error)
        write_error("gpuward export", f"{error.filename or folder}: {why}")
        return 2
    if guard and not (guard.users or guard.groups):
        write_error(
            "gpuward export",
            "no --break-glass-user or --break-glass-group: while the files are in place, nobody "
            "can upgrade or uninstall gpuward",
        )
    for sentence in found:
        write_error("gpuward export", f"{folder}: {sentence}")
    if not found:
        sys.stdout.writelines(f"{folder / path}\n" for path in files)
        sys.stdout.writelines(f"{plugin} {digest}\n" for plugin, digest in digests(files).items())
    return 1 if found else 0


def _explain(policy: Policy, kinds: Sequence[str]) -> Iterator[str]:
    """A line for each rule that is not off, and each kind of object."""
    active = policy.rule_set().rules
    fixing = {rule.name for rule in fixing_rules(policy.rule_set())}
    width = max(len(rule.rule.name) for rule in active)
    for family in dict.fromkeys(one.rule.family for one in active):
        yield f"{family}\n"
        for one in (one for one in active if one.rule.family == family):
            for kind in dict.fromkeys(kinds):
                name = one.rule.name if kind == kinds[0] else ""
                text = _export_of(one, policy.profile) if kind == "vap" else _fix_of(one, fixing)
                yield f"  {name:<{width}}  {text}\n"


def _export_of(active: ActiveRule, profile: Profile) -> str:
    reason, missing = reason_against(active.rule), left_out(active, profile)
    text = f"not exported: {reason}" if reason else "exported"
    return text + (f"; but {'; '.join(missing)}" if missing else "")


def _fix_of(active: ActiveRule, fixing: Collection[str]) -> str:
    if active.rule.name in fixing:
        return "fixed"
    of_policy = "the policy makes no fix of it"
    if active.fix_scope is not FixScope.NONE:
        of_policy = "the profiles of the policy say nothing for it"
    return f"not fixed: {reason_against_fix(active.rule) or of_policy}"
