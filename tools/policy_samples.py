"""Write `lint/policy/samples.json`: for each rule, small objects with its findings.

`gpuward policy prove` shows by them what a changed policy lets through. They are those of the cases
that are smallest for each kind of finding: by action, by fix, and of a container or of the object.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rules.catalog.index import CATALOG
from rules.engine.fixing import check
from rules.finding import Action, Finding, FixScope
from rules.rule import Rule
from tests.testkit.cases import Case
from tools.generated_files import ROOT

SAMPLES = ROOT / "lint" / "policy" / "samples.json"
_REQUEST_KEYS = ("user", "operation")
_MAX_CHARACTERS = 3_000
_IMAGE = "example.com/x:1"
_RULE_BY_NAME = {rule.name: rule for rule in CATALOG}


def samples_file(rules: Sequence[Rule[Any]], cases_of: Mapping[str, Sequence[Case]]) -> str:
    """Return the content of the file."""
    lines = [
        f" {json.dumps(rule.name)}: {json.dumps(_samples(cases_of[rule.name]))}" for rule in rules
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _samples(cases: Sequence[Case]) -> list[dict[str, Any]]:
    smallest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for case in cases:
        given = case.circumstances
        kind = str(case.manifest.get("kind"))
        if given.get("operation") == "UPDATE" or "old_metadata" in given or kind.endswith("List"):
            continue
        sample = {
            "manifest": case.manifest,
            "beside": given.get("inventory", []),
            "request": {key: given[key] for key in _REQUEST_KEYS if key in given},
        }
        size = len(json.dumps(sample))
        if size > _MAX_CHARACTERS:
            continue
        for mark in _marks(case):
            key = (kind == "Pod", *mark)
            if key not in smallest or size < len(json.dumps(smallest[key])):
                smallest[key] = sample
    # A Pod says as much as a workload.
    kept = [one for key, one in smallest.items() if key[0] or (True, *key[1:]) not in smallest]
    unique = {json.dumps(sample): sample for sample in sorted(kept, key=lambda s: len(str(s)))}
    return list(unique.values())


def _marks(case: Case) -> Iterator[tuple[Any, ...]]:
    """Yield of each finding of the case, as its rule makes it, what a policy goes by.

    Also whether it is there with any image, which an exception may name, and the rules that it
    silences.
    """
    rule = _RULE_BY_NAME[case.rule]
    kinds = list(_kinds(case, rule, case.manifest))
    with_other_image = Counter(_kinds(case, rule, _with_images(case.manifest)))
    for kind in kinds:
        yield (*kind, with_other_image[kind] > 0, "")
    spots = set(_spots(case, rule))
    for other in rule.supersedes:
        if spots & set(_spots(case, _RULE_BY_NAME[other])):
            yield "", "", "", "", "", other


def _kinds(case: Case, rule: Rule[Any], manifest: Any) -> Iterator[tuple[Any, ...]]:
    scopes = (FixScope.SAFE, FixScope.ALL)
    safe, every = (_findings(case, rule, manifest, scope) for scope in scopes)
    for one, other in zip(safe, every, strict=True):
        yield one.action, one.fixable, other.fixable, one.container is None


def _spots(case: Case, rule: Rule[Any]) -> Iterator[tuple[str, str, str]]:
    for finding in _findings(case, rule, case.manifest, FixScope.NONE):
        yield finding.stable_path, finding.container_name, finding.key


def _findings(case: Case, rule: Rule[Any], manifest: Any, scope: FixScope) -> list[Finding]:
    acting = case.policy.activate(rule)._replace(action=Action.DENY, fix_scope=scope)
    rules = case.alone._replace(rules=(acting,), exceptions=())
    return check(manifest, rules, case.context).findings


def _with_images(value: Any) -> Any:
    """Return `value` with another image in each container."""
    if isinstance(value, dict):
        return {k: _IMAGE if k == "image" else _with_images(v) for k, v in value.items()}
    return [_with_images(each) for each in value] if isinstance(value, list) else value
