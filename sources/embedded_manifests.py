"""Manifests in other texts: Markdown, scripts, ConfigMaps, commands, and other programs' files.

Every function is linear in its input.
"""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from textwrap import dedent
from typing import Any, NamedTuple

from kubeyaml import Chunk, Document, YamlError, read, split
from rules.base.json_values import Path, as_object, as_objects, as_text, display, find_value
from rules.objects.object_ref import group_of
from rules.workloads.discovery import flatten_lists
from rules.workloads.object_kinds import object_kind_of
from sources.manifests import MAX_DOCUMENTS, File, Places, Span, is_kubernetes
from sources.sources import (
    SkippedSource,
    Source,
    SourcePart,
    declares_object,
    definition_head,
    is_manifest_text,
)

_FENCE_PATTERN = re.compile(r"(?P<indent>[ \t>]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[\w+-]*)")
_MANIFEST_LANGUAGES = frozenset({"", "yaml", "yml", "json", "kubernetes", "k8s"})
# `<<<` is no here-document. The word may be quoted, or have a backslash before it.
_HEREDOC_PATTERN = re.compile(
    r"""(?<!<)<<-?[ \t]*
    (?: \\?(?P<plain>[A-Za-z_][\w.+-]*) | "(?P<double>[^"\n]+)" | '(?P<single>[^'\n]+)' )""",
    re.VERBOSE,
)
_MAX_LINE_CHARACTERS = 1_000  # characters of a line in which a here-document may begin
# A quoted word of a command that may be an object, as `echo` writes to kubectl and curl sends.
# A quotation that is never closed goes to the end.
_OBJECT_START = r"(?=\s{0,100}+(?:[\[{]|---|apiVersion|kind))"
_QUOTED_OBJECT_PATTERN = re.compile(
    rf"""'{_OBJECT_START}([^']*+)(?:'|\Z) | "{_OBJECT_START}((?:[^"\\]|\\.)*+)(?:"|\\?\Z)""",
    re.VERBOSE | re.DOTALL,
)


class _TextBlock(NamedTuple):
    """Lines of a text: the number of the first one, from 0, and those up to the end of the block.

    `language` is the one that a code block of Markdown states.
    """

    first_line: int
    lines: list[str]
    language: str = ""


class _Quotation(NamedTuple):
    """A quoted text in a script: its offsets there, with the quotes, and what it stands for."""

    start: int
    end: int
    text: str

    @property
    def has_escapes(self) -> bool:
        """Return whether the text is written in another way."""
        return len(self.text) != self.end - self.start - 2


def manifests_in_markdown(source: Source) -> Iterator[Source]:
    """The manifests in the code blocks of `source`, and in the commands in these."""
    file = File(source)
    for block in _code_blocks(source.text.splitlines(keepends=True)):
        language = block.language.lower()
        is_manifest = language in _MANIFEST_LANGUAGES
        inner = [
            manifest
            for heredoc in _heredocs(block.lines)
            for manifest in _manifest_in_block(
                source, heredoc._replace(first_line=block.first_line + heredoc.first_line)
            )
        ]
        if not is_manifest or not (language or declares_object("".join(block.lines))):
            inner += _quoted_manifests(file, block)
        yield from inner
        # Without a language, a block with here-documents has commands.
        if is_manifest and not (inner and not language):
            yield from _manifest_in_block(source, block)


def manifests_in_script(source: Source) -> Iterator[Source]:
    """The manifests in the here-documents and in the quoted words of the script `source`."""
    lines = source.text.splitlines(keepends=True)
    if "<<" in source.text:
        for block in _heredocs(lines):
            yield from _manifest_in_block(source, block)
    yield from _quoted_manifests(File(source), _TextBlock(0, lines))


def _quoted_manifests(file: File, block: _TextBlock) -> Iterator[Source]:
    """The manifests in the quoted words of the script in `block`, which are lines of `file`."""
    start = file.line_start(block.first_line + 1)
    for found in _quoted_objects(block.lines):
        span = file.span(start + found.start, start + found.end)
        yield _at_quotation(file, found, span)


def _at_quotation(file: File, found: _Quotation, span: Span) -> Source:
    """The manifests in a quotation that is at `span` of `file`."""
    if found.has_escapes or file.source.places:
        return _at(file, _as_one_list(found.text), span, lambda _: span)
    part = SourcePart(line_offset=span.line - 1, column_offset=span.column)
    return _as_embedded(file, found.text, part)


