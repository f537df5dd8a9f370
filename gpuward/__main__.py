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

# For each verb its module, the extra that brings what it needs, and what it does.
VERBS = {
    "lint": ("lint.cli", "", "find what is wrong with GPU manifests"),
    "serve": ("webhook.run", "webhook", "run the admission webhook"),
    "certs": ("certs.cli", "certs", "make, renew and check the certificates of the webhook"),
    "webhooks": ("certs.webhooks.command", "certs", "see whether a webhook works, or take it out"),
    "explain": ("lint.explain", "", "say what a rule does and why"),
    "rules": ("lint.rules_command", "", "list the rules"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run `gpuward ARGUMENTS` (those of the process by default); the exit status."""
    home = _settle_import_path()
    verb, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        try:
            return _perform(verb, rest)
        finally:
            if sys.stdout is not None:  # as where it was closed before we began
                sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read what we print has had enough; nothing is left to write to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or os.path.isdir(os.path.join(home, package)):
            raise  # one of ours: a fault, and not an extra that was left out
        wanted = f"gpuward[{VERBS[verb][1]}]" if VERBS[verb][1] else "gpuward"
        told = f"gpuward {verb} needs the package {package}: pip install '{wanted}'"
        sys.stderr.write(f"{told}\n")
        return 2


def _perform(verb: str, rest: list[str]) -> int:
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


def _settle_import_path() -> str:
    """Put the folder of our own packages first; where that is."""
    here = os.path.dirname(os.path.abspath(__file__))  # pathlib is not loaded
    packages = os.path.join(here, "packages")
    home = packages if os.path.isdir(packages) else os.path.dirname(here)
    try:
        current = os.getcwd()
    except OSError:  # the folder is gone
        current = ""
    away = {"", ".", current}
    sys.path[:] = [home, *(p for p in sys.path if p not in away and p != home)]
    return home


def _usage() -> str:
    lines = [f"  {verb:<10}{what}" for verb, (_, _, what) in VERBS.items()]
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
