"""Compare what a case expects with what a policy produces."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from rules.base.json_values import Json

# The keys of a finding that stay the same when gpuward words its messages differently.
_STABLE_KEYS = ("rule", "action", "path", "container", "key")


def differences(expected: Mapping[str, Any], got: Mapping[str, Any], manifest: Json) -> list[str]:
    """Return the lines that say where `got` is not as `expected`; none if it is.

    Both are about `manifest`. What is expected and missing begins with `-`, and what is there and
    not expected with `+`.
    """
    lines = [*_findings(expected["findings"], got["findings"])]
    if "refused" in expected and expected["refused"] is not got["refused"]:
        lines += [
            f"- refused: {_short(expected['refused'])}",
            f"+ refused: {_short(got['refused'])}",
        ]
    if "fixed" in expected and expected["fixed"] != got["fixed"]:
        # Where nothing is fixed, the manifest stays as it is.
        texts = [manifest if one["fixed"] is None else one["fixed"] for one in (expected, got)]
        before, after = (json.dumps(t, indent=2, sort_keys=True).splitlines() for t in texts)
        names = ("fixed: expected", "fixed: got")
        lines += difflib.unified_diff(before, after, *names, n=2, lineterm="")
    return lines


def stable_result(got: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `got` says, without the wording of messages, to be expected from now on."""
    findings = [{key: f[key] for key in _STABLE_KEYS if f[key]} for f in got["findings"]]
    return {"findings": findings, "refused": got["refused"], "fixed": got["fixed"]}


def _findings(expected: list[dict[str, Any]], got: list[dict[str, Any]]) -> Iterator[str]:
    """Pair each expected finding with one that has all that it says; yield what has no partner."""
    left = list(got)
    # One that says more has fewer partners, so it chooses first.
    missing = []
    for wanted in sorted(expected, key=len, reverse=True):
        partner = next((f for f in left if wanted.items() <= f.items()), None)
        if partner is None:
            missing.append(wanted)
        else:
            left.remove(partner)
    for wanted in missing:
        yield f"- finding: {_short(wanted)}"
    for unexpected in left:
        # Only what the expectations speak of, so that the two lines can be compared.
        keys = {key for wanted in missing for key in wanted} | set(_STABLE_KEYS)
        yield f"+ finding: {_short({k: v for k, v in unexpected.items() if k in keys and v})}"


def _short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
