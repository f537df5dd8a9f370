"""Tests of chart templates: what parses is evaluated, wherever it is."""

from __future__ import annotations

import pytest

from tests.testkit.lint_command import LintCommand

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: taker}
spec:
  containers:
    - name: main
      image: example.com/app:1
      env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]
"""
TEMPLATE = "{{ if .Values.gpu }}\n" + POD + "{{ end }}\n"
PLACE = "chart/templates/pod.yaml"


@pytest.fixture(autouse=True)
def chart(command: LintCommand) -> None:
    command.write("chart/Chart.yaml", "")


@pytest.mark.parametrize(
    "text",
    [
        POD,
        POD.replace("metadata:", "# {{ a comment }}\nmetadata:"),
        POD.replace("taker}", 'taker, annotations: {a: "{{ b }}"}}'),
        POD.replace("example.com/app:1", '"{{ .Values.image }}"'),
        POD + "---\n" + TEMPLATE,
        TEMPLATE + "---\n" + POD,
    ],
    ids=["plain", "comment", "annotation", "placeholder", "before a template", "after a template"],
)
@pytest.mark.parametrize("named", [".", "chart", PLACE])
def test_a_manifest_that_parses_is_evaluated(command: LintCommand, text: str, named: str) -> None:
    command.write(PLACE, text)
    done = command.json(named)
    assert "visible-devices-env" in done.found
    assert done.status == (3 if "if .Values" in text and named == PLACE else 1)


def test_what_does_not_parse_is_passed_over_and_named(command: LintCommand) -> None:
    command.write(PLACE, TEMPLATE + "---\n" + TEMPLATE)
    done = command("chart")
    assert done.status == 0
    assert done.out.count(f"skipped: {PLACE}: a chart's template: lint the chart") == 1


def test_a_named_template_that_does_not_parse_is_not_evaluated(command: LintCommand) -> None:
    command.write(PLACE, TEMPLATE)
    done = command(PLACE)
    assert done.status == 3
    assert f"not evaluated: {PLACE}:1:" in done.out
    assert "a chart's template: lint the chart with --render" in done.out


@pytest.mark.parametrize(
    "text",
    ["kind: [1,\n# {{ }}\n", 'a: "{{ b }}"\nb: ' + "[" * 200 + "]" * 200 + "\n"],
    ids=["only in a comment", "beyond a limit"],
)
def test_broken_yaml_is_not_taken_for_a_template(command: LintCommand, text: str) -> None:
    command.write(PLACE, text)
    assert command("chart").status == 3


ELSEWHERE = "a template outside a chart's templates: lint what it renders to"


@pytest.mark.parametrize(
    "text",
    [
        POD.replace("taker", "{{ name }}"),
        TEMPLATE,
        POD.replace("spec:", "{% if gpu %}\nspec:\n{% endif %}"),
    ],
    ids=["a placeholder", "a condition", "a condition of Jinja"],
)
def test_a_template_outside_a_chart_is_called_so(command: LintCommand, text: str) -> None:
    command.write("plain/templates/pod.yaml", text)
    done = command("plain")
    assert (done.status, done.out.count(ELSEWHERE)) == (3, 1)
    assert "cannot be a key" not in done.out


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (POD.replace("spec:", "{{- if gpu }}\nspec:\n{{- end }}"), "could not find expected ':'"),
        (POD.replace("taker", '"{{ name }}"') + "    - [\n", "while parsing"),
    ],
    ids=["a line further down", "a fault elsewhere"],
)
def test_what_yaml_says_of_a_line_without_a_placeholder_stays(
    command: LintCommand, text: str, detail: str
) -> None:
    command.write("plain/pod.yaml", text)
    done = command("plain")
    assert done.status == 3
    assert ELSEWHERE in done.out
    assert detail in done.out


def test_broken_yaml_without_a_placeholder_is_no_template(command: LintCommand) -> None:
    command.write("plain/pod.yaml", POD.replace("taker", "[a: b"))
    done = command("plain")
    assert (done.status, "template" in done.out) == (3, False)


JINJA_WITHOUT_OBJECT = "{% for port in ports %}\n- port: {{ port }}\n{% endfor %}\n"


def test_what_can_be_no_object_is_passed_over_and_named(command: LintCommand) -> None:
    command.write("roles/ports.yml", JINJA_WITHOUT_OBJECT)
    command.write("tests/broken.yaml", "a: [1,\n")
    done = command(".")
    assert (done.status, done.out.count("no YAML, and no object of Kubernetes")) == (0, 2)
    assert "2 skipped" in done.out.splitlines()[-1]


# As editors and compilers read it, with comments.
SETTINGS = """\
// README at: https://example.com/settings
{"name": "tool!", "onCreate": "echo \\"$(uname)\\" # C:\\\\tools"}
"""


def test_json_of_another_tool_with_comments_is_passed_over(command: LintCommand) -> None:
    command.write("devcontainer.json", SETTINGS)
    command.write("settings.yaml", SETTINGS)
    # YAML has no place for the character, and no object is a list.
    command.write("data.json", '[{"kind": "\\u0050rose {{x}} \x7f"}]')
    done = command.json(".")
    assert done.status == 0
    assert [skipped["file"] for skipped in done.report["skipped"]] == ["settings.yaml"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\x85", "\u2028", "\u2029"])
def test_a_word_on_two_lines_is_read_in_json(command: LintCommand, end: str) -> None:
    halves = f'? "api\\{end}Version"\n: v1\n? "ki\\{end}nd"\n: Pod\n'
    (command.folder / "pod.json").write_bytes(f"{halves}metadata: {{name: halves}}\n".encode())
    assert ", 1 object, " in command(".").out


@pytest.mark.parametrize(
    "text",
    [
        SETTINGS.replace("name", "api\\u0056ersion"),
        "a: [\n" + SETTINGS.replace('"name"', '!!binary "a2luZA=="'),
        "kind: Pod\nspec: [",
        '"\\x6bind": Pod\nspec: [',
        "<<: *pod\nspec: [",
        JINJA_WITHOUT_OBJECT + "---\n" + TEMPLATE,
    ],
    ids=["an escape in JSON", "a tag", "a kind", "an escape", "an alias", "another document"],
)
def test_what_may_be_an_object_is_not_evaluated(command: LintCommand, text: str) -> None:
    command.write("plain/pod.yaml", text)
    assert command("plain").status == 3


def test_a_named_file_that_is_no_yaml_is_not_evaluated(command: LintCommand) -> None:
    command.write("ports.yml", JINJA_WITHOUT_OBJECT)
    assert command("ports.yml").status == 3
    assert command("-", stdin=JINJA_WITHOUT_OBJECT).status == 3


# A configuration of a machine, with a file of Kubernetes in a text.
TALOS = """\
apiVersion: {api}
kind: KubeAuditPolicyConfig
configuration:
  apiVersion: audit.k8s.io/v1
  kind: Policy
