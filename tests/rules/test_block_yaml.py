"""The reader of simple YAML: what it reads is what PyYAML reads."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rules.base.block_yaml import MAX_LINES, read_block_yaml

READ = (
    """\
version: v1
sharing:
  timeSlicing:
    resources:
    - name: nvidia.com/gpu
      replicas: 4
    - name: 'nvidia.com/mig-1g.5gb'
      replicas: 2
    x: y
z: w
""",
    "# a comment\na: b # more\n\nc:\n  - d\n  - e: f\n    g:\n      h: i\n  - j\nk: l\n",
    "a:\n- b: c\n- d: e\nf:\n  g:\n    h: 'i: j'\n  k: l\n",
    "---\nversion: v1\nflags:\n  migStrategy: none\n  plugin:\n    deviceListStrategy: envvar\n",
    "a:\n  b: |\n    c: d\n      # no comment\n\n    e: {f}\n  # a comment\n  g: h\n",
    "a:\n- b: |\n    c\n  d: e\n- b: |\n   f\n",
    "",
)
UNREAD = (
    "a: [b]\n",
    "a: {b: c}\n",
    "a: &x b\n",
    "a: >\n  text\n",
    "a: |2\n   text\n",
    "a: |\n    text\n  less\n",
    "a: b\n---\nc: d\n",
    "- a\n",
    "a: b\n  c: d\n",
    "a\n",
    "\ta: b\n",
    "a:\n    b: c\n  d: e\n",
    "a: b\n" * (MAX_LINES + 1),
)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], str]:
    if isinstance(value, dict):
        items: Any = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        return {path: "" if value is None else str(value)}
    return {k: v for key, each in items for k, v in leaves(each, (*path, key)).items()}


@pytest.mark.parametrize("text", READ)
def test_what_is_read_is_what_yaml_says(text: str) -> None:
    values = read_block_yaml(text)
    assert values is not None
    loaded = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506  # texts only
    assert {v.path: v.text for v in values if v.text} == (leaves(loaded) if loaded else {})


@pytest.mark.parametrize("text", UNREAD)
def test_of_other_yaml_nothing_is_known(text: str) -> None:
    assert read_block_yaml(text) is None
