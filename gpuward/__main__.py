"""The front door: one table from verb to function.

The packages behind it have plain names such as `rules`, and the linter runs inside other
people's repositories, which may hold folders of the same names. So the folder of our own
packages goes first on the import path, and the current folder leaves it, before anything
of ours or of others is imported. Until then only what the interpreter has loaded is used.
"""

from __future__ import annotations

import os
import sys

from gpuward import __version__

VERBS = {
    "lint": ("lint.cli", "find what is wrong with GPU manifests"),
    "serve": ("webhook.cli", "run the admission webhook"),
    "certs": ("certs.cli", "make, renew and check the certificates of the webhook"),
    "explain": ("lint.explain", "say what a rule does and why"),
    "rules": ("lint.catalogue", "list the rules"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run `gpuward ARGUMENTS` (those of the process by default); the exit status."""
    _settle_import_path()
    verb, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if verb in {"-h", "--help", "help"}:
        print(_usage())  # noqa: T201  # this is what the user asked for
        return 0
    if verb in {"-V", "--version"}:
        print(f"gpuward {__version__}")  # noqa: T201
        return 0
    if verb not in VERBS:
        sys.stderr.write(f"gpuward: there is no command {verb!r}\n\n{_usage()}\n")
        return 2
    from importlib import import_module  # noqa: PLC0415  # not before the path is settled

    status: int = import_module(VERBS[verb][0]).main(rest)
    return status


def _settle_import_path() -> None:
    here = os.path.dirname(os.path.abspath(__file__))  # pathlib is not loaded
    packages = os.path.join(here, "packages")
    home = packages if os.path.isdir(packages) else os.path.dirname(here)
    try:
        current = os.getcwd()
    except OSError:  # the folder is gone
        current = ""
    away = {"", ".", current}
    sys.path[:] = [home, *(p for p in sys.path if p not in away and p != home)]


def _usage() -> str:
    lines = [f"  {verb:<10}{what}" for verb, (_, what) in VERBS.items()]
    return "\n".join(
        (
            "usage: gpuward COMMAND …",
            "",
            "Finds GPUs that are taken, asked for or placed wrongly on Kubernetes.",
            "",
            *lines,
            "",
            "gpuward COMMAND --help tells more.",
        )
    )


if __name__ == "__main__":
    sys.exit(main())
