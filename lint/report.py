"""The command `gpuward report`: what reproduces a problem, with names and values replaced."""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import yaml

from lint.options import add_policy_options
from lint.redaction import MAX_TEXTS, TooManyTextsError, redact
from policies.loading import PolicyError
from policies.policy import Policy
from reports.findings import LEVEL_BY_ACTION
from rules.base.json_values import Json, as_object, pointer
from rules.engine.fixing import check
from rules.engine.rule_set import RuleSet
from rules.profile.context import Context
from rules.workloads.discovery import flatten_lists
from sources.manifests import File, UnparsedDocument
from sources.policy_file import PolicyChoice
from sources.sources import InputFile, Source, StandardInput
from terminal import CommandParser, installed_version, write_error

MAX_OBJECTS = 20
_DESCRIPTION = """\
Print what reproduces a problem: versions, the rules of the policy, and each object of a file
with what the rules find in it. Names and values are replaced where that changes no finding, and
where they have no meaning for rules. Read it before you publish it."""
_HEADER = "# Read this before you publish it: gpuward cannot know which words are secret.\n"


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = CommandParser(
        prog="gpuward report",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("file", metavar="FILE", help="a manifest, or - for standard input")
    made.add_argument(
        "--keep",
        metavar="WORD",
        action="append",
        default=[],
        help="do not replace names and values that contain this word; repeatable",
    )
    add_policy_options(made.add_argument_group("rules"))
    return made


def main(arguments: list[str]) -> int:
    """Print the report; the exit status."""
    options = make_parser().parse_args(arguments)
    try:
        choice = PolicyChoice(options.policy, options.profile, isolated=options.isolated)
        policy = choice.load().policy
        objects = _few_objects(options.file)
        found = [*_reports(objects, policy.rule_set(), options.keep)]
    except (_RefusedError, PolicyError) as error:
        write_error("gpuward", *str(error).split("\n"))
        return 2
    about = {
        "gpuward": installed_version() or "unknown",
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "policy": _described(policy),
        "objects": found,
    }
    text: str = yaml.dump(about, Dumper=yaml.CSafeDumper, sort_keys=False, width=100)
    sys.stdout.write(_HEADER + text)
    return 0


class _RefusedError(Exception):
    """Nothing can be reported; the text says why, and what to do."""


def _few_objects(name: str) -> list[Json]:
    objects = [*_objects(name)]
    if not objects:
        raise _RefusedError(f"{name}: there is no object in it")
    if len(objects) > MAX_OBJECTS:
        many = f"{len(objects)} objects are more than {MAX_OBJECTS}"
        raise _RefusedError(f"{name}: {many}: leave out those that are not needed")
    return objects


def _objects(name: str) -> Iterator[Json]:
    given = StandardInput("-", sys.stdin.buffer.read) if name == "-" else InputFile(name, name)
    source = given.read()
    if not isinstance(source, Source):
        raise _RefusedError(f"{name}: {source.why}")
    for document in File(source).manifests():
        if isinstance(document, UnparsedDocument):
            raise _RefusedError(f"{name}:{document.line}: {document.why}")
        for manifest, _ in flatten_lists(as_object(document.value), ()):
            if manifest.get("kind"):
                yield {**manifest}


def _reports(objects: list[Json], rules: RuleSet, keep: list[str]) -> Iterator[dict[str, Any]]:
    context = Context(datetime.datetime.now(datetime.UTC).date())
    for manifest in objects:
        try:
            redacted = redact(manifest, partial(_findings, rules=rules, context=context), keep)
        except TooManyTextsError:
            many = f"an object has more than {MAX_TEXTS:,} different texts"
            raise _RefusedError(f"{many}: leave out what is not needed") from None
        findings = [" ".join(found) for found in _findings(redacted, rules, context)]
        yield {"findings": findings, "object": redacted}


def _findings(manifest: Json, rules: RuleSet, context: Context) -> list[tuple[str, str, str]]:
    """The level, the rule and the field of each finding."""
    result = check(manifest, rules, context)
    found = [
        (LEVEL_BY_ACTION[each.action], each.rule, pointer(each.path)) for each in result.findings
    ]
    failed = [("failed", failure.rule, failure.error) for failure in result.failures]
    return found + failed


def _described(policy: Policy) -> dict[str, Any]:
    """Return the policy's settings for rules.

    Its exceptions have names, so only their number is in it.
    """
    rules = {
        active.rule.name: active.action.word
        for active in policy.rule_set().rules
        if active.action is not active.rule.action
    }
    return {"rules unlike the default": rules, "exceptions": len(policy.exceptions)}
