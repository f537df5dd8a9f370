"""Texts that gpuward reads, where they are from, and what it does not read."""

import errno
import gc
import os
import re
import stat
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from kubeyaml import (
    CachedReader,
    Chunk,
    Document,
    EncodingError,
    ReaderOfKnown,
    decode,
    read,
)
from sources import STANDARD_INPUT
from sources.containment import is_inside
from terminal import reason_of

_READ_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0)  # which only Windows has
_PIECE_BYTES = 1 << 16
# What is open already, such as `<(helm template …)` in a shell, has an end. A named pipe that
# no program writes has none.
_OPEN_FILE_PREFIXES = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
_NOT_REGULAR_REASON = "not a regular file"
_LEADS_OUTSIDE_REASON = "a link that leads out of the folder; name its target to lint it"


class FileTree(Protocol):
    """Files by their paths, which are absolute or relative to the working folder."""

    def real_path(self, path: str) -> str:
        """The absolute path without links."""

    def exists(self, path: str) -> bool:
        """Return whether there is something at `path`, even a link that leads nowhere."""

    def is_link(self, path: str) -> bool:
        """Return whether there is a symbolic link."""

    def is_file(self, path: str) -> bool:
        """Return whether there is a regular file, perhaps at the end of links."""

    def read(self, path: str, limit: int) -> bytes:
        """The content of a regular file, up to `limit` bytes. Raises OSError."""


class DiskTree:
    """The files on disk."""

    def real_path(self, path: str) -> str:
        """The absolute path without links."""
        return os.path.realpath(path)

    def exists(self, path: str) -> bool:
        """Return whether there is something at `path`, even a link that leads nowhere."""
        return os.path.lexists(path)

    def is_link(self, path: str) -> bool:
        """Return whether there is a symbolic link."""
        return os.path.islink(path)

    def is_file(self, path: str) -> bool:
        """Return whether there is a regular file, perhaps at the end of links."""
        return os.path.isfile(path)

    def read(self, path: str, limit: int) -> bytes:
        """The content of a regular file, or of one that is open, up to `limit` bytes.

        Raises OSError.
        """
        if not _has_end(path):
            raise OSError(errno.EINVAL, _NOT_REGULAR_REASON, path)
        # Most files are small, and to make a file object of one takes longer than to read it.
        descriptor = os.open(path, _READ_FLAGS)
        try:
            pieces = []
            while limit and (piece := os.read(descriptor, min(limit, _PIECE_BYTES))):
                pieces.append(piece)
                limit -= len(piece)
        finally:
            os.close(descriptor)
        return b"".join(pieces)


def reduce_garbage_collection() -> None:
    """Collect garbage rarely: most of the many objects that a run reads live to its end."""
    gc.freeze()
    gc.set_threshold(200_000, 50, 50)


def _has_end(path: str) -> bool:
    return path.startswith(_OPEN_FILE_PREFIXES) or stat.S_ISREG(os.stat(path).st_mode)


DISK = DiskTree()


