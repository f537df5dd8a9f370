"""The command `gpuward policy init`: a first policy from the manifests at hand."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from kubeyaml.writing import write_yaml
from lint.options import add_exclude_option
from lint.policy import Commands
from policies import POLICY_FILE
from policies.policy import parse_catalog_version
from policies.profiles import built_in_profiles
from rules.catalog.index import CATALOG
from sources.git.trees import ignored_paths
from sources.paths import Exclusion, inputs
from sources.sources import InputFile, Source, StandardInput, UsageError
from terminal import DOCS_URL, printable, reason_of

_DESCRIPTION = f"""\
Write a first {POLICY_FILE}: the profiles of the GPU platforms whose resources, taints and labels
the manifests name, and the catalog of today. `gpuward init` does the same from a cluster."""
_FILE_HEAD = f"# Written by `gpuward policy init`; see {DOCS_URL}/policy.md.\n"
# What every profile has in common with others says nothing.
_DEFAULT_PROFILE = "nvidia"
_WORD_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*/[A-Za-z0-9][A-Za-z0-9._-]*")


def add_command(commands: Commands) -> None:
    """Add the command to the parser of `gpuward policy`."""
    parser = commands.add_parser(
        "init",
        help="write a first policy from the manifests at hand",
        description=_DESCRIPTION,
        epilog=f"exit status: 0 written, 2 wrong usage, or there is a {POLICY_FILE} already",
    )
    parser.add_argument("paths", metavar="PATH", nargs="*", help="manifests; default: .")
    add_exclude_option(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if os.path.lexists(POLICY_FILE):
        raise UsageError(f"{POLICY_FILE} is here already: `gpuward policy show` says what it does")
    evidence = _profile_evidence(options.paths or ["."], Exclusion(options.exclude, ignored_paths))
    catalog = max((rule.since for rule in CATALOG), key=parse_catalog_version)
    lines = ["apiVersion: gpuward.io/v1", "kind: Policy"]
    lines.append(f'catalog: "{catalog}"  # newer rules only audit until you raise this')
    lines.append("profiles:")
    for name, (word, where) in (evidence or {_DEFAULT_PROFILE: ("", "")}).items():
        why = f"{word} in {where}" if word else "the default: nothing tells of a platform"
        (item,) = write_yaml([name], flow=False, width=10**6).splitlines()
        lines.append(f"  {item}  # {printable(why)}")
    try:
        with open(POLICY_FILE, "x", encoding="utf-8", newline="\n") as file:
            file.write(_FILE_HEAD + "\n".join(lines) + "\n")
    except OSError as error:
        raise UsageError(f"{POLICY_FILE}: {reason_of(error)}") from error
    sys.stdout.write(
        f"{POLICY_FILE}: written\n"
        "`gpuward lint .` says what is wrong; `gpuward baseline create` accepts today's faults\n"
    )
    return 0


def _profile_evidence(paths: list[str], exclude: Exclusion) -> dict[str, tuple[str, str]]:
    """The profiles of which the manifests name something, each with a word and its place."""
    told_by = _profile_by_word()
    found: dict[str, tuple[str, str]] = {}
    for given in inputs(paths, exclude):
        item = given.read() if isinstance(given, InputFile | StandardInput) else given
        if not isinstance(item, Source):
            continue
        for match in _WORD_PATTERN.finditer(item.text):
            profile = told_by.get(match[0])
            if profile and profile not in found:
                line = item.text.count("\n", 0, match.start()) + 1
                found[profile] = (match[0], f"{item.name}:{line}")
    profiles = built_in_profiles()
    # A profile that another one extends is part of it.
    inherited = {base for name in found for base in profiles[name].get("extends", ())}
    return {name: found[name] for name in sorted(found) if name not in inherited}


def _profile_by_word() -> dict[str, str]:
    """The profile that each word tells of: one that only this profile names."""
    owners: dict[str, set[str]] = {}
    for name, profile in built_in_profiles().items():
        for word in _words_of_profile(profile):
            owners.setdefault(word, set()).add(name)
    return {word: min(names) for word, names in owners.items() if len(names) == 1}


def _words_of_profile(profile: Mapping[str, Any]) -> Iterator[str]:
    yield from (word for word in profile.get("resources", {}) if "*" not in word)
    yield from (word for word in profile.get("nodeModes", {}) if "*" not in word)
    for key in ("taints", "affinities"):
        yield from (entry["key"] for entry in profile.get(key, ()) if "/" in str(entry.get("key")))
