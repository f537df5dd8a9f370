"""Records which fields of a manifest the rules read."""

from __future__ import annotations

from typing import Any


class RecordingObject(dict[str, Any]):
    """A JSON object that adds to `reads` its own place and each key by which it is asked."""

    def __init__(self, value: dict[str, Any], place: str, reads: set[tuple[str, str]]) -> None:
        super().__init__(
            {key: recording(item, f"{place}/{key}", reads) for key, item in value.items()}
        )
        self._place = place
        self._reads = reads

    def get(self, key: str, default: Any = None) -> Any:
        """As of a dict."""
        self._reads.add((self._place, key))
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        """As of a dict."""
        self._reads.add((self._place, key))
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        """As of a dict."""
        self._reads.add((self._place, str(key)))
        return super().__contains__(key)


def recording(value: Any, place: str, reads: set[tuple[str, str]]) -> Any:
    """`value`, itself at `place`, with objects that record how they are read."""
    if isinstance(value, dict):
        return RecordingObject(value, place, reads)
    if isinstance(value, list):
        return [recording(item, f"{place}[]", reads) for item in value]
    return value
