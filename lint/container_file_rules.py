"""Evaluate files that are no manifests: `--also`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lint.linter import RULE_NAMES, Linter
from lint.suppressions import Suppression, Suppressions, comments_in_text, find_suppressions
from reports.findings import LocatedFinding, ReportedFinding, SuppressedFinding, to_reported_finding
from reports.results import InputNotEvaluated, Remark
from rules.base.json_values import Path
from rules.container_files import compose_gpu, image_visible_devices, node_mode_by_kubectl, run_gpu
from rules.container_files.index import RULES
from rules.engine.rule_set import ActiveRule
from rules.finding import Action
from rules.objects.object_ref import ObjectRef
from sources.container_files.compose_files import compose_settings
from sources.container_files.dockerfiles import dockerfile_settings
from sources.container_files.kinds import (
    COMPOSE,
    DOCKERFILE,
    MARKDOWN,
    SHELL,
    container_file_kind,
    is_ci_file,
    is_quadlet,
)
from sources.container_files.quadlets import quadlet_settings
from sources.container_files.scripts import script_settings
from sources.container_files.settings import ContainerFileError, LocatedSetting
from sources.embedded_manifests import manifests_in_markdown, manifests_in_script
from sources.kubectl_commands import objects_of_commands
from sources.manifests import File, Span
from sources.policy_file import FilePolicy
from sources.sources import InputFile, Source

_RULES_BY_FILE_KIND = {
    DOCKERFILE: (image_visible_devices.RULE.name,),
    COMPOSE: (compose_gpu.RULE.name,),
    SHELL: (run_gpu.RULE.name, node_mode_by_kubectl.RULE.name),
}
_MANIFESTS_BY_FILE_KIND = {SHELL: manifests_in_script, MARKDOWN: manifests_in_markdown}
# What a command sets can be at fault by itself, whatever else the node has.
_RULES_ABOUT_CHANGES = ("unknown-node-mode", "unknown-node-taint")
_OBJECT_KIND_BY_FILE_KIND = {DOCKERFILE: "Dockerfile", COMPOSE: "Compose file", SHELL: "Script"}


def evaluate_container_files(linter: Linter, files: Iterable[InputFile]) -> None:
    """Add to the linter's results what is found in `files`."""
    known = set(linter.results.file_names)
    for file in files:
        policy = linter.use_policy_of(file.name)
        source = file.read_as_it_is()
        if isinstance(source, Source):
            if file.name not in known:
                linter.results.file_names.append(file.name)
            linter.results.container_files += 1
            _FileEvaluation(linter, policy, File(source)).run()
        else:
            linter.results.not_evaluated.append(InputNotEvaluated(file.name, 0, 0, source.why))