def _quoted_objects(lines: list[str]) -> Iterator[_Quotation]:
    """The quoted texts with objects in a script, outside of its here-documents."""
    if not any("apiVersion" in line for line in lines):
        return
    outside = list(lines)
    for heredoc in _heredocs(lines):
        for number in range(heredoc.first_line, heredoc.first_line + len(heredoc.lines)):
            outside[number] = " " * (len(lines[number]) - 1) + "\n"
    for match in _QUOTED_OBJECT_PATTERN.finditer("".join(outside)):
        text = match[1] if match[1] is not None else re.sub(r"\\(.)", _unescaped, match[2])
        if declares_object(text):
            first, newline, others = text.partition("\n")
            # The first line stands behind a quote, and the others perhaps in an indented block.
            yield _Quotation(*match.span(), f"{first}{newline}{dedent(others)}")


def _unescaped(escape: re.Match[str]) -> str:
    r"""Return what an escape between double quotes stands for: `\\n` is for echo, and stays one."""
    return escape[1] if escape[1] in '"\\$`' else escape[0]


def _manifest_in_block(source: Source, block: _TextBlock) -> Iterator[Source]:
    text = "".join(map(_without_tabs, block.lines))
    if declares_object(text):  # blocks show all kinds of YAML
        part = SourcePart(line_offset=block.first_line)
        yield Source(source.name, text, is_embedded=True, part=part)


def _without_tabs(line: str) -> str:
    """`line` with blanks for the tabs, and for the signs of quotations, that it begins with.

    `<<-` ignores such tabs. No column moves.
    """
    content = line.lstrip(" \t>")
    indent = line[: len(line) - len(content)]
    return " " * len(indent) + content if "\t" in indent or ">" in indent else line


def _code_blocks(lines: list[str]) -> Iterator[_TextBlock]:
    block: _TextBlock | None = None
    fence = ""
    for number, line in enumerate(lines):
        if block is None:
            if opening := _FENCE_PATTERN.match(line):
                fence = opening["fence"]
                block = _TextBlock(number + 1, [], opening["language"])
        elif _closes_fence(line, fence):
            yield block
            block = None
        else:
            block.lines.append(line)
    if block is not None:
        yield block


def _closes_fence(line: str, fence: str) -> bool:
    content = line.strip(" \t>\r\n")
    return content.startswith(fence) and not content.strip(fence[0])


def _heredocs(lines: list[str]) -> Iterator[_TextBlock]:
    if not any("<<" in line for line in lines):
        return
    ends = {line.strip(): number for number, line in enumerate(lines)}
    block: _TextBlock | None = None
    waiting: list[str] = []  # the words that end here-documents
    for number, line in enumerate(lines):
        if not waiting:
            if "<<" in line and not line.lstrip().startswith("#"):
                # What ends nowhere begins none, as in `$((1<<BITS))`.
                waiting = [word for word in _heredoc_words(line) if ends.get(word, 0) > number]
                block = _TextBlock(number + 1, [])
        elif line.strip() == waiting[0]:
            waiting.pop(0)
            if block is not None:
                yield block
            block = _TextBlock(number + 1, [])
        elif block is not None:
            block.lines.append(line)


def _heredoc_words(line: str) -> Iterator[str]:
    for match in _HEREDOC_PATTERN.finditer(line[:_MAX_LINE_CHARACTERS]):
        yield (match["plain"] or match["double"] or match["single"]).strip()


# Where kinds of the core group have texts that a controller may apply, as a ClusterResourceSet of
# Cluster API does with those of ConfigMaps and Secrets.
_TEXT_FIELDS_BY_KIND = {"ConfigMap": "data", "Secret": "stringData"}
# The only type of Secrets that a ClusterResourceSet applies: kubernetes-sigs/cluster-api,
# docs/proposals/20200220-cluster-resource-set.md
_APPLIED_SECRET_TYPE = "addons.cluster.x-k8s.io/resource-set"  # noqa: S105  # no password
_SEPARATOR = "---"