MAX_BYTES = 10 * 1024 * 1024
LARGE_BYTES = 4 << 20
"""From how many bytes on a file is cut. A List of this size has too many nodes to read at once."""
MANIFEST_ENDINGS = (".yaml", ".yml", ".json")
KUSTOMIZATION_FILES = ("kustomization.yaml", "kustomization.yml", "Kustomization")
# What tools put behind the name of a file that they fill in: Go, Jinja, ERB, Terraform, chezmoi …
TEMPLATE_ENDINGS = (
    *("tmpl", "tpl", "tftpl", "template", "templ", "gotmpl", "gotpl", "gotemplate", "j2", "jinja"),
    *("jinja2", "erb", "ejs", "mustache", "hbs", "handlebars", "envsubst", "in"),
)
# What people put behind the name of a file that others copy and change.
_SAMPLE_ENDINGS = ("dist", "example", "sample")
# What can hide a word that every object has: an escape that writes a letter, or that joins lines,
# and a tag, such as `!!binary`.
HIDDEN_WORD_PATTERN = r"\\[uUx\r\n\x85\u2028\u2029]|(?<![^\s\[{,])!"
# Where a key may stand: at the beginning of a line, or anywhere in one that begins in flow style.
_KEY_START = r"(?m)^[ \t>]*(?:- )?(?:[\[{](?:[^\n]*[{,])?[ \t]*)?[\"']?"
# A value that begins with a dot is a filter of jq, as in `{apiVersion: .apiVersion}`.
_API_VERSION_PATTERN = _KEY_START + r"apiVersion[\"']?[ \t]*:(?![ \t]*\.)"
_KIND_PATTERN = _KEY_START + r"kind[\"']?[ \t]*:"
# The head of a CustomResourceDefinition as tools write it, and what else may begin a line of it.
_DEFINITION_PATTERN = re.compile(
    r"(?:---\n|[ ]*(?:#[^\n]*)?\n)*+"
    r"apiVersion: apiextensions\.k8s\.io/v1(?:beta1)?\nkind: CustomResourceDefinition\n"
    r"(?=(?:[ ]*(?:#[^\n]*)?\n)*+(?:metadata|spec):)"
)
_OUTER_LINE = re.compile(r"\n([^ \n#][^\n]*)")
_OUTER_KEYS_OF_DEFINITION = frozenset({"metadata:", "spec:", "status:"})
# Line breaks for YAML that are none here.
_OTHER_LINE_BREAKS = ("\r", "\x85", "\u2028", "\u2029")
# Keys of a template's outermost lines, with values that it does not fill in.
_OUTER_API_PATTERN = r"(?m)^[\"']?apiVersion[\"']?[ \t]*:[ \t]*[\"']?([^\s\"'#]*)"
_OUTER_KIND_PATTERN = r"(?m)^[\"']?kind[\"']?[ \t]*:[ \t]*[\"']?([^\s\"'#]*)"
_CORE_VERSION_PATTERN = r"v\d\w*"
_KUBECONFIG_KIND = "Config"
# What a template of a chart's values says of GPUs.
_GPU_SETTING_PATTERN = (
    r"(?m)^[ \t-]*(?:name:[ \t]*)?[\"']?NVIDIA_VISIBLE_DEVICES\b"
    r"|^[ \t]*runtimeClassName:[ \t]*[\"']?nvidia"
)
_PRIVILEGED_PATTERN = r"(?m)^[ \t]*privileged:[ \t]*true\b"
# The names of the format that git-lfs reads: today's, and two older ones.
_LFS_POINTERS = (
    "version https://git-lfs.github.com/spec/",
    "version https://hawser.github.com/spec/",
    "version http://git-media.io/v/",
)
_MAX_LFS_POINTER_BYTES = 1024
TEMPLATE_REASON = "a chart's template: lint the chart with --render"
_TEMPLATE_ENDING_REASON = (
    "a template of a manifest: lint what it renders to, or name the file to lint it as it is"
)
_SAMPLE_REASON = "a sample of a manifest: name the file to lint it as it is"
_TEMPLATE_OF_VALUES_REASON = (
    "a template that tells of GPUs, and of no object of Kubernetes: lint what is made of it"
)
_HELMFILE_REASON = "a template of a helmfile: lint what `helmfile template` prints"
_PLACEHOLDER_MARKS = ("{{", "{%")


class UsageError(Exception):
    """Wrong usage of the command line; the message says why."""


class SourcePart(NamedTuple):
    """The place of a source's text in its file, if it is a part of the file.

    - `line_offset`: what to add to a line of the text to have that of the file.
    - `line`: the first line of the text that is in the file; those above are gpuward's own.
    - `column_offset`: what to add to a column in this line.
    - `item_offset`: how many items of the List come before.
    - `is_first`: whether no other part of the file comes before.
    """

    line_offset: int
    line: int = 1
    column_offset: int = 0
    item_offset: int = 0
    is_first: bool = False


class Source(NamedTuple):
    """One text and the name by which reports call it.

    `is_named`: the user has named the file itself. `is_template`: it is in a chart, and has
    placeholders.
    `is_rendering`: no file has the text; `name` is the command that writes it. `is_embedded`: it is
    in a file that is no manifest, and nothing fixes it. `part` says where the text is in its file,
    if it is not all of it. `places`, of the type `sources.manifests.Places`, says it if no lines of
    the file have the text.
    """

    name: str
    text: str
    is_named: bool = False
    is_template: bool = False
    is_rendering: bool = False
    is_embedded: bool = False
    part: SourcePart | None = None
    places: Any = None
    folder: str = ""
    """the folder of the chart or kustomization, if it is a rendering"""
    reader: CachedReader | ReaderOfKnown | None = None
    """the reader that knows its documents already, if other texts have some of them"""
    value: Any = None
    """the document that it is, if it had to be decoded already"""
    is_beside_secret: bool = False
    """it is a part of a file with a Secret"""

    def read_document(self, chunk: Chunk) -> Document | None:
        """The document of a chunk of the text, or None if it has none. Raises YamlError."""
        return self.reader.read(chunk) if self.reader else read(chunk)

    @property
    def lines(self) -> range:
        """The numbers of its lines in its file, from 1."""
        first = self.part.line_offset + 1 if self.part else 1
        return range(first, first + self.text.count("\n") + 1)

    @property
    def namespace_stand_in(self) -> str:
        """Return a stand-in for the namespace of objects without one: their folder or rendering."""
        folder = f"the folder {os.path.dirname(self.name) or '.'}"
        place = "standard input" if self.name == STANDARD_INPUT else folder
        return f"the output of {self.name}" if self.is_rendering else place


