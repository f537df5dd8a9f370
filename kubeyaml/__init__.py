"""YAML as kubectl reads it, with the place of every key and value. Knows no Kubernetes objects."""

from kubeyaml.model import (
    Chunk,
    Document,
    Duplicate,
    Json,
    Limits,
    Lines,
    Place,
    YamlError,
    line_and_column,
)
from kubeyaml.reader import read, split

__all__ = [
    "Chunk",
    "Document",
    "Duplicate",
    "Json",
    "Limits",
    "Lines",
    "Place",
    "YamlError",
    "line_and_column",
    "read",
    "split",
]
