"""Tests of `--render` with charts: the real helm renders, findings are at their templates."""

from __future__ import annotations

import json
import math
import os
import re
import textwrap
from pathlib import Path

import pytest

from lint.rendering.chart_origins import Outline
from lint.rendering.origins import WorkBudget
from sources.rendering.charts import ChartOptions, RenderedChart, helm_ignore_test, render_chart
from sources.sources import UnreadableSource
from tests.testkit.chart.rendering import HELMS, program
from tests.testkit.lint_command import LintCommand, Outcome

CHART = "apiVersion: v2\nname: serving\nversion: 0.1.0\n"
TEMPLATE = """\
{{- if .Values.enabled }}
# served by {{ .Release.Name }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}-model
spec:
  selector: {matchLabels: {app: model}}
  template:
    metadata:
      labels: {app: model}
    spec:
      containers:
        - name: sidecar
          image: example.com/sidecar:1
          env:
            - name: NVIDIA_VISIBLE_DEVICES
              value: void
        - name: main
          image: {{ .Values.image | quote }}
          env:
            - name: LEVEL
              value: {{ .Values.level }}
            {{- with .Values.devices }}
            - name: NVIDIA_VISIBLE_DEVICES
              value: {{ . }}
            {{- end }}
            {{- with .Values.env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          resources:
            {{- toYaml .Values.resources | nindent 12 }}
{{- end }}
"""
VALUES = """\
enabled: true
image: example.com/model:1
level: info
devices: ""
env: []
resources: {}
"""
PODS = """\
{{- range .Values.names }}
---
apiVersion: v1
kind: Pod
metadata:
  name: {{ . }}
spec:
  containers:
    - name: c
      image: example.com/model:1
      env:
        - name: NVIDIA_VISIBLE_DEVICES
          value: all
{{- end }}
"""
BYPASS = """\
env:
  - name: NVIDIA_VISIBLE_DEVICES
    value: "all"
"""


# Helm leaves it as it is.
JINJA = """\
apiVersion: v1
kind: Pod
{% if gpu %}
metadata: {name: a}
{% endif %}
"""


BOTH_HELMS = pytest.mark.parametrize("helm", HELMS, indirect=True)


@pytest.fixture
def helm(request: pytest.FixtureRequest, command: LintCommand, tmp_path: Path) -> LintCommand:
    """The command with a chart, and with helm in its PATH."""
    tools = tmp_path / ".tools"
    tools.mkdir()
    (tools / "helm").symlink_to(program(getattr(request, "param", "helm4")))
    command.path = f"{tools}:/usr/bin"
    command.write("chart/Chart.yaml", CHART)
    command.write("chart/values.yaml", VALUES)
    command.write("chart/templates/model.yaml", TEMPLATE)
    return command


def places(done: Outcome) -> dict[str, tuple[str, int, int]]:
    """Return where each rule found something."""
    return {f["rule"]: (f["file"], f["line"], f["column"]) for f in done.report["findings"]}


def not_evaluated(done: Outcome) -> str:
    assert done.status == 3
    entry = done.report["not_evaluated"][0]
    return f"{entry['file']}:{entry['line']}: {entry['message']}"


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


@BOTH_HELMS
def test_a_clean_chart_is_clean(helm: LintCommand) -> None:
    done = helm("--render", "chart")
    assert (done.status, done.errors) == (0, "")
    assert done.out.startswith("2 files, 1 rendering, 1 object, 1 pod, 0 errors")


@BOTH_HELMS
def test_a_finding_is_at_its_template(helm: LintCommand) -> None:
    done = helm.json("--render", "--set", "devices=all", "chart")
    line = line_of(TEMPLATE, "value: {{ . }}")
    place = ("chart/templates/model.yaml", line, 15)
    assert places(done)["visible-devices-env"] == place
    text = helm("--render", "--set", "devices=all", "chart").out
    assert f"--> chart/templates/model.yaml:{line}:15   Deployment release-name-model" in text
    assert f"{line} |               value: {{{{ . }}}}" in text
    assert " of `helm template chart --set=devices=all`" in text


