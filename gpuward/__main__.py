"""The command `gpuward`: run the module of a subcommand.

gpuward's packages have plain names such as `rules`, and the linter runs inside other people's
repositories, which may have folders of the same names. Before it imports anything, this module
therefore puts the folder of gpuward's packages first on the import path and removes the current
folder from it. Until then it uses only modules that the interpreter has loaded already.
"""

from __future__ import annotations

import gc
import os
import sys
from io import TextIOWrapper

from gpuward import __version__
from gpuward.commands import COMMANDS


def main(arguments: list[str] | None = None) -> int:
    """Run `gpuward ARGUMENTS` (those of the process by default); the exit status."""
    home = _set_import_path()
    is_input_closed = sys.stdin is None
    _replace_closed_streams()
    _set_output_encoding()
    verb, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        try:
            return _run_command(verb, rest)
        finally:
            if sys.stdout is not None:  # as where it was closed before we began
                sys.stdout.flush()
    except KeyboardInterrupt:
        return 130  # as shells say that Ctrl-C has ended a program
    except BrokenPipeError:
        # The reader of the output has closed it, as `head` does: it is not known what was found.
        _discard_output()
        return 141  # as shells say that SIGPIPE has ended a program
    except OSError as error:
        if not (why := _broken_stream(error, is_input_closed=is_input_closed)):
            raise
        _discard_output()
        sys.stderr.write(f"gpuward: {why}\n")
        return 2
    except ModuleNotFoundError as error:
        if error.name == "yaml._yaml":
            sys.stderr.write(f"gpuward {verb} needs {_LIBYAML_ADVICE}\n")
            return 2
        package = (error.name or "").partition(".")[0]
        if not package or os.path.isdir(os.path.join(home, package)):
            raise  # a module of gpuward itself: a bug, not a missing extra
        extra = COMMANDS[verb][1]
        hint = f"`{_installer()} {_requirement(extra) if extra else 'gpuward'}`"
        sys.stderr.write(f"gpuward {verb} needs the package {package}: {hint}\n")
        return 2


def _installer() -> str:
    """The command that installs extras where gpuward is installed.

    Source: pipx and uv write files of these names into the environments of the programs that they
    install.
    """
    for name, command in (
        ("pipx_metadata.json", "pipx install --force"),
        ("uv-receipt.toml", "uv tool install"),
    ):
        if os.path.isfile(os.path.join(sys.prefix, name)):
            return command
    return "pip install"


def _requirement(extra: str) -> str:
    """The argument that installs gpuward with `extra` from where it was installed, for a shell.

    Sources: PEP 610, which says what installers write into `direct_url.json` about folders, such as
    a clone, repositories and archives, and PEP 508, which says how a requirement names a URL.
    """
    import json  # noqa: PLC0415  # after the import path
    from importlib import metadata  # noqa: PLC0415
    from shlex import quote  # noqa: PLC0415
    from urllib.parse import urlsplit  # noqa: PLC0415
    from urllib.request import url2pathname  # noqa: PLC0415

    try:
        text = metadata.distribution("gpuward").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        text = None
    origin = json.loads(text) if text else {}
    wanted, url = f"gpuward[{extra}]", origin.get("url", "")
    if "dir_info" in origin:
        return quote(f"{url2pathname(urlsplit(url).path)}[{extra}]")
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    if folder := origin.get("subdirectory"):
        url += f"#subdirectory={folder}"
    return quote(f"{wanted} @ {url}" if url else wanted)


def _broken_stream(error: OSError, *, is_input_closed: bool) -> str:
    """Say why a stream cannot be read or written; empty if `error` is about something else."""
    from errno import EBADF  # noqa: PLC0415  # after the import path

    from terminal import is_full_disk, printable, reason_of  # noqa: PLC0415  # after the import path

    if is_input_closed and error.errno == EBADF:
        return f"standard input is closed: open it, as by <{os.devnull}"
    if not is_full_disk(error):
        return ""
    name = f"{error.filename}: " if error.filename else ""
    return printable(f"{name}cannot write: {reason_of(error)}")


def _discard_output() -> None:
    """Write what is still to be written to standard output nowhere, as the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complete_for_kubectl() -> int:
    """Run the program `kubectl_complete-gpuward`; the exit status."""
    _set_import_path()
    from gpuward.completion import complete  # noqa: PLC0415  # only after the import path is set

    return complete(sys.argv[1:])


_LIBYAML_ADVICE = (
    "PyYAML's extension for libyaml, which this installation of PyYAML lacks: "
    "`python -m pip install --force-reinstall --only-binary :all: PyYAML` installs it, "
    "on systems for which PyYAML publishes a wheel"
)


def _replace_closed_streams() -> None:
    """Open standard input and standard error if they are closed, as after `<&-` and `2>&-`.

    Reading that input is an error, and never the end of a file: what is not there is not clean.
    Errors go nowhere, and the exit status still tells of them.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY))
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", errors="replace")


def _set_output_encoding() -> None:
    """Write UTF-8 and plain line feeds into pipes and files, as kubectl and helm do.

    On Windows, Python would write the code page of the system, which lacks characters of reports,
    and other line breaks than those that a diff has. A terminal shows what it cannot write as
    escapes.
    """
    out = sys.stdout
    if isinstance(out, TextIOWrapper):
        if out.isatty():
            out.reconfigure(errors="backslashreplace")
        else:
            out.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")


def _run_command(verb: str, rest: list[str]) -> int:
    if sys.stdout is None:
        sys.stderr.write(f"gpuward: standard output is closed: open it, as by >{os.devnull}\n")
        return 2
    if verb in {"-h", "--help", "help"}:
        print(_usage())  # noqa: T201  # this is what the user asked for
        return 0
    if verb in {"-V", "--version"}:
        print(f"gpuward {__version__}")  # noqa: T201
        return 0
    if verb not in COMMANDS:
        from policies.problems import did_you_mean  # noqa: PLC0415  # after the import path

        hint = did_you_mean(verb, COMMANDS, f"\n\n{_usage()}")
        sys.stderr.write(f"gpuward: there is no command {verb!r}; {hint}\n")
        return 2
    try:
        os.getcwd()  # to which relative paths refer
    except OSError:
        sys.stderr.write("gpuward: the working folder is gone: change to another folder\n")
        return 2
    from importlib import import_module  # noqa: PLC0415  # only after the import path is set

    # What modules create lives to the end: nothing of it is garbage, now or later.
    gc.disable()
    name, _, function = COMMANDS[verb][0].partition(":")
    module = import_module(name)
    gc.freeze()
    gc.enable()
    status: int = getattr(module, function or "main")(rest)
    return status


def _set_import_path() -> str:
    """Put the folder of gpuward's own packages first on the import path; returns that folder."""
    here = os.path.dirname(os.path.abspath(__file__))  # pathlib is not loaded
    packages = os.path.join(here, "packages")
    home = packages if os.path.isdir(packages) else os.path.dirname(here)
    try:
        current = os.getcwd()
    except OSError:  # the folder is gone
        current = ""
    removed = {"", ".", current}
    sys.path[:] = [home, *(p for p in sys.path if p not in removed and p != home)]
    return home


def _usage() -> str:
    width = max(map(len, COMMANDS)) + 2
    lines = [f"  {verb:<{width}}{what}" for verb, (_, _, what) in COMMANDS.items()]
    return "\n".join(
        (
            "usage: gpuward COMMAND …",
            "",
            "Finds pods on Kubernetes that take, request or place GPUs wrongly.",
            "",
            *lines,
            "",
            "Details: gpuward COMMAND --help",
        )
    )


if __name__ == "__main__":
    sys.exit(main())
