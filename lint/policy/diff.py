"""The command `gpuward policy diff`: what another policy would change for existing manifests."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections import Counter
from collections.abc import Iterator

from lint.policy import Commands
from lint.policy.comparison import ChangedObject, Comparison
from policies.policy_files import load_policy_or_config_map
from rules.profile.context import Context
from sources.paths import inputs
from terminal import printable, write_error

_DESCRIPTION = """\
Compare two policies by what they do with manifests at admission: which objects the new one would
refuse, warn about, note or fix otherwise. Comments in the manifests suppress nothing."""
_EPILOG = """exit status: 0 nothing changes, 1 something changes, 2 wrong usage or a policy that
cannot be used, 3 something could not be evaluated"""


def add_command(commands: Commands) -> None:
    """Add the command to the parser of `gpuward policy`."""
    parser = commands.add_parser(
        "diff",
        help="show what another policy would change for manifests",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("old", metavar="OLD", help="a policy, or a ConfigMap with one")
    parser.add_argument("new", metavar="NEW", help="the same")
    parser.add_argument(
        "--on",
        metavar="PATH",
        dest="paths",
        nargs="+",
        required=True,
        help="manifests: files, folders, globs, or - for standard input",
    )
    parser.add_argument("--namespace", "-n", help="where objects go that name no namespace")
    parser.add_argument("--exclude", metavar="GLOB", action="append", default=[])
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    policies = [load_policy_or_config_map(file, []) for file in (options.old, options.new)]
    today = datetime.datetime.now(tz=datetime.UTC).date()
    context = Context(today=today, namespace=options.namespace)
    comparison = Comparison([policy.rule_set() for policy in policies], context)
    for item in inputs(options.paths, options.exclude):
        comparison.add(item)
    for where, why in comparison.skipped:
        write_error("gpuward", f"skipped: {where}: {why}")
    for where, why in comparison.not_evaluated:
        write_error("gpuward", f"not evaluated: {where}: {why}")
    lines = _json if options.format == "json" else _text
    sys.stdout.writelines(f"{line}\n" for line in lines(comparison.changes))
    return 3 if comparison.not_evaluated else int(bool(comparison.changes))


def _text(changes: list[ChangedObject]) -> Iterator[str]:
    for change in changes:
        states = change.old if change.old == change.new else f"{change.old} -> {change.new}"
        yield printable(f"{change.file}: {change.object}: {states}")
        for line, finding, old, new in change.findings:
            where = f" in {finding.container}" if finding.container else ""
            yield printable(f"  line {line}: {finding.rule}{where}: {old} -> {new}")
    counts = Counter(f"{c.old} -> {c.new}" for c in changes if c.old != c.new)
    parts = [f"{count} {states}" for states, count in counts.most_common()]
    many = f"{len(changes)} object{'s'[len(changes) == 1 :]} would be treated otherwise"
    yield ": ".join(filter(None, (many, ", ".join(parts))))


def _json(changes: list[ChangedObject]) -> Iterator[str]:
    entries = [
        {
            **change._asdict(),
            "findings": [
                {
                    "rule": finding.rule,
                    "container": finding.container_name,
                    "line": line,
                    "message": finding.message,
                    "old": old,
                    "new": new,
                }
                for line, finding, old, new in change.findings
            ],
        }
        for change in changes
    ]
    yield json.dumps({"changes": entries}, indent=2)
