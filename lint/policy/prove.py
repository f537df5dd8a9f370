"""The command `gpuward policy prove`: what another policy lets through, or that it is nothing."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from kubeyaml.writing import write_yaml
from lint.policy import Commands
from lint.policy.witnesses import Witness, WitnessFinder
from policies.loading import load_policy_file
from policies.openings import Opening, find_openings
from policies.policy import Policy
from terminal import printable

MAX_WITNESSES = 10
"""How many openings are shown by an object."""
MAX_ATTEMPTS = 40
"""For how many openings an object is looked for."""
_OPENED, _UNKNOWN = 1, 3


class Proof(NamedTuple):
    """The result of a comparison.

    - `openings`: what the new policy lets through, with the objects that show it;
    - `settings`: what it lets through and no object shows;
    - `unknown`: what is not known, and why;
    - `more`: how many other openings there may be that were not looked at;
    - `notes`: differences that are no part of the claim.
    """

    openings: list[tuple[Opening, Witness]]
    settings: list[str]
    unknown: list[str]
    more: int
    notes: list[str]

    @property
    def result(self) -> str:
        """Return the result in a word: opened, unknown or proved."""
        if self.openings or self.settings:
            return "opened"
        return "unknown" if self.unknown or self.more else "proved"


def prove(old: Policy, new: Policy, today: datetime.date) -> Proof:
    """Compare two policies, from `today` on."""
    compared = find_openings(old, new, today)
    finder = WitnessFinder(old, new)
    openings: list[tuple[Opening, Witness]] = []
    unknown = list(compared.unknown)
    # A guess is one example, so all of them are looked at.
    attempts = 0
    more = 0
    for opening in compared.openings:
        if len(openings) >= MAX_WITNESSES or attempts >= MAX_ATTEMPTS:
            more += not opening.is_guess
            continue
        attempts += not opening.is_guess
        witness = finder.find(opening)
        if witness is not None:
            openings.append((opening, witness))
        elif not opening.is_guess:
            unknown.append(f"{_names(opening)}: {opening.cause}: no example at hand shows it")
    return Proof(openings, compared.settings, unknown, more, compared.notes)


_DESCRIPTION = """\
Say whether the policy NEW admits nothing that OLD refuses, and leaves nothing that OLD fixes; or
show the smallest object that it treats otherwise, for each difference. No manifests are needed."""
_EPILOG = """exit status: 0 proved, 1 NEW lets something through, 2 wrong usage or a policy that
cannot be used, 3 not known"""


def add_command(commands: Commands) -> None:
    """Add the command to the parser of `gpuward policy`."""
    parser = commands.add_parser(
        "prove",
        help="say whether another policy admits nothing more, or show what",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("old", metavar="OLD", help="a policy, or a ConfigMap with one")
    parser.add_argument("new", metavar="NEW", help="the same")
    parser.add_argument(
        "--output", "-o", choices=("text", "json"), default="text", help="default: text"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    old, new = (load_policy_file(file, []) for file in (options.old, options.new))
    proof = prove(old, new, datetime.datetime.now(tz=datetime.UTC).date())
    lines = _json_lines if options.output == "json" else _text_lines
    sys.stdout.writelines(f"{line}\n" for line in lines(proof))
    return {"opened": _OPENED, "unknown": _UNKNOWN, "proved": 0}[proof.result]


def _text_lines(proof: Proof) -> Iterator[str]:
    for opening, witness in proof.openings:
        yield printable(f"{witness.rule}: {witness.old} -> {witness.new}: {opening.cause}")
        for line in _circumstances(witness):
            yield printable(f"  # {line}")
        for manifest in (witness.manifest, *witness.beside):
            if manifest is not witness.manifest:
                yield "  # beside:"
            yield from (printable(f"  {line}") for line in write_yaml(manifest).splitlines())
    yield from map(printable, proof.settings)
    yield from (printable(f"not known: {why}") for why in proof.unknown)
    if proof.more:
        yield f"not shown: {proof.more} more"
    yield from (printable(f"note: {note}") for note in proof.notes)
    count = len(proof.openings) + len(proof.settings)
    yield {
        "opened": f"the new policy lets through what the old one does not: {count} shown",
        "unknown": "not known whether the new policy lets through what the old one does not",
        "proved": "proved: the new policy admits nothing that the old one refuses, and leaves "
        "nothing that it fixes",
    }[proof.result]


def _circumstances(witness: Witness) -> Iterator[str]:
    if witness.operation:
        yield f"{witness.operation.lower()}d by {witness.user}"
    else:
        yield "in a file"
    yield f"on {witness.day}"


def _names(opening: Opening) -> str:
    first, *others = opening.rules
    return f"{first} and {len(others)} more" if len(others) > 1 else " and ".join(opening.rules)


def _json_lines(proof: Proof) -> Iterator[str]:
    openings: list[dict[str, Any]] = [
        {"cause": opening.cause, **witness._asdict(), "day": witness.day.isoformat()}
        for opening, witness in proof.openings
    ]
    report = {
        "result": proof.result,
        "openings": openings,
        "settings": proof.settings,
        "unknown": proof.unknown,
        "more": proof.more,
        "notes": proof.notes,
    }
    yield json.dumps(report, indent=2)
