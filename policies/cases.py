"""Cases: manifests, each with the findings and the fixed manifest that a policy must produce.

A case is up to three files in one folder:

    NAME.yaml            the manifest: one document
    NAME.expected.yaml   `findings`: a list; `fixed`: the manifest after its fixes, null if none
                         is made; `refused`: whether an error remains after the fixes
                         Of a case called `clean-…` it may be missing: there is nothing to find.
    NAME.case.yaml       optional, the circumstances: `policy` has keys of a policy, which replace
                         those of the policy that is tested; `rules` names the only rules that
                         count; `namespace`, `user`, `operation`, `today`

Every key of an expected finding must be as said; what is not said may be anything. Findings are
the ones of admission: comments in the manifest suppress nothing.
"""

from __future__ import annotations

import datetime
import difflib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from kubeyaml import EncodingError, YamlError, decode, read, split
from rules.base.json_values import Json, pointer
from rules.engine.fixing import check, fix
from rules.engine.rule_set import RuleSet
from rules.finding import Action, Finding
from rules.profile.context import Context
from terminal import reason_of

EXPECTED_SUFFIX, CIRCUMSTANCES_SUFFIX = ".expected.yaml", ".case.yaml"
CLEAN_PREFIX = "clean-"
"""The beginning of the name of a case in which nothing is to be found."""
NOTHING_FOUND: Mapping[str, Any] = MappingProxyType({"findings": [], "fixed": None})
"""The expected result of such a case."""
_CIRCUMSTANCE_KEYS = ("policy", "rules", "namespace", "user", "operation", "today")
# Keys of `tests/cases` in gpuward's own repository, which say where a case applies.
_SCOPE_KEYS = ("pod_only", "built_in_only")
_RESULT_KEYS = ("findings", "fixed", "refused")
_FINDING_KEYS = ("rule", "action", "path", "container", "key", "message", "help", "fix", "safe")
_OPERATIONS = ("CREATE", "UPDATE")
_TYPES = {"policy": dict, "rules": list, "namespace": str, "user": str}
_TYPE_WORDS = {dict: "an object", list: "a list", str: "text"}
MAX_CASE_BYTES = 10 * 1024 * 1024


class CaseError(ValueError):
    """A case that cannot be read; the message begins with the name of the file."""


