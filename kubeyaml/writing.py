"""Write YAML that kubectl reads as the value that it was written from.

PyYAML quotes what PyYAML would misread. kubectl reads more words as booleans, such as `N`.
"""

from __future__ import annotations

import yaml

from kubeyaml.model import Json
from kubeyaml.scalars import resolve


class _YamlDumper(yaml.CSafeDumper):
    """libyaml's, with more quotes, and without anchors for equal values."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  # as PyYAML calls it
        return True


def _represent_text(dumper: _YamlDumper, text: str) -> yaml.ScalarNode:
    try:
        is_text = isinstance(resolve(text), str)
    except ValueError:
        is_text = False
    style = None if is_text else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_YamlDumper.add_representer(str, _represent_text)


def write_yaml(value: Json, *, flow: bool = False, width: int = 100) -> str:
    """Return `value` as YAML, in flow style or in block style, with lines of about `width`."""
    text: str = yaml.dump(
        value,
        Dumper=_YamlDumper,
        default_flow_style=flow,
        sort_keys=False,
        allow_unicode=True,
        width=width,
    )
    return text