@pytest.mark.parametrize("given", ["values.yaml", "ci/all-values.yaml", "../production.yaml"])
def test_a_values_file_is_judged_through_the_chart(helm: LintCommand, given: str) -> None:
    text = BYPASS if given != "values.yaml" else VALUES.replace("env: []\n", BYPASS)
    helm.write(f"chart/{given}", text)
    options = ["--values", "production.yaml"] if given.startswith("..") else []
    done = helm.json("--render", *options, "chart")
    file = os.path.normpath(f"chart/{given}")
    assert places(done)["visible-devices-env"] == (file, line_of(text, 'value: "all"'), 5)
    assert done.report["summary"]["renderings"] == (2 if given.startswith("ci") else 1)


def test_a_configuration_in_values_is_reported_once_if_they_are_rendered(
    helm: LintCommand,
) -> None:
    configuration = "version: v1\nflags: {}\nsharing:\n  timeSlicing:\n    resources:\n"
    configuration = configuration.replace("{}", "\n  renameByDefault: true")
    configuration += "    - name: nvidia.com/gpu\n      replicas: 4\n"
    values = f"plugin: |\n{textwrap.indent(configuration, '  ')}"
    template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plugin}\ndata:\n"
    template += "  any: {{ .Values.plugin | quote }}\n"
    helm.write("chart/values.yaml", VALUES + values)
    helm.write("chart/templates/plugin.yaml", template)
    assert [f["rule"] for f in helm.json("chart").report["findings"]] == ["sharing-config"]
    rendered = helm.json("--render", "chart").report["findings"]
    assert [f["rule"] for f in rendered] == ["sharing-config"]


def test_a_template_in_a_text_of_a_rendering_is_called_so(helm: LintCommand) -> None:
    template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: jobs}\ndata:\n  pod.yaml: |\n"
    helm.write("chart/templates/jobs.yaml", template + textwrap.indent(JINJA, "    "))
    done = helm("--render", "chart")
    assert "not evaluated: a template outside a chart's templates: lint what it" in done.out
    assert "cannot start any token" not in done.out


def test_what_several_renderings_have_is_reported_once(helm: LintCommand) -> None:
    helm.write("chart/values.yaml", VALUES.replace("env: []\n", BYPASS))
    helm.write("chart/ci/debug-values.yaml", "level: debug\n")
    done = helm.json("--render", ".")
    assert done.report["summary"]["renderings"] == 2
    assert done.report["summary"]["errors"] == 1


def test_what_no_file_has_is_near_its_template(helm: LintCommand) -> None:
    option = r"resources.limits.nvidia\.com/gpu=0.5"
    done = helm.json("--render", "--set", option, "chart")
    place = ("chart/templates/model.yaml", line_of(TEMPLATE, "resources:"), 11)
    assert places(done)["fractional-gpu"] == place
    assert done.report["findings"][0]["rendered_by"] == f"helm template chart '--set={option}'"


def test_comments_in_templates_suppress(helm: LintCommand) -> None:
    comment = " # gpuward: ignore[visible-devices-env] the monitoring agent"
    helm.write("chart/templates/model.yaml", TEMPLATE.replace("{{ . }}", "{{ . }}" + comment))
    done = helm.json("--render", "--set", "devices=all", "chart")
    assert "visible-devices-env" not in done.found
    assert done.report["summary"]["suppressed"] == 1


def test_other_files_are_linted_as_they_are(helm: LintCommand) -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {hostPID: true, containers: []}\n"
    helm.write("pod.yaml", pod)
    helm.write("chart/templates/pod.yaml", pod)
    report = helm.json("--render", ".").report
    assert report["skipped"] == []
    assert report["summary"]["pods"] == 3


def test_a_subchart_is_rendered_with_its_chart(helm: LintCommand) -> None:
    helm.write("chart/charts/part/Chart.yaml", CHART.replace("serving", "part"))
    helm.write("chart/charts/part/values.yaml", VALUES.replace("env: []\n", BYPASS))
    helm.write("chart/charts/part/templates/model.yaml", TEMPLATE)
    done = helm.json("--render", ".")
    assert done.report["summary"]["renderings"] == 1
    file, line, _ = places(done)["visible-devices-env"]
    assert (file, line) == ("chart/charts/part/values.yaml", 7)


def test_a_library_chart_is_named(helm: LintCommand) -> None:
    helm.write("chart/Chart.yaml", CHART + "type: library\n")
    done = helm("--render", "chart")
    assert done.status == 0
    assert "skipped: chart/Chart.yaml: a library chart: it is evaluated in the charts" in done.out