class Case:
    """The case whose manifest is in `file`."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._stem = file.removesuffix(".yaml")

    @property
    def expected_file(self) -> str:
        """The file with the expected result."""
        return self._stem + EXPECTED_SUFFIX

    @property
    def has_expectation(self) -> bool:
        """Return whether it is known what the policy must do: a file says so, or the name."""
        is_clean = os.path.basename(self.file).startswith(CLEAN_PREFIX)
        return is_clean or os.path.exists(self.expected_file)

    @property
    def manifest(self) -> Json:
        """The manifest, read anew so that the caller may change it. Raises CaseError.

        Several documents are the items of a List.
        """
        first, *others = _read_documents(self.file)
        return {"apiVersion": "v1", "kind": "List", "items": [first, *others]} if others else first

    @cached_property
    def circumstances(self) -> Mapping[str, Any]:
        """The content of NAME.case.yaml. Raises CaseError."""
        file = self._stem + CIRCUMSTANCES_SUFFIX
        if not os.path.exists(file):
            return {}
        given = _read_mapping(file, (*_CIRCUMSTANCE_KEYS, *_SCOPE_KEYS))
        for key, expected in _TYPES.items():
            if not isinstance(given.get(key, expected()), expected):
                raise CaseError(f"{file}: {key} should be {_TYPE_WORDS[expected]}")
        if given.get("operation", "CREATE") not in _OPERATIONS:
            raise CaseError(f"{file}: operation should be one of {', '.join(_OPERATIONS)}")
        return given

    @cached_property
    def expected(self) -> Mapping[str, Any]:
        """The expected result. Raises CaseError."""
        if self.has_expectation and not os.path.exists(self.expected_file):
            return NOTHING_FOUND
        expected = _read_mapping(self.expected_file, _RESULT_KEYS)
        findings = expected.get("findings")
        if not isinstance(findings, list) or not all(isinstance(f, dict) for f in findings):
            raise CaseError(f"{self.expected_file}: findings should be a list of findings")
        for finding in findings:
            _refuse_unknown(self.expected_file, finding, _FINDING_KEYS)
        return expected

    def context(self, today: datetime.date) -> Context:
        """The context in which the rules check the manifest. Raises CaseError."""
        given = self.circumstances
        try:
            day = datetime.date.fromisoformat(given["today"]) if "today" in given else today
        except (TypeError, ValueError) as error:
            raise CaseError(f"{self._stem}{CIRCUMSTANCES_SUFFIX}: today: {error}") from error
        return Context(
            today=day,
            namespace=given.get("namespace"),
            user=given.get("user"),
            operation=given.get("operation"),
        )

    def actual_result(self, rules: RuleSet, today: datetime.date) -> dict[str, Any]:
        """Return the result of `rules` for the manifest, in the form of an expected result.

        Raises CaseError if a file cannot be read, or a rule fails.
        """
        manifest, context = self.manifest, self.context(today)
        evaluated = check(manifest, rules, context)
        fixed = fix(manifest, rules, context)
        for failure in (*evaluated.failures, *fixed.remaining.failures):
            raise CaseError(f"{self.file}: the rule {failure.rule} failed: {failure.error}")
        return {
            "findings": [describe_finding(finding) for finding in evaluated.findings],
            "fixed": fixed.manifest if fixed.operations else None,
            "refused": any(f.action is Action.DENY for f in fixed.remaining.findings),
        }


def describe_finding(finding: Finding) -> dict[str, Any]:
    """A finding as files with expected results write it."""
    description: dict[str, Any] = {
        "rule": finding.rule,
        "action": finding.action.word,
        "path": pointer(finding.path),
        "container": finding.container_name,
        "key": finding.key,
        "message": finding.message,
        "help": finding.help,
    }
    if finding.fix is not None:
        description["fix"] = finding.fix.title
        description["safe"] = finding.fix.safe
    return description


def read_yaml(file: str) -> Json:
    """The only document in `file`. Raises CaseError."""
    first, *others = _read_documents(file)
    if others:
        raise CaseError(
            f"{file}: has {len(others) + 1} documents; only a manifest may have several"
        )
    return first


def _read_documents(file: str) -> list[Json]:
    """The documents in `file`, at least one. Raises CaseError."""
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):
            raise CaseError(f"{file}: not a regular file")
        with open(file, "rb") as stream:
            content = stream.read(MAX_CASE_BYTES + 1)
        if len(content) > MAX_CASE_BYTES:
            raise CaseError(f"{file}: larger than {MAX_CASE_BYTES >> 20} MiB")
        documents = [d for chunk in split(decode(content)) if (d := read(chunk)) is not None]
    except OSError as error:
        raise CaseError(f"{file}: {reason_of(error)}") from error
    except (EncodingError, YamlError) as error:
        raise CaseError(f"{file}: {error}") from error
    if not documents:
        raise CaseError(f"{file}: has no document")
    return [document.value for document in documents]


def _read_mapping(file: str, known: Iterable[str]) -> Mapping[str, Any]:
    value = read_yaml(file)
    if not isinstance(value, dict):
        raise CaseError(f"{file}: should be an object with the keys {', '.join(known)}")
    _refuse_unknown(file, value, known)
    return value


def _refuse_unknown(file: str, value: Mapping[str, Any], known: Iterable[str]) -> None:
    for key in value:
        if key not in known:
            raise CaseError(f"{file}: unknown key {key!r}; there are {', '.join(known)}")


# The keys of a finding that stay the same when gpuward words its messages differently.
_STABLE_KEYS = ("rule", "action", "path", "container", "key")


def difference_lines(
    expected: Mapping[str, Any], got: Mapping[str, Any], manifest: Json
) -> list[str]:
    """Return the lines that say where `got` is not as `expected`; none if it is.

    Both are about `manifest`. What is expected and missing begins with `-`, and what is there and
    not expected with `+`.
    """
    lines = [*_findings(expected["findings"], got["findings"])]
    if "refused" in expected and expected["refused"] is not got["refused"]:
        lines += [
            f"- refused: {_as_json(expected['refused'])}",
            f"+ refused: {_as_json(got['refused'])}",
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
        yield f"- finding: {_as_json(wanted)}"
    for unexpected in left:
        # Only what the expectations speak of, so that the two lines can be compared.
        keys = {key for wanted in missing for key in wanted} | set(_STABLE_KEYS)
        yield f"+ finding: {_as_json({k: v for k, v in unexpected.items() if k in keys and v})}"


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