class SkippedSource(NamedTuple):
    """A file or another input that is not evaluated on purpose, and why.

    Without a reason, no user expects it to be evaluated, and no report names it.
    `needs_rendering`: `--render` evaluates it, so the result of the run depends on that option.
    """

    name: str
    why: str
    needs_rendering: bool = False


class UnreadableSource(NamedTuple):
    """Something that could not be read, and why; where in it, if that is known."""

    name: str
    why: str
    line: int = 0
    column: int = 0


class InputFile(NamedTuple):
    """A file to read: below `path`, which the user has named, or that file itself."""

    name: str
    path: str

    def read(self) -> Source | SkippedSource | UnreadableSource:
        """The text of the file."""
        content = self._content()
        return self.to_source(content) if isinstance(content, bytes) else content

    def read_as_it_is(self) -> Source | UnreadableSource:
        """The text of a file that is no manifest, also if it is a template."""
        content = self._content()
        return _decode(self.name, content) if isinstance(content, bytes) else content

    def _content(self) -> bytes | UnreadableSource:
        if self._leads_outside():
            return UnreadableSource(self.name, _LEADS_OUTSIDE_REASON)
        try:
            return DISK.read(self.name, MAX_BYTES + 1)
        except OSError as error:
            return UnreadableSource(self.name, reason_of(error))

    def _leads_outside(self) -> bool:
        """Return whether the file is a link that leads out of the folder that the user named."""
        return self.name != self.path and _leads_outside(self.name, self.path)

    def refusal(self) -> UnreadableSource | None:
        """Return why the file must not be read; None if it may be read."""
        why = ""
        try:
            if self._leads_outside():
                why = _LEADS_OUTSIDE_REASON
            elif not _has_end(self.name):
                why = _NOT_REGULAR_REASON
        except OSError as error:
            why = reason_of(error)
        return UnreadableSource(self.name, why) if why else None

    def to_source(self, content: bytes) -> Source | SkippedSource | UnreadableSource:
        """The file with its content, of which up to MAX_BYTES + 1 bytes are given."""
        return source_of(self.name, content, DISK, is_named=self.name == self.path)


class StandardInput(NamedTuple):
    """Standard input, which `stream` reads up to so many bytes of."""

    name: str
    stream: Callable[[int], bytes]

    def read(self) -> Source | UnreadableSource:
        """The text on standard input."""
        return self.to_source(self.stream(MAX_BYTES + 1))

    def to_source(self, content: bytes) -> Source | UnreadableSource:
        """Return the text of `content`, which was read from standard input."""
        source = _decode(self.name, content)
        return source._replace(is_named=True) if isinstance(source, Source) else source


Input: TypeAlias = Source | SkippedSource | UnreadableSource | InputFile | StandardInput


class InputReader:
    """Reads the inputs of a run, of which some are read twice: at first for the inventory.

    What the first reading has found is kept for the second one: texts of up to `size` characters,
    and documents of up to `document_size` characters.
    """

    def __init__(self, size: int, document_size: int) -> None:
        self._sizes, self._left = (size, document_size), size
        self._kept: dict[InputFile, Source] = {}
        self.documents = CachedReader(document_size)
        """reads documents the first time"""
        self._known_documents = ReaderOfKnown(self.documents)

    def __reduce__(self) -> tuple[type["InputReader"], tuple[int, int]]:
        return InputReader, self._sizes  # another process reads for itself

    def read_ahead(self, file: InputFile) -> Source | SkippedSource | UnreadableSource:
        """The text of `file`, which `read` will be asked for."""
        item = file.read()
        if isinstance(item, Source) and len(item.text) <= self._left:
            self._left -= len(item.text)
            self._kept[file] = item
        return item

    def read(self, given: Input) -> Source | SkippedSource | UnreadableSource:
        """The text of an input, whose documents may be known."""
        item: Source | SkippedSource | UnreadableSource
        if isinstance(given, InputFile) and given in self._kept:
            item = self._kept.pop(given)
            self._left += len(item.text)
        elif isinstance(given, InputFile | StandardInput):
            item = given.read()
        else:
            item = given
        if isinstance(item, Source) and item.reader is None:
            return item._replace(reader=self._known_documents)
        return item