@BOTH_HELMS
@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "Chart.yaml",
            CHART + "dependencies: [{name: base, version: 1.0.0, repository: 'https://a.example'}]",
            "chart/Chart.yaml:0: the chart cannot be rendered: these dependencies are missing in",
        ),
        (
            "Chart.yaml",
            CHART + "kubeVersion: '>=99.0.0'\n",
            "choose another version of Kubernetes with --kube-version",
        ),
        (
            "templates/model.yaml",
            "a: 1\nb: {{ required `say which image` .Values.nothing }}\n",
            "chart/templates/model.yaml:2: the chart cannot be rendered: execution error at",
        ),
        (
            "templates/model.yaml",
            "a: {{ .Values.image.name.of }}\n",
            "chart/templates/model.yaml:1: the chart cannot be rendered: ",
        ),
        ("templates/model.yaml", "a: {{ if }}\n", "chart/templates/model.yaml:1: "),
        ("templates/model.yaml", "a: [\n", "chart/templates/model.yaml:1: "),
        ("Chart.yaml", "a: [", "chart/Chart.yaml:0: the chart cannot be rendered: "),
    ],
)
def test_a_chart_that_cannot_be_rendered(
    helm: LintCommand, file: str, text: str, message: str
) -> None:
    helm.write(f"chart/{file}", text)
    assert message.lower() in not_evaluated(helm.json("--render", "chart")).lower()


def test_a_chart_that_needs_values_is_judged_with_those_of_ci(helm: LintCommand) -> None:
    helm.write("chart/templates/needs.yaml", "{{ required `an image` .Values.picture }}\n")
    helm.write("chart/ci/a-values.yaml", "picture: '# none'\n" + BYPASS)
    done = helm.json("--render", "chart")
    assert done.status == 1
    assert places(done)["visible-devices-env"][0] == "chart/ci/a-values.yaml"


@pytest.mark.parametrize("forged", ["", "# Source: serving/templates/model.yaml\na: 1\n"])
def test_a_file_that_helm_ignores_is_evaluated(helm: LintCommand, forged: str) -> None:
    pod = PODS[PODS.index("apiVersion") : PODS.index("{{- end")].replace("{{ . }}", "x")
    helm.write("chart/templates/model.yaml", pod)
    helm.write("chart/.helmignore", "templates/model.yaml\n")
    helm.write("chart/templates/forged.yaml", forged)
    done = helm.json("--render", "chart")
    assert places(done)["visible-devices-env"] == ("chart/templates/model.yaml", 11, 18)
    (helm.folder / "chart/.helmignore").unlink()
    assert len(helm.json("--render", "chart").report["findings"]) == len(done.found)


def test_a_template_that_helm_ignores_is_named(helm: LintCommand) -> None:
    helm.write("chart/.helmignore", "templates/model.yaml\n")
    why = "a template in no rendering: helm leaves it out"
    assert f"skipped: chart/templates/model.yaml: {why}" in helm("--render", "chart").out


MANY_RULES = """\
# a.yaml
 a.yaml \n/templates/b.yaml\ntemplates/c?.yaml\nd/\ne.yaml/
templates/f/*.yaml\n[^a-z].yaml\n/g.yaml\nf/h.yaml\n!*
"""


@pytest.mark.parametrize("lines", [MANY_RULES, "!*.yaml\n"])
def test_what_is_said_to_be_ignored_helm_ignores(
    helm: LintCommand, monkeypatch: pytest.MonkeyPatch, lines: str
) -> None:
    monkeypatch.setenv("PATH", helm.path)
    names = [f"{name}.yaml" for name in ("a", "b", "c1", "c12", "e", "g", "h", "z", "1", ".x")]
    names += [f"{folder}/{name}" for folder in ("d", "f", "f/i") for name in ("b.yaml", "h.yaml")]
    chart = helm.folder / "ignoring"
    helm.write("ignoring/Chart.yaml", CHART)
    helm.write("ignoring/.helmignore", lines)
    for name in names:
        helm.write(f"ignoring/templates/{name}", "a: {{ 1 }}\n")
    (rendered,) = render_chart(str(chart), ChartOptions(), str(chart))
    assert isinstance(rendered, RenderedChart)
    known = set(re.findall("# Source: serving/(.*)", rendered.source.text))
    is_ignored = helm_ignore_test(str(chart))
    paths = {f"templates/{name}" for name in names}
    assert {path for path in paths if is_ignored(path)} == paths - known


