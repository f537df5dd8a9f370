"""The command `gpuward modes`."""

from __future__ import annotations

import argparse

from cluster.source.options import add_connection_options, add_file_option
from lint.options import add_policy_options
from rules.finding import Action
from terminal import CommandParser
from webhook.registration import MODE_LABEL

_DESCRIPTION = f"""\
Show which mode namespaces have, by the webhooks that are registered, and whom mode deny
would hit there. With --set it says what would change. Only with --write the label
{MODE_LABEL} is written, and only on namespaces in which nothing would be refused;
--with-refusals writes it on the others too. Nothing else is changed."""
_EPILOG = """\
The policy is that of the cluster, unless --policy names another. The account needs the rights
of gpuward audit, to get the ConfigMap with the policy and, with --write, to patch namespaces.

exit status: 0 shown, changed, or nothing to refuse, 1 --set deny would refuse something that
there is, 2 wrong usage, or a namespace could not be changed, 3 something could not be listed or
evaluated"""
_MODES = [action.word for action in Action]


def main(arguments: list[str]) -> int:
    """Show or change modes as the command line says; the exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if why := _contradiction(options):
        parser.error(why)
    from cluster.modes.run import run  # noqa: PLC0415  # it takes long to load, and help and completion do without

    return run(options)


def _contradiction(options: argparse.Namespace) -> str:
    """Return which options do not go together, and what to do; empty if all do."""
    given = [bool(options.namespaces), options.selector is not None, options.all]
    if sum(given) > 1:
        return "give names of namespaces, --selector or --all, and not several of them"
    if options.mode and not any(given):
        return "say which namespaces: by their names, by --selector, or --all"
    if (options.write or options.with_refusals) and not options.mode:
        return "--write and --with-refusals are for --set MODE"
    if options.selector is not None and options.files:
        return "--selector is for a cluster: name the namespaces of the files"
    if options.write and options.files:
        return "--write is for a cluster: leave --filename out"
    return ""


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = CommandParser(
        prog="gpuward modes",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("namespaces", metavar="NAMESPACE", nargs="*", help="only these namespaces")
    made.add_argument(
        "--selector",
        "-l",
        metavar="SELECTOR",
        help="only namespaces with these labels: team=a,tier!=b",
    )
    made.add_argument(
        "--all", action="store_true", help="all namespaces: without --set, the default"
    )
    made.add_argument(
        "--output", "-o", choices=("table", "json", "yaml"), default="table", help="default: table"
    )
    change = made.add_argument_group("change")
    change.add_argument("--set", metavar="MODE", dest="mode", choices=_MODES, help="the new mode")
    change.add_argument("--write", action="store_true", help="write the label; else a dry run")
    change.add_argument(
        "--with-refusals",
        action="store_true",
        help="write it also where mode deny would refuse something, or where that is not known",
    )
    add_file_option(add_connection_options(made))
    add_policy_options(made.add_argument_group("rules"))
    return made
