"""Run one command in this process, and answer on standard output: the program of a worker.

The request is a JSON object on standard input, the answer one on standard output.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
import time
from contextlib import suppress
from typing import Any, NamedTuple

from gpuward.commands import COMMANDS
from gpuward.mcp_server.confinement import Allowed, LimitError, confine
from lint.fix.fixer import FixedText, Fixer
from lint.fix.output import FixOutput, unified_diff
from lint.options import parse_lint_settings
from lint.run import find_policies, run_linter
from policies.loading import PolicyError
from reports.formats import ReportStyle, writer_of
from rules.finding import Action
from sources.git.command import BOUNDS
from sources.sources import UsageError
from terminal import printable, write_error

MAX_MEMORY_BYTES = 4 << 30
MAX_SECONDS = 60
GIT_SECONDS = 5  # then git waits for something, such as a pipe, and the call goes on
_WRONG_USAGE = 2


class Request(NamedTuple):
    """A command to run; `arguments` are those of its command line, and `text` its standard input.

    It is confined to `folder` and `files`, unless it asks the cluster. Git may take `git_seconds`.
    """

    command: str
    arguments: list[str]
    text: str
    folder: str
    temporary: str
    files: list[str]
    is_confined: bool = True
    git_seconds: float = GIT_SECONDS


class Answer(NamedTuple):
    """The exit status of a command, what it wrote, and the texts that it has fixed."""

    status: int
    output: str
    errors: str
    fixed: list[FixedFile]


class FixedFile(NamedTuple):
    """A file whose faults are fixed in its new text."""

    name: str
    old: str
    new: str


def main() -> None:
    """Answer the request on standard input."""
    request = Request(**json.load(sys.stdin.buffer))
    answers = sys.stdout
    output, errors = io.StringIO(), io.StringIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(request.text.encode(errors="surrogatepass")))
    sys.stdout, sys.stderr = output, errors
    _limit_resources()
    if request.is_confined:
        # Other lists of what is ignored may be any file: by what is left out they would be told.
        BOUNDS.reads_only_gitignore = True
        BOUNDS.seconds = request.git_seconds
        confine(Allowed(request.folder, request.temporary, tuple(request.files)))
    fixed: list[FixedFile] = []
    try:
        status = _run(request, fixed)
    except LimitError as error:
        write_error("gpuward", error)
        status = _WRONG_USAGE
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else _WRONG_USAGE
    answer = Answer(status, output.getvalue(), errors.getvalue(), fixed)
    json.dump(answer._asdict(), answers)
    answers.flush()


def _run(request: Request, fixed: list[FixedFile]) -> int:
    if request.command == "fix":
        try:
            return _fix(request.arguments, fixed)
        except (UsageError, PolicyError) as error:
            write_error("gpuward", *str(error).split("\n"))
            return _WRONG_USAGE
    module = importlib.import_module(COMMANDS[request.command][0])
    status: int = module.main(request.arguments)
    return status


def _fix(arguments: list[str], fixed: list[FixedFile]) -> int:
    """Fix as `gpuward fix` does, but write no file: the report is about the fixed texts.

    Raises UsageError and PolicyError.
    """

    def deliver(text: FixedText) -> bool:
        if text.is_changed:
            fixed.append(FixedFile(text.source.name, text.source.text, text.new))
            name = printable(text.source.name)  # a line break in it would be a line of the diff
            shown = text._replace(source=text.source._replace(name=name))
            diff.extend(f"{line}\n" for line in unified_diff(shown))
        return True

    started = time.perf_counter()
    diff: list[str] = []
    report = io.StringIO()
    settings = parse_lint_settings(arguments, "gpuward fix")
    policies, settings = find_policies(settings)
    reports = settings.reports
    least = Action.AUDIT if reports.shows_notes or settings.fixes.rules else Action.WARN
    done = run_linter(settings, policies, FixOutput(Fixer(deliver, least), report))
    if reports.baseline:
        from lint.baseline.matching import load_baseline  # noqa: PLC0415  # not every project has one

        load_baseline(reports.baseline).drop_accepted(
            done.results, done.policy_of, done.today, settings.wanted_rules
        )
    done.results.seconds = time.perf_counter() - started
    writer_of("json")(report, done.results, ReportStyle(notes=reports.shows_notes))
    answer: dict[str, Any] = {"diff": "".join(diff), "report": json.loads(report.getvalue())}
    sys.stdout.write(json.dumps(answer, indent=2) + "\n")
    return done.results.exit_status(reports.fail_on or "error")


def _limit_resources() -> None:
    """Bound memory and time of this process, where the system can."""
    with suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415  # not on Windows

        for kind, most in (
            (resource.RLIMIT_AS, MAX_MEMORY_BYTES),
            (resource.RLIMIT_CPU, MAX_SECONDS),
            (resource.RLIMIT_CORE, 0),
        ):
            _, hard = resource.getrlimit(kind)
            bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (bound, hard))


if __name__ == "__main__":
    os.umask(0o077)
    main()
