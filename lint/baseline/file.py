"""The file of a baseline: its entries, read with their lines, and written."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from kubeyaml import Document, EncodingError, Limits, Lines, YamlError, decode, read, split
from reports.findings import ACTION_BY_LEVEL
from sources.sources import DISK, MAX_BYTES, UsageError
from terminal import DOCS_URL, reason_of

DEFAULT_FILE = "gpuward-baseline.yaml"
FORMAT_VERSION = 1
_MAX_PROBLEMS = 20
_YAML_LIMITS = Limits(max_depth=10, max_nodes=2_000_000, max_alias_nodes=0)
_FILE_HEAD = f"""\
# Findings that `gpuward lint --baseline` accepts: {DOCS_URL}/baseline.md.
# `gpuward baseline update` keeps `reason` and `expires`; everything else is gpuward's.
version: {FORMAT_VERSION}
"""
_REQUIRED_KEYS = ("rule", "level", "file", "object", "fingerprint", "reason")
_OPTIONAL_KEYS = ("container", "expires")
_LEVEL_WORDS = "error, warning or note"
_FINGERPRINT_PATTERN = re.compile("[0-9a-f]{64}")


class BaselineEntry(NamedTuple):
    """One known finding.

    - `fingerprint`: the SHA-256 of the finding's identity, by which the entry is found.
    - `file`: relative to the folder of the baseline, with slashes.
    - `level`: the worst level that is accepted: error, warning or note.
    - `rule`, `object`, `container`: for people; `container` may be empty.
    - `reason`: why the finding is accepted.
    - `expires`: the last day on which it is; None for no end.
    - `line`: where the entry begins in the baseline; 0 if it is not in there yet.
    """

    fingerprint: str
    file: str
    rule: str
    level: str
    object: str
    container: str
    reason: str
    expires: datetime.date | None = None
    line: int = 0

    def has_expired(self, today: datetime.date) -> bool:
        """Return whether the last day of the entry is over."""
        return self.expires is not None and today > self.expires


def read_baseline(name: str) -> tuple[list[BaselineEntry], str]:
    """The entries in the file called `name`, in their order, and its text.

    Raises UsageError, with a line for each problem, if the file is no baseline.
    """
    try:
        content = DISK.read(name, MAX_BYTES + 1)
    except FileNotFoundError:
        hint = "create it with `gpuward baseline create`"
        raise UsageError(f"{name} does not exist; {hint}") from None
    except OSError as error:
        raise UsageError(f"{name}: {reason_of(error)}") from error
    if len(content) > MAX_BYTES:
        raise UsageError(f"{name}: larger than {MAX_BYTES // 1024 // 1024} MiB")
    try:
        text = decode(content)
    except EncodingError as error:
        raise UsageError(f"{name}: {error}") from error
    return _BaselineReader(name, text).entries(), text


def baseline_text(entries: Iterable[BaselineEntry]) -> str:
    """The text of a baseline with `entries`, sorted, so that a change of one is a small diff."""
    import yaml  # noqa: PLC0415  # only who writes a baseline needs it

    raw = [_to_yaml_value(entry) for entry in sorted(entries, key=_sort_key)]
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    body: str = yaml.dump(
        {"findings": raw}, Dumper=dumper, sort_keys=False, allow_unicode=True, width=1 << 20
    )
    return _FILE_HEAD + body


def _sort_key(entry: BaselineEntry) -> tuple[str, ...]:
    return entry.file, entry.object, entry.rule, entry.container, entry.fingerprint


def _to_yaml_value(entry: BaselineEntry) -> dict[str, str]:
    raw = {key: getattr(entry, key) for key in ("rule", "level", "file", "object")}
    if entry.container:
        raw["container"] = entry.container
    raw |= {"fingerprint": entry.fingerprint, "reason": entry.reason}
    if entry.expires:
        raw["expires"] = entry.expires.isoformat()
    return raw


class _BaselineReader:
    """The reading of one file, which collects its problems."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self._lines = Lines(text)
        self._problems: list[str] = []

    def entries(self) -> list[BaselineEntry]:
        document = self._document()
        found = [*self._entries(document)]
        if self._problems:
            more = ["and more"] * (len(self._problems) > _MAX_PROBLEMS)
            raise UsageError("\n".join([*self._problems[:_MAX_PROBLEMS], *more]))
        return found

    def _document(self) -> Document:
        try:
            documents = [d for chunk in split(self._text) if (d := read(chunk, _YAML_LIMITS))]
        except YamlError as error:
            raise UsageError(self._with_position(error.offset, error.message)) from error
        if len(documents) != 1:
            raise UsageError(f"{self._name}: a baseline is one YAML document")
        return documents[0]

    def _with_position(self, offset: int, message: str) -> str:
        line, column = self._lines.line_and_column(offset)
        return f"{self._name}:{line}:{column}: {message}"

    def _add_problem(self, place: Any, message: str) -> None:
        if len(self._problems) <= _MAX_PROBLEMS:
            offset = place.key_start if place.key_start >= 0 else place.start
            self._problems.append(self._with_position(offset, message))

    def _entries(self, document: Document) -> Iterator[BaselineEntry]:
        raw: Any = document.value
        for duplicate in document.duplicates:
            message = f"the key {duplicate.path[-1]!r} is here twice"
            self._problems.append(self._with_position(duplicate.key_start, message))
        if not isinstance(raw, dict) or raw.get("version") != FORMAT_VERSION:
            self._add_problem(
                document.place, f"a baseline is a mapping with `version: {FORMAT_VERSION}`"
            )
            return
        if not isinstance(raw.get("findings"), list) or len(raw) > 2:  # noqa: PLR2004  # both keys
            self._add_problem(document.place, "a baseline has a list `findings`, and no other key")
            return
        inside: Any = document.place.inside
        places = inside["findings"].inside
        for item, place in zip(raw["findings"], places, strict=True):
            entry = self._entry(item, place)
            if entry:
                yield entry._replace(line=self._lines.line_and_column(place.start)[0])

    def _entry(self, raw: Any, place: Any) -> BaselineEntry | None:
        if not isinstance(raw, dict):
            self._add_problem(place, "an entry is a mapping")
            return None
        known = len(self._problems)
        self._check_keys(raw, place)
        if len(self._problems) > known:
            return None
        if not _FINGERPRINT_PATTERN.fullmatch(raw["fingerprint"]):
            self._add_problem(
                place.inside["fingerprint"], "a fingerprint has 64 hexadecimal digits"
            )
        if raw["level"] not in ACTION_BY_LEVEL:
            self._add_problem(place.inside["level"], f"level must be {_LEVEL_WORDS}")
        try:
            ends = raw.get("expires")
            expires = datetime.date.fromisoformat(ends) if ends is not None else None
        except ValueError:
            self._add_problem(place.inside["expires"], "expires must be a day such as 2030-12-31")
            return None
        return BaselineEntry(
            fingerprint=raw["fingerprint"],
            file=raw["file"],
            rule=raw["rule"],
            level=raw["level"],
            object=raw["object"],
            container=raw.get("container", ""),
            reason=raw["reason"],
            expires=expires,
        )

    def _check_keys(self, raw: dict[str, Any], place: Any) -> None:
        for key, value in raw.items():
            if key not in (*_REQUIRED_KEYS, *_OPTIONAL_KEYS):
                self._add_problem(place.inside[key], f"there is no key {key!r}")
            elif not isinstance(value, str):
                self._add_problem(place.inside[key], f"{key} must be a text")
            elif key in _REQUIRED_KEYS and not value.strip():
                self._add_problem(place.inside[key], f"{key} must not be empty")
        for key in _REQUIRED_KEYS:
            if key not in raw:
                hint = f", the worst that it accepts: {_LEVEL_WORDS}" if key == "level" else ""
                self._add_problem(place, f"the entry has no {key}{hint}")