def may_be_large(given: Input) -> bool:
    """Return whether the input has, or may have, so many bytes that it is cut."""
    if isinstance(given, StandardInput):
        return True
    if not isinstance(given, InputFile) or is_template_name(given.name):
        return False
    try:
        status = os.stat(given.name)
    except OSError:
        return False  # reading it says why
    return stat.S_ISREG(status.st_mode) and status.st_size >= LARGE_BYTES


def may_hold_manifests(name: str) -> bool:
    """Return whether a file called `name` in a folder is read: YAML, JSON and templates of them."""
    return (
        name.lower().endswith(MANIFEST_ENDINGS)
        or os.path.basename(name) in KUSTOMIZATION_FILES
        or is_template_name(name)
    )


def is_template_name(name: str) -> bool:
    """Return whether a file called `name` is a template or sample of another, by its ending."""
    stem, dot, ending = os.path.basename(name).lower().rpartition(".")
    # With `README.md.gotmpl` and `nginx.conf.j2`, something else is made than manifests.
    makes_manifest = "." not in stem or os.path.splitext(stem)[1] in MANIFEST_ENDINGS
    return (bool(dot) and ending in TEMPLATE_ENDINGS and makes_manifest) or _is_sample_name(name)


def _is_sample_name(name: str) -> bool:
    stem, _, ending = os.path.basename(name).lower().rpartition(".")
    return ending in _SAMPLE_ENDINGS and os.path.splitext(stem)[1] in MANIFEST_ENDINGS


def declares_object(text: str) -> bool:
    """Return whether lines of `text` begin with the two keys that every Kubernetes object has.

    Or whether lines that begin as a map or list of one line have these keys.
    """
    return bool(re.search(_API_VERSION_PATTERN, text) and re.search(_KIND_PATTERN, text))


# Fields of custom resources whose texts a controller applies (rancher/fleet-docs
# docs/bundle-add.md; argoproj/argo-workflows docs/walk-through/kubernetes-resources.md).
_MANIFEST_FIELD_BY_GROUP = {"fleet.cattle.io": "content", "argoproj.io": "manifest"}
# What Argo does otherwise than to apply it; what a patch has is a part of an object.
_OTHER_ACTIONS = ("patch", "delete", "get")


def has_manifest_texts(group: str) -> bool:
    """Return whether custom resources of the API group may have texts that a controller applies."""
    return group in _MANIFEST_FIELD_BY_GROUP


def is_manifest_text(group: str, field: object, holder: Mapping[str, Any]) -> bool:
    """Return whether a controller applies the objects in the text of `holder` at `field`.

    It is a part of a custom resource.
    """
    if not isinstance(field, str) or _MANIFEST_FIELD_BY_GROUP.get(group) != field:
        return False
    text = holder[field]
    is_applied = holder.get("action") not in _OTHER_ACTIONS
    return isinstance(text, str) and is_applied and declares_object(text)


def definition_head(text: str) -> str:
    """Return the first lines of a document that is a CustomResourceDefinition; empty for others.

    They name its kind, and the rest is a block map that no rule reads: definitions are most
    of the text of many operators' repositories. One with a comment about rules is read as a whole.
    """
    found = _DEFINITION_PATTERN.match(text)
    if found is None or "gpuward" in text or any(mark in text for mark in _OTHER_LINE_BREAKS):
        return ""
    outer = _OUTER_LINE.findall(text, found.end() - 1)
    is_block_map = all(line.rstrip(" ") in _OUTER_KEYS_OF_DEFINITION for line in outer)
    return found[0] if is_block_map else ""


def has_placeholder(text: str) -> bool:
    """Return whether `text` has `{{` or `{%` outside comments, as templates do."""
    for mark in _PLACEHOLDER_MARKS:
        found = text.find(mark)
        while found >= 0:
            if "#" not in text[text.rfind("\n", 0, found) + 1 : found]:
                return True
            end = text.find("\n", found)  # what is behind a comment's mark is in the comment
            found = text.find(mark, end) if end >= 0 else -1
    return False


