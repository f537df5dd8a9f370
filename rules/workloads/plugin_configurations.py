"""Where configurations of NVIDIA's device plugin are: ConfigMaps, and values for its charts."""

from collections.abc import Iterator, Mapping
from typing import Any

from rules.base.json_values import Path, as_object, as_text
from rules.objects.object_ref import group_of

# What a configuration says, whatever the ConfigMap with it is called.
_WORDS = ("sharing:", "version: v1")
_SOURCE = ("helm", "valuesObject")
# Group and kind -> where the values are that helm gives to a chart.
_INLINE_VALUES: Mapping[tuple[str, str], tuple[Path, ...]] = {
    ("helm.toolkit.fluxcd.io", "HelmRelease"): (("spec", "values"),),
    ("argoproj.io", "Application"): (
        ("spec", "source", *_SOURCE),
        ("spec", "sources", "*", *_SOURCE),
    ),
}


def is_plugin_configuration(text: str) -> bool:
    """Whether `text` may be a configuration that says how cards are shared."""
    return all(word in text for word in _WORDS)


def configurations(raw: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Each text in the object `raw` that may be a configuration, with its path."""
    kind = as_text(raw.get("kind"))
    if kind == "ConfigMap":
        for name, text in as_object(raw.get("data")).items():
            yield ("data", name), as_text(text)
    for place in _INLINE_VALUES.get((group_of(raw), kind), ()):
        for path, values in _at(raw, place):
            yield from _texts(values, path)


def may_have_configurations(raw: Mapping[str, Any]) -> bool:
    """Whether the object has values for a chart with something that may be a configuration."""
    if (group_of(raw), as_text(raw.get("kind"))) not in _INLINE_VALUES:
        return False
    return any(is_plugin_configuration(text) for _, text in configurations(raw))


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
