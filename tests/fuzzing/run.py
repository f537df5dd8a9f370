"""Fuzzes a target with atheris: `python -m tests.fuzzing.run TARGET [OPTION OF LIBFUZZER…]`.

A target is a module of this folder with a function `check`, which raises an error if a property
does not hold for some bytes. It may have a function `mutate`, which changes bytes in its own way.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from tests.fuzzing.corpora import DICTIONARY, corpus_folder

# What is to be covered. Libraries are not.
PACKAGES = ["kubeyaml", "policies", "reports", "rules", "sources", "lint", "webhook"]
SECONDS_FOR_ONE_INPUT = 10


def load_instrumented(target: str) -> ModuleType:
    """The module of `target`, whose packages tell atheris which of their lines run."""
    atheris: Any = import_module("atheris")  # which only those who fuzz need

    with atheris.instrument_imports(include=PACKAGES):
        module = import_module(f"tests.fuzzing.{target}")
        for sample in sorted(corpus_folder(target).iterdir()):
            module.check(sample.read_bytes())  # imports what is imported when it is needed
    return module


def main(target: str, options: list[str]) -> None:
    """Fuzz `target` with `options` of libFuzzer. This ends the process."""
    atheris: Any = import_module("atheris")

    module = load_instrumented(target)
    limits = [f"-timeout={SECONDS_FOR_ONE_INPUT}", f"-dict={DICTIONARY}"]
    arguments = [target, *limits, *options]
    atheris.Setup(arguments, module.check, custom_mutator=getattr(module, "mutate", None))
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
