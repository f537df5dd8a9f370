"""Files that objects have as texts: in ConfigMaps, and in the values that helm gives to charts."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rules.base.json_values import Path, as_text
from rules.objects.object_ref import group_of

# Group and kind -> where the values for a chart are; some are a text.
_VALUES: Mapping[tuple[str, str], tuple[Path, ...]] = {
    ("", "ConfigMap"): (("data",),),
    ("helm.toolkit.fluxcd.io", "HelmRelease"): (("spec", "values"),),
    ("argoproj.io", "Application"): tuple(
        (*source, "helm", key)
        for source in (("spec", "source"), ("spec", "sources", "*"))
        for key in ("valuesObject", "values")
    ),
}
# What a configuration of NVIDIA's device plugin says, whatever the ConfigMap with it is called: its
# version, and how cards are shared.
_PLUGIN_VERSION = "version: v1"
_SHARING_WORDS = ("sharing:", "mps:", "timeSlicing:")


class FileInObject(NamedTuple):
    """A file: its text, the `path` of the text in the object, and the keys that lead to the file.

    Of a file in a file, such as one in values that are a text, `path` is that of the outer one.
    """

    path: Path
    keys: Path
    text: str


def is_values(raw: Mapping[str, Any]) -> bool:
    """Return whether `raw` is no object of Kubernetes, and so, if it is read, a chart's values."""
    return "kind" not in raw and "apiVersion" not in raw


def files_with(raw: Mapping[str, Any], *words: str) -> Iterator[FileInObject]:
    """Each file in the object, or in the values, `raw` whose text has all `words`."""
    places = ((),) if is_values(raw) else _VALUES.get((group_of(raw), as_text(raw.get("kind"))), ())
    for place in places:
        for path, values in _at(raw, place):
            for inner, text in _texts(values, path):
                if all(word in text for word in words):
                    yield FileInObject(inner, inner, text)
                    yield from _files_in_file(inner, text, words)


def has_plugin_words(text: str) -> bool:
    """Return whether `text` may be, or have, a configuration that says how cards are shared."""
    return _PLUGIN_VERSION in text and any(word in text for word in _SHARING_WORDS)


def plugin_configurations(raw: Mapping[str, Any]) -> Iterator[FileInObject]:
    """Each file in `raw` that may be a configuration of NVIDIA's device plugin."""
    return (file for file in files_with(raw, _PLUGIN_VERSION) if has_plugin_words(file.text))


def _files_in_file(path: Path, text: str, words: tuple[str, ...]) -> Iterator[FileInObject]:
    """Texts of several lines in `text`, if that is simple YAML."""
    from rules.base.block_yaml import read_block_yaml  # noqa: PLC0415  # few objects have files

    for value in read_block_yaml(text) or ():
        if "\n" in value.text and all(word in value.text for word in words):
            yield FileInObject(path, (*path, *value.path), value.text)


def _at(raw: Mapping[str, Any], place: Path) -> Iterator[tuple[Path, Any]]:
    found: list[tuple[Path, Any]] = [((), raw)]
    for step in place:
        inner: list[tuple[Path, Any]] = []
        for path, value in found:
            if step == "*" and isinstance(value, list):
                inner += [((*path, index), each) for index, each in enumerate(value)]
            elif isinstance(value, dict) and step in value:
                inner.append(((*path, step), value[step]))
        found = inner
    yield from found


def _texts(values: Any, path: Path) -> Iterator[tuple[Path, str]]:
    waiting = [(path, values)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, str):
            yield place, value
        elif isinstance(value, dict):
            waiting += [((*place, key), each) for key, each in value.items()][::-1]
        elif isinstance(value, list):
            waiting += [((*place, index), each) for index, each in enumerate(value)][::-1]