def source_of(
    name: str, content: bytes, tree: FileTree, *, is_named: bool = False
) -> Source | SkippedSource | UnreadableSource:
    """The file `name` of `tree` with its content, of which up to MAX_BYTES + 1 bytes are given."""
    if not is_named and is_template_name(name):
        return _refused_template(name, content, tree)
    source = _decode(name, content)
    if not isinstance(source, Source):
        return source
    is_json = name.lower().endswith(".json")
    if is_json and not is_named and not _may_have_object(source.text):
        return SkippedSource(name, "")  # another tool's JSON, which may well not be JSON
    is_template = has_placeholder(source.text) and _is_chart_template(name, tree)
    return source._replace(is_named=is_named, is_template=is_template)


def _may_have_object(text: str) -> bool:
    """Return whether an apiVersion may be in the text, which every object has."""
    is_hidden = ("\\" in text or "!" in text) and re.search(HIDDEN_WORD_PATTERN, text)
    return "apiVersion" in text or bool(is_hidden)


def _refused_template(
    name: str, content: bytes, tree: FileTree
) -> SkippedSource | UnreadableSource:
    """Return the file `name`, a template, with the reason why it is not evaluated.

    It is skipped without a reason if it is a template of no manifest and tells of no GPU.
    """
    text = content.decode(errors="replace")
    is_manifest = declares_object(text) and not _is_of_another_program(text)
    if not is_manifest and _is_helmfile(name):
        return SkippedSource(name, _HELMFILE_REASON)
    if not is_manifest and not _tells_of_gpus(text):
        return SkippedSource(name, "")
    if _is_chart_template(name, tree):
        return SkippedSource(name, TEMPLATE_REASON, needs_rendering=True)
    if not is_manifest:
        return SkippedSource(name, _TEMPLATE_OF_VALUES_REASON)
    if _is_sample_name(name):
        return SkippedSource(name, _SAMPLE_REASON)
    return UnreadableSource(name, _TEMPLATE_ENDING_REASON)


def _is_helmfile(name: str) -> bool:
    folder, base = os.path.split(name)
    return base.startswith("helmfile.") or os.path.basename(folder) == "helmfile.d"


def _is_of_another_program(text: str) -> bool:
    """Return whether the outermost objects of a template are a kubeconfig, or none of Kubernetes.

    Talos and others have an apiVersion and a kind too. Of the core group there is v1 alone.
    """
    versions = set(re.findall(_OUTER_API_PATTERN, text))
    if versions == {"v1"}:
        return set(re.findall(_OUTER_KIND_PATTERN, text)) == {_KUBECONFIG_KIND}
    return bool(versions) and all(
        v != "v1" and re.fullmatch(_CORE_VERSION_PATTERN, v) for v in versions
    )


def _tells_of_gpus(text: str) -> bool:
    """Return whether a template sets what gives a container GPUs."""
    is_privileged = re.search(_PRIVILEGED_PATTERN, text) and "gpu" in text.lower()
    return bool(is_privileged or re.search(_GPU_SETTING_PATTERN, text))


def _decode(name: str, content: bytes) -> Source | UnreadableSource:
    if len(content) > MAX_BYTES:
        advice = "split it into several files"
        if name == STANDARD_INPUT:
            advice = "give it in parts, such as one namespace after the other"
        return UnreadableSource(name, f"larger than {MAX_BYTES // 1024 // 1024} MiB: {advice}")
    try:
        text = decode(content)
    except EncodingError as error:
        return UnreadableSource(name, str(error))
    if len(text) <= _MAX_LFS_POINTER_BYTES and text.lstrip().startswith(_LFS_POINTERS):
        why = "a Git LFS pointer: its content is not here; git lfs pull fetches it"
        return UnreadableSource(name, why)
    return Source(name, text)


def _leads_outside(name: str, root: str) -> bool:
    if not os.path.islink(name):
        return False
    return not is_inside(os.path.realpath(name), os.path.realpath(root))


def _is_chart_template(name: str, tree: FileTree) -> bool:
    """Return whether the file is in a chart: in `templates`, or what a template may include.

    Templates often include files of a folder `files`, or of one with another name.
    """
    folder = os.path.dirname(os.path.abspath(name))
    if tree.is_file(os.path.join(folder, "Chart.yaml")):
        return False  # values, and the chart itself
    while folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
        if tree.is_file(os.path.join(folder, "Chart.yaml")):
            return True
    return False
