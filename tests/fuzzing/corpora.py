"""The targets of fuzzing and their corpora: files whose bytes are inputs."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "corpus"
DICTIONARY = Path(__file__).parent / "words.dict"
"""Words that libFuzzer puts into inputs."""


def targets() -> list[str]:
    """The names of the targets."""
    return sorted(folder.name for folder in _FOLDER.iterdir())


def corpus_folder(target: str) -> Path:
    """The folder with the inputs for `target`."""
    return _FOLDER / target