"""
TEMPLATE_ENDINGS = [
    *("pod.yaml.tmpl", "pod.yml.j2", "pod.json.tpl", "pod.gotmpl", "POD.YAML.J2"),
    *("pod.yaml.gotpl", "pod.yaml.ejs", "pod.yaml.envsubst"),
]


@pytest.mark.parametrize("name", TEMPLATE_ENDINGS)
def test_a_template_by_its_ending_is_not_evaluated_unless_it_is_named(
    command: LintCommand, name: str
) -> None:
    command.write(f"deploy/{name}", POD)
    done = command("deploy")
    assert done.status == 3
    assert f"not evaluated: deploy/{name}: a template of a manifest" in done.out
    assert "visible-devices-env" in command.json(f"deploy/{name}").found


@pytest.mark.parametrize("ending", ["dist", "example", "sample"])
def test_a_sample_by_its_ending_is_named_as_skipped(command: LintCommand, ending: str) -> None:
    command.write(f"deploy/pod.yaml.{ending}", POD)
    command.write(f"deploy/settings.yaml.{ending}", "replicas: 1\n")
    done = command("deploy")
    assert done.status == 0
    assert f"skipped: deploy/pod.yaml.{ending}: a sample of a manifest" in done.out
    assert "settings" not in done.out
    assert "visible-devices-env" in command.json(f"deploy/pod.yaml.{ending}").found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("values.yaml.tmpl", "gpu: {{ gpu }}\n"),
        ("README.md.gotmpl", f"```yaml\n{POD}```\n"),
        ("nginx.conf.j2", POD),
        ("broken.yaml.tmpl", "\udcff"),
        ("talos.yaml.j2", TALOS.replace("{api}", "v1alpha1")),
        ("kubeconfig.tpl", "apiVersion: v1\nkind: Config\ncurrent-context: {{ cluster }}\n"),
    ],
    ids=["no object", "Markdown", "a configuration", "no text", "Talos", "kubeconfig"],
)
def test_a_template_of_something_else_is_not_mentioned(
    command: LintCommand, name: str, text: str
) -> None:
    command.folder.joinpath(name).write_bytes(text.encode(errors="surrogateescape"))
    done = command(".")
    assert (done.status, name in done.out) == (0, False)


@pytest.mark.parametrize("api", ["v1", "{{ api }}", "example.com/v1"])
def test_a_template_that_may_be_of_kubernetes_is_not_evaluated(
    command: LintCommand, api: str
) -> None:
    command.write("deploy/pod.yaml.j2", TALOS.replace("{api}", api))
    assert command("deploy").status == 3


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("values.yaml.gotmpl", "env:\n  NVIDIA_VISIBLE_DEVICES: all\n"),
        ("serving.tpl", "env:\n  - name: NVIDIA_VISIBLE_DEVICES\n    value: {{ all }}\n"),
        ("serving.yaml.j2", "pod:\n  runtimeClassName: nvidia\n"),
        ("gpu.yaml.tftpl", "requestGPU: 1\nsecurityContext:\n  privileged: true\n"),
    ],
)
def test_a_template_of_values_that_tells_of_gpus_is_named(
    command: LintCommand, name: str, text: str
) -> None:
    command.write(name, text)
    done = command(".")
    assert f"skipped: {name}: a template that tells of GPUs" in done.out
    assert done.status == 0


def test_a_template_of_a_chart_by_its_ending_is_passed_over_and_named(command: LintCommand) -> None:
    command.write(f"{PLACE}.tmpl", TEMPLATE)
    done = command("chart")
    assert done.status == 0
    assert f"skipped: {PLACE}.tmpl: a chart's template: lint the chart with --render" in done.out


def test_the_last_line_says_what_only_rendering_evaluates(command: LintCommand) -> None:
    command.write(PLACE, TEMPLATE)
    assert "1 skipped (--render evaluates it)" in command("chart").out.splitlines()[-1]
    command.write("chart/templates/other.yaml", TEMPLATE)
    command.write("roles/ports.yml", JINJA_WITHOUT_OBJECT)
    assert "2 skipped (--render evaluates them)" in command("chart").out.splitlines()[-1]
    assert "3 skipped (--render evaluates 2 of them)" in command(".").out.splitlines()[-1]


@pytest.mark.parametrize("options", [["-q"], ["-o", "sarif"], ["-q", "-o", "concise"], ["--diff"]])
def test_a_report_without_a_last_line_leaves_it_to_standard_error(
    command: LintCommand, options: list[str]
) -> None:
    command.write(PLACE, TEMPLATE)
    assert "note: 1 skipped (--render evaluates it)" in command(*options, "chart").errors
    command.write(PLACE, POD.replace("all", "void"))
    assert "skipped" not in command(*options, "chart").errors