class _FileEvaluation:
    """One file, its policy, and the rules about files of its kind that the policy runs."""

    def __init__(self, linter: Linter, policy: FilePolicy, file: File) -> None:
        self._linter = linter
        self._policy = policy
        self._file = file
        # What has another name is here for its content.
        self._kind = container_file_kind(file.source.name) or COMPOSE
        active = {one.rule.name: one for one in map(policy.policy.activate, RULES)}
        wanted = linter.wanted_rules
        self._rules = [
            active[name]
            for name in _RULES_BY_FILE_KIND.get(self._kind, ())
            if active[name].action is not Action.OFF and (wanted is None or name in wanted)
        ]
        self._embedded: list[range] = []
        self._comments: dict[int, Suppressions] = {}

    def run(self) -> None:
        """Add what the rules say to the results."""
        results, name = self._linter.results, self._file.source.name
        if self._kind in _MANIFESTS_BY_FILE_KIND:
            manifests = list(_MANIFESTS_BY_FILE_KIND[self._kind](self._file.source))
            self._linter.evaluate_embedded(manifests)
            self._embedded = [manifest.lines for manifest in manifests]
        if self._kind == SHELL:
            self._evaluate_commands()
        try:
            for placed in self._settings():
                for active in self._rules:
                    if isinstance(placed.setting, active.rule.subject):
                        self._evaluate(placed, active)
        except ContainerFileError as error:
            line, column = self._file.position(error.offset)
            if container_file_kind(name):  # what has another name is reported as a file of YAML
                results.not_evaluated.append(InputNotEvaluated(name, line, column, str(error)))
        for comments in self._comments.values():
            for comment, message in comments.comment_faults(RULE_NAMES):
                line, column = self._file.position(comment.start)
                results.remarks.append(Remark("warning", name, line, column, message))

    def _evaluate_commands(self) -> None:
        """Add what is wrong with the objects that commands of kubectl make or change."""
        rules = self._policy.rules
        active_rules = {active.rule.name: active for active in rules.rules}
        for made in objects_of_commands(self._file.source.text):
            for finding in self._linter.check_object(made.manifest, rules).findings:
                if made.is_change and finding.rule not in _RULES_ABOUT_CHANGES:
                    continue
                shown = to_reported_finding(finding)._replace(fix="", fixable=False)
                span, comments, paths = self._place_in_text(
                    *made.span_of_path(finding.path), made.span[0]
                )
                self._add_finding(shown, span, comments, paths, active_rules[finding.rule])

    def _settings(self) -> Iterator[LocatedSetting]:
        text, name = self._file.source.text, self._file.source.name
        profile = self._policy.policy.profile
        if self._kind == MARKDOWN:
            return iter(())
        ref = ObjectRef(_OBJECT_KIND_BY_FILE_KIND[self._kind], "", "", name)
        if self._kind == DOCKERFILE:
            return dockerfile_settings(text, ref, profile)
        if self._kind == COMPOSE:
            return compose_settings(text, ref, profile)
        if is_quadlet(name):
            return quadlet_settings(text, ref, profile)
        return script_settings(text, ref, profile, is_ci=is_ci_file(name))

    def _evaluate(self, placed: LocatedSetting, active: ActiveRule) -> None:
        setting = placed.setting
        for found in active.rule.check(setting, self._linter.context):
            action = min(found.action, active.action)
            finding = found.with_rule(active.rule.name, setting, action, fixable=False)
            span, comments, paths = self._place(placed)
            self._add_finding(to_reported_finding(finding), span, comments, paths, active)

    def _add_finding(
        self,
        shown: ReportedFinding,
        span: Span,
        comments: Suppressions,
        paths: Iterable[Path],
        active: ActiveRule,
    ) -> None:
        """Add what `active` has found to the results, unless a comment covers one of `paths`."""
        located = LocatedFinding(
            finding=shown,
            file=self._file.source.name,
            span=span,
            excerpt=self._file.excerpt(span),
            owner=shown.object,
        )
        if comment := _covering_comment(comments, paths, active):
            self._linter.results.suppressed += 1
            entry = SuppressedFinding(located, comment.reason)
            self._linter.results.suppressed_findings.append(entry)
        else:
            self._linter.results.findings.append(located)

    def _place(self, placed: LocatedSetting) -> tuple[Span, Suppressions, list[Path]]:
        """Return the setting's place, the comments around it, and the paths that may be covered."""
        document = placed.document
        if document is None:
            return self._place_in_text(placed.start, placed.end, placed.statement_start)
        if document.start not in self._comments:
            found = find_suppressions(self._file, document, document.end)
            self._comments[document.start] = found
        span = self._file.span_of_path(document, placed.path)
        return span, self._comments[document.start], [placed.path]

    def _place_in_text(
        self, start: int, end: int, statement: int
    ) -> tuple[Span, Suppressions, list[Path]]:
        """Return what `_place` returns, of a text that is no YAML and between two offsets."""
        if 0 not in self._comments:
            self._comments[0] = comments_in_text(self._file, self._embedded)
        span = self._file.span(start, end)
        lines = {self._file.position(statement)[0], span.line}
        return span, self._comments[0], [(line,) for line in lines]


def _covering_comment(
    comments: Suppressions, paths: Iterable[Path], active: ActiveRule
) -> Suppression | None:
    """The comment that covers one of `paths`; None if none does."""
    for path in paths:
        if comment := comments.comment_covering(path, active):
            comment.used.add(active.rule.name)
            return comment
    return None
