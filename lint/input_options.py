"""The options that say what is linted, and by which policy."""

from __future__ import annotations

import argparse
from typing import Any

from policies.policy_files import POLICY_FILE
from sources.sources import STANDARD_INPUT

# The options of `gpuward lint` that commands lack which only have those of `add_inputs`.
DEFAULTS: dict[str, Any] = {
    "staged": False,
    "changed_since": None,
    "fix": False,
    "diff": False,
    "patch": False,
    "unsafe_fixes": False,
    "rules": [],
}


def add_inputs(made: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add what says which files are linted, and by which policy; returns the group of these."""
    group = made.add_argument_group("input")
    group.add_argument(
        "paths", metavar="PATH", nargs="*", help="file, folder, glob, or - for stdin"
    )
    add_policy(group)
    group.add_argument("--namespace", "-n", help="where objects go that name no namespace")
    group.add_argument(
        "--exclude",
        metavar="GLOB",
        action="append",
        default=[],
        help="leave out files, or folders, whose path or name fits; repeatable",
    )
    group.add_argument(
        "--stdin-filename",
        metavar="FILE",
        default=STANDARD_INPUT,
        help="the file that standard input is the text of, for editors",
    )
    group.add_argument(
        "--jobs",
        "-j",
        metavar="N",
        type=_positive,
        help="processes for more than a few files; default: one for each processor, at most 8",
    )
    group.add_argument(
        "--require-input",
        action="store_true",
        help="exit with status 3 if there is no pod, quota or claim to evaluate",
    )
    group.add_argument(
        "--also",
        metavar="KINDS",
        default="",
        help="also lint files that are no manifests: dockerfile, compose, shell, or several of "
        "them with commas",
    )
    _add_rendering(made.add_argument_group("charts and kustomizations"))
    return group


def add_policy(group: argparse._ArgumentGroup) -> None:
    """Add what says which policy is used."""
    group.add_argument(
        "--policy",
        metavar="FILE",
        help=f"instead of the nearest {POLICY_FILE}: a policy, or a ConfigMap with one",
    )
    group.add_argument(
        "--isolated",
        action="store_true",
        help=f"do not look for {POLICY_FILE}: without --policy, use the default policy",
    )
    group.add_argument(
        "--profile",
        metavar="NAME",
        action="append",
        default=[],
        help="the GPU platform that you run, such as gke, instead of those of the policy; "
        "repeatable; default: nvidia",
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def add_selection(made: argparse._MutuallyExclusiveGroup) -> None:
    """Add what chooses files by their history in Git."""
    made.add_argument(
        "--staged",
        action="store_true",
        help="what the next Git commit would add or change, as it is staged; PATHs restrict it",
    )
    made.add_argument(
        "--changed-since",
        metavar="REV",
        help="only files that differ from where the branch left this revision of git",
    )


def _add_rendering(made: argparse._ArgumentGroup) -> None:
    made.add_argument(
        "--render",
        action="store_true",
        help="lint charts and kustomizations as your helm and kubectl render them",
    )
    made.add_argument(
        "--values",
        metavar="FILE",
        action="append",
        default=[],
        help="a values file for the chart, instead of its ci/*-values.yaml; repeatable",
    )
    made.add_argument(
        "--set",
        metavar="KEY=VALUE",
        dest="sets",
        action="append",
        default=[],
        help="a value for the chart, as helm takes it; repeatable",
    )
    made.add_argument(
        "--kube-version", metavar="VERSION", default="", help="render for this Kubernetes version"
    )
