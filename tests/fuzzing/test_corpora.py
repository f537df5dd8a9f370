"""Every input of a corpus, as `make fuzz` checks it. What was found once is among them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.fuzzing.corpora import corpus_folder, targets


@pytest.mark.parametrize(
    ("target", "sample"),
    [
        pytest.param(target, sample, id=f"{target}/{sample.name}")
        for target in targets()
        for sample in sorted(corpus_folder(target).iterdir())
    ],
)
def test_every_property_holds_for_the_corpus(target: str, sample: Path) -> None:
    import_module(f"tests.fuzzing.{target}").check(sample.read_bytes())
