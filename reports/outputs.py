"""Reports into files: `--report FORMAT=FILE`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from io import StringIO
from typing import NamedTuple

from reports import FORMATS
from reports.formats import ReportStyle, writer_of
from reports.results import Results
from sources.manifests import File
from sources.sources import MANIFEST_ENDINGS, InputFile, Source, UsageError
from terminal import reason_of, write_error

_STANDARD_OUTPUT = "-"
_OTHER_FILE_ADVICE = "name another file"


class Output(NamedTuple):
    """A report to write into a file."""

    format: str
    file: str


class Outputs(NamedTuple):
    """The reports that go to files, and the format of the report on standard output."""

    files: list[Output]
    standard_output_format: str

    @property
    def formats(self) -> set[str]:
        """The formats of all reports."""
        return {self.standard_output_format, *(output.format for output in self.files)}

    def write(self, results: Results, style: ReportStyle) -> bool:
        """Write each report into its file; whether all could be written.

        One that cannot be written is an error on standard error; the others are still written.
        """
        written = [_write(output, results, style) for output in self.files]
        return all(written)


def plan_outputs(
    reports: Iterable[str],
    paths: Iterable[str],
    output: str | None,
    *,
    shows_changes: bool = False,
) -> Outputs:
    """Return the reports that the values of `--report` and `--output` name, if `paths` are linted.

    With `shows_changes`, standard output has changes instead of a report. Raises UsageError for a
    value of `--report` that is no FORMAT=FILE, a file that is named twice, is linted or holds a
    manifest, and more than one report on standard output.
    """
    form = output or "text"
    files = []
    used = {os.path.realpath(path): "is a file to lint" for path in paths if os.path.isfile(path)}
    for value in reports:
        report = _parse_output(value)
        is_file = report.file != _STANDARD_OUTPUT
        target = os.path.realpath(report.file) if is_file else _STANDARD_OUTPUT
        if target in used:
            raise UsageError(
                f"--report {value}: {report.file} {used[target]}; {_OTHER_FILE_ADVICE}"
            )
        used[target] = "has another report"
        if is_file:
            if _may_hold_manifest(target):
                raise UsageError(
                    f"--report {value}: {report.file} holds a manifest; {_OTHER_FILE_ADVICE}"
                )
            files.append(report)
        elif output or shows_changes:
            raise UsageError(
                f"--report {value}: standard output is taken by --output, --diff or --patch"
            )
        else:
            form = report.format
    return Outputs(files, form)


def _may_hold_manifest(file: str) -> bool:
    """Return whether `file` exists, may be in a folder of manifests, and is no earlier report.

    What cannot be parsed may be a manifest that is being written.
    """
    if not file.lower().endswith(MANIFEST_ENDINGS) or not os.path.isfile(file):
        return False
    source = InputFile(file, file).read()
    if isinstance(source, Source):
        return next(File(source).manifests(), None) is not None
    return True


def _parse_output(value: str) -> Output:
    form, _, file = value.partition("=")
    if form not in FORMATS or not file:
        raise UsageError(
            f"--report {value}: write it as FORMAT=FILE, such as sarif=lint.sarif; "
            f"the formats are {', '.join(FORMATS)}"
        )
    return Output(form, file)


def _write(output: Output, results: Results, style: ReportStyle) -> bool:
    text = StringIO()
    writer_of(output.format)(text, results, style)
    try:
        with open(output.file, "wb") as file:
            file.write(text.getvalue().encode())
    except OSError as error:
        why = reason_of(error)
        write_error("gpuward", f"--report {output.format}={output.file}: not written: {why}")
        return False
    return True
