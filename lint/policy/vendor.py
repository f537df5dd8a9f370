"""The command `gpuward policy vendor`: copy a shared policy into a repository."""

from __future__ import annotations

import argparse
import json
import os
import sys

from lint.fix.fixer import FixedText, WriteError
from lint.fix.output import write_file
from lint.policy import Commands
from policies import POLICY_FILE
from policies.files import digest_of, parse_extends_entry
from policies.loading import PolicyDocument, PolicyError, load_policy, read_policy_file
from rules.base.json_values import as_object
from sources.policy_file import nearest_policy
from sources.sources import Source, UsageError
from terminal import printable, reason_of

_DESCRIPTION = f"""\
Copy a policy that several repositories share into this one, and name the copy with its digest in
`extends` of the nearest {POLICY_FILE}. Later, the same command takes a newer version over."""


def add_command(commands: Commands) -> None:
    """Add the command to the parser of `gpuward policy`."""
    parser = commands.add_parser(
        "vendor",
        help="copy a shared policy into this repository, with its digest",
        description=_DESCRIPTION,
        epilog="exit status: 0 copied, or up to date; 2 wrong usage, or a file that cannot be used",
    )
    parser.add_argument("source", metavar="SOURCE", help="the shared policy")
    parser.add_argument(
        "--to", metavar="FILE", help="the copy; default: beside the policy, with the same name"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    content = read_policy_file(options.source)
    try:
        load_policy(content, options.source)
    except PolicyError as error:
        raise PolicyError(f"a copy must be a whole policy in one file: {error}") from error
    policy = nearest_policy(os.getcwd())
    folder = os.path.dirname(policy) if policy else ""
    copy = options.to or os.path.join(folder, os.path.basename(options.source))
    if os.path.basename(copy) == POLICY_FILE:
        raise UsageError(f"a copy called {POLICY_FILE} would be a policy itself: name it with --to")
    _write_copy(copy, content)
    path = os.path.relpath(copy, folder or ".").replace(os.sep, "/")
    entry = f"{path if '/' in path else f'./{path}'}@sha256:{digest_of(content)}"
    if not policy or not _write_entry(policy, path, entry):
        where = policy or POLICY_FILE
        sys.stdout.write(printable(f"{where}: add to extends: {json.dumps(entry)}") + "\n")
    return 0


def _write_copy(copy: str, content: bytes) -> None:
    if os.path.lexists(copy):
        known = read_policy_file(copy)
        if known == content:
            sys.stdout.write(printable(f"{copy}: up to date") + "\n")
            return
        load_policy(known, copy)  # nothing else is overwritten
    try:
        os.makedirs(os.path.dirname(copy) or ".", exist_ok=True)
        with open(copy, "wb") as file:
            file.write(content)
    except OSError as error:
        raise UsageError(f"{copy}: {reason_of(error)}") from error
    sys.stdout.write(printable(f"{copy}: written") + "\n")


def _write_entry(policy: str, path: str, entry: str) -> bool:
    """Give the entry of `extends` that names the copy its digest; whether there is one."""
    _, text, document = PolicyDocument.parse(read_policy_file(policy), policy)
    extends = as_object(document.value).get("extends")
    for index, known in enumerate(extends if isinstance(extends, list) else ()):
        file = parse_extends_entry(known) if isinstance(known, str) else None
        if file is None or os.path.normpath(file.path) != os.path.normpath(path):
            continue
        if known == entry:
            sys.stdout.write(printable(f"{policy}: up to date") + "\n")
            return True
        place, _ = document.place.nearest(("extends", index))
        new = f"{text[: place.start]}{json.dumps(entry)}{text[place.end :]}"
        try:
            write_file(FixedText(Source(policy, text), [(text, new)]))
        except WriteError as error:
            raise UsageError(f"{policy}: {error}") from error
        sys.stdout.write(printable(f"{policy}: written") + "\n")
        return True
    return False
