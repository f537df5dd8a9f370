"""The command `gpuward export`: the policy as objects that API servers evaluate themselves."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from operator import itemgetter

from kubeyaml.writing import write_yaml
from policies.loading import PolicyError
from policies.policy import Policy
from rules.finding import Action
from sources.policy_file import PolicyChoice
from terminal import CommandParser, write_error
from webhook.in_process.objects import ExportOptions, policy_objects
from webhook.in_process.statements import left_out, reason_against
from webhook.registration import MODES, RegistrationOptions

_DESCRIPTION = """\
Write the policy as ValidatingAdmissionPolicies with bindings, which API servers of Kubernetes 1.30
and newer evaluate themselves, without the webhook. They refuse and warn; they fix nothing. Before
1.36 API servers may crash while they compile any such policy: docs/in-process.md."""
_EPILOG = """\
example:  gpuward export vap --policy gpuward.yaml | kubectl apply -f -

exit status: 0 written, 2 wrong usage, or a policy that cannot be used or is too large
"""

MAX_ANNOTATION_BYTES = 262_144
"""So large may all annotations of an object be together."""
MAX_OBJECT_BYTES = 1_500_000
"""A little less than what etcd accepts by default."""


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = CommandParser(
        prog="gpuward export",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "kind", choices=("vap",), help="what to write: `vap` is ValidatingAdmissionPolicies"
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
        help="what happens in mode deny to a pod that cannot be evaluated (default: Fail)",
    )
    return parser


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
        sys.stdout.writelines(_explain(policy))
        return 0
    registration = RegistrationOptions(
        default=Action[options.mode.upper()],
        minimum=Action[options.minimum_mode.upper()],
        excluded_namespaces=tuple(options.exclude_namespace),
    )
    if registration.default < registration.minimum:
        parser.error("--mode is weaker than --minimum-mode")
    objects = [*policy_objects(policy, ExportOptions(registration, options.failure_policy))]
    sizes = {made["metadata"]["name"]: len(json.dumps(made).encode()) for made in objects}
    name, size = max(sizes.items(), key=itemgetter(1))
    if size > MAX_OBJECT_BYTES:
        write_error(
            "gpuward export",
            f"{name} would have {size:,} bytes, and API servers accept {MAX_OBJECT_BYTES:,}: "
            f"the policy has {len(policy.exceptions):,} exceptions; replace some by patterns",
        )
        return 2
    if size > MAX_ANNOTATION_BYTES:
        write_error(
            "gpuward export",
            f"{name} has {size:,} bytes: use `kubectl apply --server-side`; without this "
            f"option kubectl keeps a copy in an annotation of at most {MAX_ANNOTATION_BYTES:,}",
        )
    sys.stdout.write("---\n".join(write_yaml(made) for made in objects))
    return 0


def _explain(policy: Policy) -> Iterator[str]:
    """A line for each rule that is not off."""
    active = policy.rule_set().rules
    width = max(len(rule.rule.name) for rule in active)
    for family in dict.fromkeys(one.rule.family for one in active):
        yield f"{family}\n"
        for one in (one for one in active if one.rule.family == family):
            reason, missing = reason_against(one.rule), left_out(one.rule)
            text = f"not exported: {reason}" if reason else "exported"
            text += f"; but {'; '.join(missing)}" if missing else ""
            yield f"  {one.rule.name:<{width}}  {text}\n"