def test_a_chart_in_the_working_folder(helm: LintCommand) -> None:
    inside = LintCommand(helm.folder / "chart")
    inside.path = helm.path
    report = inside.json("--render", ".").report
    assert (report["summary"]["renderings"], report["skipped"]) == (1, [])


def test_the_work_of_finding_lines_is_bounded() -> None:
    outline = Outline("{{ .a }}val{{ .b }}:{{ .c }}\n" * 1000)
    work = WorkBudget(steps=4000)
    assert outline.find(["value: all"], work, is_literal=False)[0] == 1
    assert outline.find(["value: none"], work, is_literal=False) == []
    # What has been found costs nothing.
    assert outline.find(["value: all"], work, is_literal=False)[0] == 1


@pytest.mark.parametrize(
    "asked",
    [
        '.Files.Get "../beside.txt"',
        '.Files.Get "PATH/beside.txt"',
        '(.Files.Glob "../*.txt").AsConfig | trim | trimAll "{}"',
        'lookup "v1" "Namespace" "" "default"',
        'getHostByName "localhost"',
    ],
)
def test_a_chart_reads_nothing_but_itself(helm: LintCommand, asked: str) -> None:
    """Neither a file beside it, nor a cluster, nor the network: what it asks for is empty."""
    helm.write("beside.txt", "void")
    value = asked.replace("PATH", str(helm.folder))
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n    - name: c\n"
    variable = f'{{name: NVIDIA_VISIBLE_DEVICES, value: {{{{ {value} | default "all" }}}}}}'
    helm.write("chart/templates/model.yaml", f"{pod}      image: x\n      env: [{variable}]\n")
    (found,) = helm.json("--render", "chart").report["findings"]
    assert 'NVIDIA_VISIBLE_DEVICES="all"' in found["message"]


def test_a_chart_that_renders_too_much(helm: LintCommand) -> None:
    helm.write("chart/templates/model.yaml", "a: {{ repeat 11000000 `x` }}\n")
    assert "helm was stopped: it writes more than 10 MiB" in not_evaluated(
        helm.json("--render", "chart")
    )


def test_a_chart_that_takes_too_much_memory(helm: LintCommand) -> None:
    helm.write("chart/templates/model.yaml", "a: {{ len (repeat 6000000000 `x`) }}\n")
    why = not_evaluated(helm.json("--render", "chart"))
    assert "the chart cannot be rendered: helm was stopped: it needs more than 4 GiB of" in why
    assert "goroutine" not in why


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("templates/passwords.txt", "/etc/passwd", "passwords.txt is a link that leads out of"),
        ("files", "../other", "chart/files is a link that leads out of chart"),
        ("files/up", "../..", "chart/files/up is a link that leads out of chart"),
        ("files/up", "..", "chart/files/up is a link to a folder that it is in"),
        ("values.schema.json", None, "chart/values.schema.json is not a regular file"),
    ],
)
def test_what_helm_may_not_read(
    helm: LintCommand, name: str, target: str | None, message: str
) -> None:
    file = helm.folder / "chart" / name
    if target is None:
        os.mkfifo(file)
    else:
        (helm.folder / "other").mkdir()
        file.parent.mkdir(exist_ok=True)
        file.symlink_to(target)
    assert message in not_evaluated(helm.json("--render", "chart"))


READS_GIT = """\
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
    - name: main
      image: example.com/model:1
      env:
        - {name: NVIDIA_VISIBLE_DEVICES, value: {{ .Files.Get ".git/config" | quote }}}
"""


@BOTH_HELMS
def test_a_template_cannot_show_credentials_of_git(helm: LintCommand) -> None:
    """CI writes them into `.git/config`, and a chart can be a whole repository."""
    helm.write("chart/.git/config", "secret")
    helm.write("chart/templates/model.yaml", READS_GIT)
    done = helm.json("--render", "chart")
    assert (done.report["summary"]["renderings"], done.report["summary"]["pods"]) == (1, 1)
    assert "secret" not in str(done.report)
    helm.write("chart/stolen", "")
    (helm.folder / "chart/stolen").unlink()
    (helm.folder / "chart/stolen").symlink_to(".git/config")
    assert "stolen is a link to what belongs to Git" in not_evaluated(
        helm.json("--render", "chart")
    )