def manifests_in_object(file: File, document: Document) -> Iterator[Source]:
    """The manifests in the texts of the ConfigMaps and Secrets in a document of `file`.

    They have the lines of the file if these have the text, else the line of its beginning. Each
    text comes once: aliases could repeat a long one thousands of times in a short file.
    """
    seen: set[str] = set()
    for raw, base in flatten_lists(as_object(document.value), ()):
        kind, group = as_text(raw.get("kind")), group_of(raw)
        field = "" if group else _TEXT_FIELDS_BY_KIND.get(kind, "")
        if not field or object_kind_of(group, kind, raw):  # of which rules read the texts
            continue
        for key, value in as_object(raw.get(field)).items():
            text = as_text(value)
            if text in seen:
                continue
            seen.add(text)
            if declares_object(text):
                yield from _manifests_in_text(file, document, (*base, field, key), value)
        if kind == "Secret" and raw.get("type") == _APPLIED_SECRET_TYPE:
            for key, value in as_object(raw.get("data")).items():
                encoded = as_text(value)
                if encoded in seen:
                    continue
                seen.add(encoded)
                text = _decoded(encoded)
                if declares_object(text):
                    yield _at_text(file, document, (*base, "data", key), text)


def manifests_in_custom_resource(file: File, document: Document) -> Iterator[Source]:
    """The manifests in texts of the custom resources in a document whose controllers apply them."""
    seen: set[str] = set()
    for raw, base in flatten_lists(as_object(document.value), ()):
        for path, text in _texts_below(raw):
            whole = (*base, *path)
            holder = as_object(find_value(document.value, whole[:-1]))
            if text not in seen and is_manifest_text(group_of(raw), path[-1], holder):
                seen.add(text)
                yield from _manifests_in_text(file, document, whole, text)


def manifests_in_commands(
    file: File, document: Document, pod_paths: Iterable[Path]
) -> Iterator[Source]:
    """The manifests in here-documents and quotations in the texts of pods in a document.

    A pod that runs kubectl creates objects from these.
    """
    seen: set[str] = set()
    for base in pod_paths:
        for path, text in _texts_below(find_value(document.value, base)):
            if "apiVersion" in text and text not in seen:
                seen.add(text)
                yield from _manifests_in_command(file, document, (*base, *path), text)


def _texts_below(value: Any) -> Iterator[tuple[Path, str]]:
    """Each text in `value`, with its path."""
    waiting: list[tuple[Path, Any]] = [((), value)]
    seen: set[int] = set()  # aliases could repeat a value thousands of times
    while waiting:
        path, held = waiting.pop()
        if isinstance(held, str):
            yield path, held
        elif isinstance(held, dict | list) and id(held) not in seen:
            seen.add(id(held))
            pairs = list(held.items() if isinstance(held, dict) else enumerate(held))
            waiting += [((*path, key), inner) for key, inner in pairs][::-1]


def _manifests_in_command(
    file: File, document: Document, path: Path, text: str
) -> Iterator[Source]:
    span = file.span_of_path(document, path)
    lines = _lines_of_text(file, span)
    if lines and lines[0].startswith("|"):
        for heredoc in _heredocs(lines[1:]):
            for block in _documents_in_lines(heredoc.lines):
                inner = "".join(block.lines)
                if declares_object(inner):
                    part = SourcePart(line_offset=span.line + heredoc.first_line + block.first_line)
                    yield _as_embedded(file, inner, part)
        start = span.start + len(lines[0])
        for found in _quoted_objects(lines[1:]):
            yield _at_quotation(file, found, file.span(start + found.start, start + found.end))
    else:  # quoted or folded
        for heredoc in _heredocs(text.splitlines(keepends=True)):
            inner = "".join(heredoc.lines)
            if declares_object(inner):
                yield _at_text(file, document, path, inner)
        for found in _quoted_objects(text.splitlines(keepends=True)):
            yield _at_text(file, document, path, found.text)


def _lines_of_text(file: File, span: Span) -> list[str]:
    """The lines of `file` at `span`; none if they are not in it."""
    if file.source.places:
        return []
    return file.source.text[span.start : span.end].splitlines(keepends=True)


def _decoded(text: str) -> str:
    """The text that `text` is in base64; empty if it is not."""
    try:
        return b64decode("".join(text.split()), validate=True).decode()
    except ValueError:
        return ""


def _manifests_in_text(file: File, document: Document, path: Path, value: str) -> Iterator[Source]:
    span = file.span_of_path(document, path)
    lines = _lines_of_text(file, span)
    if lines and lines[0].startswith("|"):
        for block in _documents_in_lines(lines[1:]):
            part = SourcePart(line_offset=span.line + block.first_line)
            yield _as_embedded(file, "".join(block.lines), part)
    else:  # quoted or folded
        yield _at_text(file, document, path, value)


def _at_text(file: File, document: Document, path: Path, text: str) -> Source:
    """The manifests in `text`, all at the place of the text at `path`."""
    place, _ = document.place.nearest(path)
    if place.key_start >= 0 and not file.source.places:
        span = file.span(place.key_start, place.key_end)  # the text may be long, and secret
    else:
        span = file.span_of_path(document, path)
    return _at(file, _as_one_list(text), span, lambda _: span)


