"""The command `gpuward policy check`: whether the webhook would use a policy."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Iterator

from lint.options import add_profile_option
from lint.policy import Commands
from policies.loading import (
    PolicyError,
    load_policy,
    load_policy_file,
    read_policy_content,
    read_policy_file,
)
from policies.policy import Policy
from rules.rule import load_module
from terminal import printable, write_error

_DESCRIPTION = """\
Load a policy as the webhook of this version of gpuward does, and say whether it can be
used. The chart runs this before it changes anything in the cluster."""
_SOON_PERIOD = datetime.timedelta(days=14)  # as the chart's alert GpuwardExceptionEnds
_EPILOG = "exit status: 0 the policy can be used, 1 it would be refused, 2 wrong usage"


def add_command(commands: Commands) -> None:
    """Add the command to the parser of `gpuward policy`."""
    parser = commands.add_parser(
        "check",
        help="say whether the webhook would use a policy",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file", metavar="FILE", help="the policy; with --config-map, also a ConfigMap with it"
    )
    parser.add_argument(
        "--config-map",
        action="store_true",
        help="FILE may be the chart's ConfigMap, as kubectl get -o yaml prints it; the webhook "
        "itself cannot read that",
    )
    add_profile_option(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    try:
        policy = _load(options)
        for active in policy.rule_set().rules:
            load_module(active.rule)
    except PolicyError as error:
        write_error("gpuward policy", *f"refused: {error}".split("\n"))
        if not options.config_map and _is_config_map(options.file):
            hint = "is a ConfigMap: add --config-map to check the policy in it"
            write_error("gpuward policy", f"{options.file} {hint}")
        return 1
    sys.stdout.writelines(
        printable(f"{options.file}: {line}") + "\n" for line in _report_lines(policy)
    )
    return 0


def _load(options: argparse.Namespace) -> Policy:
    """Return the policy in the file. Raises PolicyError."""
    if options.config_map:
        return load_policy_file(options.file, options.profile)
    return load_policy(read_policy_file(options.file), options.file, options.profile)


def _is_config_map(file: str) -> bool:
    """Return whether the file is the manifest of a ConfigMap with a policy."""
    try:
        _, name = read_policy_content(file)
    except PolicyError:
        return False
    return name != file


def _report_lines(policy: Policy) -> Iterator[str]:
    """Yield what the policy contains, and which of its exceptions have ended or end soon."""
    counts = f"rules: {len(policy.rules)}, exceptions: {len(policy.exceptions)}"
    if policy.gpu_exception_limits:
        counts += f", gpuExceptions: {len(policy.gpu_exception_limits)}"
    yield f"gpuward can use this policy; profile {policy.profile.name}; {counts}"
    today = datetime.datetime.now(tz=datetime.UTC).date()
    for exception in policy.exceptions:
        if exception.expires is not None and exception.expires < today + _SOON_PERIOD:
            verb = "ended" if exception.has_expired(today) else "ends"
            names = ", ".join(exception.rules)
            yield f"note: the exception to {names} {verb} after {exception.expires}"
