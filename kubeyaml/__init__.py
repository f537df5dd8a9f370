"""Read YAML as kubectl does, with the position of every key and value in the text.

This package knows nothing of Kubernetes objects.
"""

from kubeyaml.model import (
    Chunk,
    Document,
    Duplicate,
    Json,
    LimitError,
    Limits,
    Lines,
    Place,
    YamlError,
    line_and_column,
)
from kubeyaml.reader import (
    CachedReader,
    EncodingError,
    ReaderOfKnown,
    decode,
    read,
    split,
)

__all__ = [
    "CachedReader",
    "Chunk",
    "Document",
    "Duplicate",
    "EncodingError",
    "Json",
    "LimitError",
    "Limits",
    "Lines",
    "Place",
    "ReaderOfKnown",
    "YamlError",
    "decode",
    "line_and_column",
    "read",
    "split",
]