def _at(file: File, text: str, span: Span, span_of_path: Callable[[Path], Span]) -> Source:
    """The manifests in `text` at the places that `span_of_path` returns; `span` is the first."""
    outer = file.source.places
    places = Places(outer.file if outer else file, span_of_path)
    part = SourcePart(line_offset=span.line - 1)
    return _as_embedded(file, text, part)._replace(places=places)


def _as_embedded(file: File, text: str, part: SourcePart) -> Source:
    made = file.source._replace(text=text, part=part, is_embedded=True)
    return made._replace(is_template=False, reader=None, is_beside_secret=file.has_secret)


def _documents_in_lines(lines: list[str]) -> Iterator[_TextBlock]:
    """The documents in `lines`, which are indented, so that their separators are too."""
    block = _TextBlock(0, [])
    for number, line in enumerate(lines):
        if line.strip() == _SEPARATOR or line.lstrip().startswith(f"{_SEPARATOR} "):
            yield block
            block = _TextBlock(number + 1, [])
        else:
            block.lines.append(line)
    yield block


def _as_one_list(text: str) -> str:
    """A List of the documents in `text`, in JSON; `text` itself if it is not such a text."""
    try:
        found = (read(chunk) for chunk in islice(split(text), MAX_DOCUMENTS + 1))
        documents = [document.value for document in found if document]
    except YamlError:
        return text
    if len(documents) > MAX_DOCUMENTS:
        return text
    listed: dict[str, Any] = {"apiVersion": "v1", "kind": "List", "items": documents}
    return json.dumps(listed)


# Files of other programs: the modules of Ansible's collections that apply an object, and the fields
# that hold it (https://docs.ansible.com/ansible/latest/collections/kubernetes/core/).
_ANSIBLE_MODULES = frozenset(
    {
        *(f"{name}.k8s" for name in ("kubernetes.core", "community.kubernetes", "community.okd")),
        *("redhat.openshift.k8s", "k8s", "k8s_raw", "openshift_raw"),
    }
)
_ANSIBLE_FIELDS = ("definition", "resource_definition")
# Those that name files with objects.
_ANSIBLE_FILE_FIELDS = ("src", "template")
_SETTINGS_ON_ONE_LINE = re.compile(r"\b(?:src|template|definition|resource_definition)=").search
# Armada's jobs have the specs of pods: armadaproject/armada pkg/api/submit.proto.
_ARMADA_SPECS = ("podSpec", "podSpecs")
# Determined makes a pod of a part of one (https://docs.determined.ai, "Customize a Pod").
_DETERMINED_FIELD = ("environment", "pod_spec")
_KEY_OF_OBJECT_PATTERN = r"(?:k8s|k8s_raw|openshift_raw|podSpecs?|pod_spec)[ \t]*:"
_LINE_WITH_OBJECT_PATTERN = rf"(?m)^[ \t-]*(?:[\w.]{{1,40}}\.)?{_KEY_OF_OBJECT_PATTERN}"


def manifests_of_other_programs(file: File) -> Iterator[Source | SkippedSource]:
    """The objects that Ansible, Armada and Determined make of `file`, which is no manifest.

    And what a task of Ansible applies that is not in the file.
    """
    text = file.source.text
    # To look at every line takes long, and most files have the words in other places.
    may_have_object = re.search(_KEY_OF_OBJECT_PATTERN, text)
    if not may_have_object or not re.search(_LINE_WITH_OBJECT_PATTERN, text):
        return
    for chunk in islice(split(text), MAX_DOCUMENTS):
        if definition_head(chunk.text):
            continue
        try:
            document = file.source.read_document(chunk)
        except YamlError:
            continue  # `File.manifests` yields it as one that could not be parsed
        if document is None or is_kubernetes(document.value):
            continue
        for path, made in objects_of_other_programs(document.value):
            if isinstance(made, str):
                yield from _manifests_in_task(file, document, path, made)
                continue
            yield _lines_of_object(file, document, path, made) or _at_fields(
                file, document, path, made
            )


def objects_of_other_programs(value: Any) -> Iterator[tuple[Path, Any]]:
    """Yield each object that Ansible, Armada or Determined makes of a document, with its path.

    Or the text that stands for it.
    """
    yield from _objects_of_ansible(value)
    yield from _objects_of_jobs(value)