@pytest.mark.parametrize("reference", ["file:///etc/hosts", "/etc/hosts", "../../other.json"])
def test_a_schema_of_values_cannot_name_other_files(helm: LintCommand, reference: str) -> None:
    schema = {"properties": {"image": {"$ref": reference}}}
    helm.write("chart/values.schema.json", json.dumps(schema))
    expected = f'values.schema.json refers to another file: "{reference}"'
    assert expected in not_evaluated(helm.json("--render", "chart"))


def test_a_schema_of_values_can_name_its_own_parts(helm: LintCommand) -> None:
    schema = {
        "properties": {"image": {"$ref": "#/$defs/text"}},
        "$defs": {"text": {"type": "null"}},
    }
    helm.write("chart/values.schema.json", json.dumps(schema))
    assert "/image" in not_evaluated(helm.json("--render", "chart"))


@pytest.mark.parametrize("name", ["Chart.yaml", "kustomization.yaml"])
def test_a_pipe_is_not_read(command: LintCommand, name: str) -> None:
    (command.folder / "some").mkdir()
    os.mkfifo(command.folder / "some" / name)
    assert not_evaluated(command.json("--render", "some")) == f"some/{name}:0: not a regular file"


@BOTH_HELMS
def test_the_path_of_a_values_file_is_one_path(helm: LintCommand) -> None:
    helm.write("other.yaml", BYPASS)
    name = 'a "b",other.yaml,c/d-values.yaml'
    helm.write(name, "level: debug\n")
    done = helm.json("--render", "--values", name, "chart")
    assert (done.status, done.found) == (0, {})
    assert done.report["summary"]["renderings"] == 1


def test_too_many_values_files(helm: LintCommand) -> None:
    for number in range(51):
        helm.write(f"chart/ci/{number}-values.yaml", BYPASS)
    done = helm.json("--render", "chart")
    assert "more than 50 files ci/*-values.yaml: give those" in not_evaluated(done)
    assert done.report["summary"]["renderings"] == 1


def test_the_bound_of_time_counts_each_values_file(
    helm: LintCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", helm.path)
    for name in ("a", "b"):
        helm.write(f"chart/ci/{name}-values.yaml", "level: debug\n")
    folder = str(helm.folder / "chart")
    is_late = iter([False, False, True])
    monkeypatch.setattr("sources.rendering.charts.is_late", lambda _: next(is_late))
    done = list(render_chart(folder, ChartOptions(), folder, deadline=math.inf))
    assert [type(each) for each in done] == [RenderedChart, RenderedChart, UnreadableSource]
    assert "all renderings may take 10 minutes" in str(done[-1])


def test_objects_of_one_template_are_reported_one_by_one(helm: LintCommand) -> None:
    helm.write("chart/values.yaml", "names: [one, two]\n")
    helm.write("chart/templates/model.yaml", PODS)
    found = helm.json("--render", "chart").report["findings"]
    assert [f["line"] for f in found if f["rule"] == "visible-devices-env"] == [13, 13]


def test_without_helm_nothing_passes(command: LintCommand) -> None:
    command.write("chart/Chart.yaml", CHART)
    command.write("chart/templates/model.yaml", TEMPLATE)
    done = command("--render", "chart")
    assert done.status == 3
    assert "not evaluated: chart/Chart.yaml: a chart: helm is not in PATH" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--values=none.yaml", "--render", "."], "--values none.yaml: there is no such file"),
        (["--set=a=b", "."], "--values, --set and --kube-version are for charts: add --render"),
        (["--set=a=b", "--render", "."], "--values and --set are for one chart; here are several"),
        (["--kube-version=1.34", "."], "are for charts: add --render"),
        (["--kube-version=newest", "."], "newest: expected a version such as 1.34 or v1.34.2"),
        (["--render", "--diff", "."], "what --render evaluates is in no file"),
    ],
)
def test_wrong_usage(command: LintCommand, arguments: list[str], message: str) -> None:
    command.write("one/Chart.yaml", CHART)
    command.write("two/Chart.yaml", CHART)
    done = command(*arguments)
    assert done.status == 2
    assert message in done.errors


def test_options_for_charts_without_a_chart_are_named(command: LintCommand) -> None:
    command.write("manifests/pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n")
    options = ["--render", "--set=a=b", "--kube-version=v1.34.2"]
    done = command(*options, "manifests")
    assert "warning: --set and --kube-version had no effect: no chart is here" in done.out
    assert "no effect" not in command("--render", "manifests").out


