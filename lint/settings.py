"""The settings of a run of the linter, without the command line that they come from."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from sources import STANDARD_INPUT
from sources.policy_file import PolicyChoice


class InputSettings(NamedTuple):
    """The files that are read, and what the run takes for granted about them.

    `policy_exclude` is a folder, and patterns for the files in it that the policy leaves out.
    `also` are kinds of files that are no manifests, with commas.
    """

    paths: tuple[str, ...] = ()
    namespace: str | None = None
    exclude: tuple[str, ...] = ()
    policy_exclude: tuple[str, tuple[str, ...]] = ("", ())
    includes_ignored: bool = False
    stdin_filename: str = STANDARD_INPUT
    staged: bool = False
    changed_since: str | None = None
    also: str = ""
    is_required: bool = False
    jobs: int | None = None


class RenderSettings(NamedTuple):
    """The settings of rendering charts and kustomizations.

    If `is_on` is None, the policy says whether to render.
    """

    is_on: bool | None = None
    values_files: tuple[str, ...] = ()
    set_values: tuple[str, ...] = ()
    kube_version: str = ""

    @property
    def is_given(self) -> bool:
        """Return whether something here says that charts are rendered."""
        return bool(self.is_on or self.chart_options)

    @property
    def chart_options(self) -> tuple[str, ...]:
        """The options that are given and that only a chart can use."""
        options = {
            "--values": self.values_files,
            "--set": self.set_values,
            "--kube-version": self.kube_version,
        }
        return tuple(option for option, value in options.items() if value)


class FixSettings(NamedTuple):
    """The fixes that are made, and how; `rules` are the only ones whose fixes count.

    `fix` writes them into the files, `diff` shows changed lines, and `patch` JSON Patches.
    """

    fix: bool = False
    diff: bool = False
    patch: bool = False
    unsafe: bool = False
    rules: tuple[str, ...] = ()

    @property
    def is_given(self) -> bool:
        """Return whether fixes are written or shown."""
        return self.fix or self.diff or self.patch


class ReportSettings(NamedTuple):
    """The reports that are written, their content, and the level of findings that is a failure.

    `output` is the format on standard output, None if the command line does not say it; `reports`
    are values of `--report`. `fail_on` and `baseline` are None where the policy decides; an empty
    `baseline` is none. `fix_arguments` are those with which `gpuward fix` fixes what is found, if
    any.
    """

    output: str | None = None
    reports: tuple[str, ...] = ()
    quiet: bool = False
    fail_on: str | None = None
    notes: bool = False
    color: str = "auto"
    baseline: str | None = None
    fix_arguments: tuple[str, ...] | None = None

    @property
    def shows_notes(self) -> bool:
        """Return whether reports have notes."""
        return self.notes or self.fail_on == "note"


class LintSettings(NamedTuple):
    """All settings of a run.

    `select` and `ignore` are what the command line says of rules. `wanted_rules` are the names of
    those that run, None for all; `lint.run.find_policies` finds them.
    """

    policy: PolicyChoice
    inputs: InputSettings = InputSettings()
    rendering: RenderSettings = RenderSettings()
    fixes: FixSettings = FixSettings()
    reports: ReportSettings = ReportSettings()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    wanted_rules: frozenset[str] | None = None

    def completed_by(self, lint: Mapping[str, Any], folder: str) -> "LintSettings":
        """Return the settings with what a policy says about the whole run: its key `lint`.

        What the command line says wins; files to leave out are added. Paths in `lint` begin at
        `folder`.
        """
        inputs, rendering, fixes, reports = self.inputs, self.rendering, self.fixes, self.reports
        inputs = inputs._replace(
            policy_exclude=(folder, tuple(lint.get("exclude", ()))),
            is_required=inputs.is_required or bool(lint.get("requireInput")),
        )
        if not inputs.also and not inputs.staged:
            inputs = inputs._replace(also=",".join(lint.get("also", ())))
        if rendering.is_on is None:
            # Rendered text is in no file that a fix could write.
            may_render = not (fixes.fix or fixes.diff) and os.name == "posix"
            rendering = rendering._replace(is_on=bool(lint.get("render")) and may_render)
        if reports.baseline is None and "baseline" in lint:
            reports = reports._replace(
                baseline=os.path.relpath(os.path.join(folder, lint["baseline"]))
            )
        if reports.fail_on is None:
            reports = reports._replace(fail_on=lint.get("failOn", "error"))
        return self._replace(inputs=inputs, rendering=rendering, reports=reports)