def _manifests_in_task(
    file: File, document: Document, path: Path, text: str
) -> Iterator[Source | SkippedSource]:
    """The manifests in the text at `path` of a task of Ansible, or what the text stands for."""
    if path[-1] not in _ANSIBLE_FILE_FIELDS and declares_object(text):
        yield from _manifests_in_text(file, document, path, text)
    else:
        line = file.span_of_path(document, path).line
        why = f"line {line}: a task of Ansible applies {display(text)}, which is not in this file"
        yield SkippedSource(file.source.name, f"{why}: lint what it stands for")


def _objects_of_ansible(value: Any) -> Iterator[tuple[Path, Any]]:
    """Each object that a task of Ansible applies, or the text that stands for it, with its path."""
    waiting: list[tuple[Any, Path]] = [(value, ())]
    seen: set[int] = set()  # aliases could repeat a value thousands of times
    while waiting:
        held, path = waiting.pop()
        if not isinstance(held, dict | list) or id(held) in seen:
            continue
        seen.add(id(held))
        pairs = list(held.items() if isinstance(held, dict) else enumerate(held))
        for key, inner in pairs:
            if key in _ANSIBLE_MODULES and as_object(inner).get("state") != "absent":
                if isinstance(inner, str) and _SETTINGS_ON_ONE_LINE(inner):
                    yield (*path, key), inner
                yield from _objects_of_task(as_object(inner), (*path, key))
        waiting += [(inner, (*path, key)) for key, inner in pairs][::-1]


def _objects_of_task(task: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    for field in (*_ANSIBLE_FIELDS, *_ANSIBLE_FILE_FIELDS):
        given = task.get(field)
        if is_kubernetes(given) or (given and isinstance(given, str)):
            yield (*path, field), given
        elif field in _ANSIBLE_FILE_FIELDS:  # several templates, or one with its settings
            yield from (((*path, field), each) for each in _texts(given))
        for index, each in as_objects(given):
            if is_kubernetes(each):
                yield (*path, field, index), each


def _texts(value: Any) -> Iterator[str]:
    """The texts in the name of a template, its settings, or a list of such."""
    for each in value if isinstance(value, list) else [value]:
        text = as_text(each) or as_text(as_object(each).get("path"))
        if text:
            yield text


def _objects_of_jobs(value: Any) -> Iterator[tuple[Path, Any]]:
    """Each pod of Armada's jobs, and the part of a pod of Determined's experiment."""
    raw = as_object(value)
    for index, job in as_objects(raw.get("jobs")) if "queue" in raw else ():
        for field in _ARMADA_SPECS:
            given = job.get(field)
            specs = [((), given)] if isinstance(given, dict) else as_objects(given)
            for place, spec in specs:
                steps = (place,) if isinstance(place, int) else ()
                metadata = {key: job[key] for key in ("labels", "annotations") if key in job}
                metadata["name"] = as_text(raw.get("jobSetId"))
                if "namespace" in job:
                    metadata["namespace"] = job["namespace"]
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
                yield ("jobs", index, field, *steps), pod
    outer, inner = _DETERMINED_FIELD
    part = as_object(as_object(raw.get(outer)).get(inner))
    if part:
        made = {"apiVersion": "determined.ai/v1", "kind": "Experiment", "spec": {inner: part}}
        yield _DETERMINED_FIELD, {**made, "metadata": {"name": as_text(raw.get("name"))}}


def _at_fields(file: File, document: Document, path: Path, made: Any) -> Source:
    """The object `made` of what is at `path`, which is it, its spec, or a field of its spec."""
    given = find_value(document.value, path)
    inner: Path = () if given is made else ("spec",)
    if inner and find_value(made, inner) is not given:
        inner = (*inner, path[-1])

    def span_of_path(wanted: Path) -> Span:
        rest = wanted[len(inner) :] if wanted[: len(inner)] == inner else ()
        return file.span_of_path(document, (*path, *rest))

    return _at(file, json.dumps(made), span_of_path(()), span_of_path)


def _lines_of_object(file: File, document: Document, path: Path, made: Any) -> Source | None:
    """The object at `path` in its own lines; None if it is not alone in them."""
    text, (place, _) = file.source.text, document.place.nearest(path)
    start = text.rfind("\n", 0, place.start) + 1
    lines = text[start : place.end]
    try:
        found = None if text[start : place.start].strip() else read(Chunk(lines))
    except YamlError:
        return None
    if found is None or found.value != made:
        return None
    part = SourcePart(line_offset=file.position(place.start)[0] - 1)
    return _as_embedded(file, lines, part)