@BOTH_HELMS
@pytest.mark.parametrize("version", ["1.34", "v1.34.2", "1.34.2-eks-1a2b", "1.34.2+k3s1"])
def test_helm_reads_the_version_of_kubernetes(helm: LintCommand, version: str) -> None:
    assert helm("--render", f"--kube-version={version}", "chart").status == 0


@BOTH_HELMS
def test_a_folder_may_be_a_link_to_another_in_the_chart(helm: LintCommand) -> None:
    helm.write("chart/shared/pod.yaml", TEMPLATE)
    (helm.folder / "chart" / "templates" / "more").symlink_to("../shared")
    helm.write("chart/values.yaml", VALUES.replace("env: []\n", BYPASS))
    done = helm.json("--render", "chart")
    assert (done.status, done.report["summary"]["renderings"]) == (1, 1)


MISSING = """\
dependencies:
  - {name: metrics, version: ">=1", repository: "https://charts.example.com"%s}
"""
SWITCHED_OFF = {
    "condition": (", condition: metrics.enabled", "metrics: {enabled: false}\n"),
    "tags": (", tags: [monitoring]", "tags: {monitoring: false}\n"),
    "alias": (", alias: numbers, condition: numbers.enabled", "numbers: {enabled: false}\n"),
}


@BOTH_HELMS
@pytest.mark.parametrize("how", SWITCHED_OFF)
def test_dependencies_that_are_switched_off_need_not_be_there(helm: LintCommand, how: str) -> None:
    entry, values = SWITCHED_OFF[how]
    helm.write("chart/Chart.yaml", CHART + MISSING % entry)
    helm.write("chart/values.yaml", VALUES.replace("env: []\n", BYPASS) + values)
    done = helm.json("--render", "chart")
    assert done.report["not_evaluated"] == []
    assert places(done)["visible-devices-env"][0] == "chart/values.yaml"
    (skipped,) = done.report["skipped"]
    assert skipped["file"] == "chart/Chart.yaml"
    assert "rendered without dependencies that are switched off" in skipped["why"]
    assert skipped["why"].endswith(": metrics")


@BOTH_HELMS
def test_dependencies_that_are_switched_on_must_be_there(helm: LintCommand) -> None:
    entry, values = SWITCHED_OFF["condition"]
    helm.write("chart/Chart.yaml", CHART + MISSING % entry)
    helm.write("chart/values.yaml", VALUES + values)
    on = helm.json("--render", "--set", "metrics.enabled=true", "chart")
    assert "these dependencies are missing in charts/: metrics; `helm dependency" in not_evaluated(
        on
    )
    helm.write("chart/Chart.yaml", CHART + MISSING % "")
    assert "missing in charts/: metrics" in not_evaluated(helm.json("--render", "chart"))
    # A chart may be there under several aliases.
    entry = (MISSING % ", alias: other").splitlines()[1]
    helm.write("chart/Chart.yaml", CHART + MISSING % "" + entry + "\n")
    assert "missing in charts/: metrics; `helm" in not_evaluated(helm.json("--render", "chart"))


@BOTH_HELMS
@pytest.mark.parametrize(
    "use", ['{{ include "common.all" . }}', '{{ template "common.all" . }}', "{{ .Values.a.b }}"]
)
def test_a_chart_whose_library_is_missing_says_so_once(helm: LintCommand, use: str) -> None:
    helm.write("chart/Chart.yaml", CHART + (MISSING % "").replace("metrics", "common"))
    helm.write("chart/templates/all.yaml", use + "\n")
    helm.write("chart/ci/a-values.yaml", "x: 1\n")
    helm.write("chart/ci/b-values.yaml", "x: 2\n")
    (entry,) = helm.json("--render", "chart").report["not_evaluated"]
    assert entry["message"] == (
        "the chart cannot be rendered: these dependencies are missing in charts/: common; "
        "`helm dependency build chart` fetches them, which gpuward never does"
    )


@BOTH_HELMS
def test_a_chart_that_asks_for_a_value_says_so_without_its_dependencies(helm: LintCommand) -> None:
    entry, values = SWITCHED_OFF["condition"]
    helm.write("chart/Chart.yaml", CHART + MISSING % entry)
    helm.write("chart/values.yaml", VALUES + values)
    helm.write("chart/templates/a.yaml", '{{ required "a password is needed" .Values.password }}\n')
    assert "a password is needed" in not_evaluated(helm.json("--render", "chart"))


def test_no_line_says_to_render_what_is_rendered(helm: LintCommand) -> None:
    values = VALUES.replace("resources: {}", "runtimeClassName: nvidia\nresources: {}")
    helm.write("chart/values.yaml", values)
    helm.write("chart/ci/a-values.yaml", "runtimeClassName: nvidia\n")
    helm.write("chart/values-production.yaml", "runtimeClassName: nvidia\n")
    assert "--render" in helm("chart").out
    text = helm("--render", "chart").out
    assert "lint the chart with --render" not in text
    assert "chart/values.yaml" not in text
    assert "ci/a-values.yaml" not in text
    assert "chart/values-production.yaml:1:19: " in text
    assert "in values that no rendering here uses" in text


def test_a_chart_that_cannot_be_rendered_is_one_line(helm: LintCommand) -> None:
    helm.write("chart/templates/a.yaml", "{{ if .Values.level }}\na: {{ fail `no` }}\n{{ end }}\n")
    done = helm("--render", "chart")
    assert done.status == 3
    assert "skipped" not in done.out
    assert done.out.count("chart/templates/") == 1


FILE = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  {{- toYaml .Values.x | nindent 2 }}\n"


def test_files_that_a_template_may_include_are_no_manifests(helm: LintCommand) -> None:
    helm.write("chart/files/patches/pod.yaml", FILE)
    plain = helm.json("chart")
    assert plain.status == 0
    assert {s["file"] for s in plain.report["skipped"]} >= {"chart/files/patches/pod.yaml"}
    rendered = helm.json("--render", "chart")
    assert rendered.status == 0
    (skipped,) = rendered.report["skipped"]
    assert "a template may include it" in skipped["why"]
    assert helm.json("chart/files/patches/pod.yaml").status == 3
    helm.write("elsewhere/pod.yaml", FILE)
    assert helm.json("elsewhere").status == 3


ITEMS = """\
items:
  - name: first
    env:
      - name: NVIDIA_VISIBLE_DEVICES
        value: all
    image: example.com/a:1
  - name: second
    env:
      - name: NVIDIA_VISIBLE_DEVICES
        value: all
    image: example.com/a:1
"""
HEAD = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec:\n  containers:\n"
IN_ONE = HEAD + "    {{- toYaml .Values.items | nindent 4 }}\n"
IN_MANY = (
    "{{- range .Values.items }}\n---\n"
    + HEAD.replace("name: p", "name: {{ .name }}")
    + "    - {{- toYaml . | nindent 6 }}\n{{- end }}\n"
)


@pytest.mark.parametrize("template", [IN_ONE, IN_MANY])
def test_items_of_a_list_have_their_own_lines(helm: LintCommand, template: str) -> None:
    helm.write("chart/templates/model.yaml", template)
    helm.write("chart/values.yaml", ITEMS)
    found = [
        (f["file"], f["line"])
        for f in helm.json("--render", "chart").report["findings"]
        if f["rule"] == "visible-devices-env"
    ]
    assert found == [("chart/values.yaml", 5), ("chart/values.yaml", 10)]
    # If only the second item has the fault, there is nothing to count.
    helm.write("chart/values.yaml", ITEMS.replace("value: all", "value: void", 1))
    (place,) = [
        (f["file"], f["line"])
        for f in helm.json("--render", "chart").report["findings"]
        if f["rule"] == "visible-devices-env"
    ]
    assert place == ("chart/values.yaml", 10)


@BOTH_HELMS
def test_a_chart_that_refuses_the_default_namespace_gets_one(helm: LintCommand) -> None:
    refuse = '{{ if eq .Release.Namespace "default" }}{{ fail "not in the default namespace" }}'
    helm.write("chart/templates/check.yaml", refuse + "{{ end }}\n")
    helm.write("chart/values.yaml", VALUES.replace("env: []\n", BYPASS))
    (found, *_) = helm.json("--render", "chart").report["findings"]
    assert found["rendered_by"] == "helm template chart --namespace=serving"
    text = not_evaluated(helm.json("--render", "--namespace", "default", "chart"))
    assert "not in the default namespace" in text
