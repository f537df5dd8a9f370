"""Tests of manifests in ConfigMaps and Secrets, which controllers apply."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from kubeyaml import Chunk, read
from tests.testkit.lint_command import LintCommand, Outcome

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: taker, namespace: ml}
spec:
  containers:
    - name: main
      image: example.com/app:1
      env:
        - name: NVIDIA_VISIBLE_DEVICES
          value: all
"""
HEAD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: addon}\n"


def indented(text: str, by: str = "    ") -> str:
    return "".join(by + line for line in text.splitlines(keepends=True))


COMPACT = (
    '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"taker","namespace":"ml"},"spec":'
    '{"containers":[{"name":"main","image":"example.com/app:1","env":'
    '[{"name":"NVIDIA_VISIBLE_DEVICES","value":"all"}]}]}}'
)
FLOW = (
    "{metadata: {name: taker, namespace: ml}, kind: Pod, apiVersion: v1, spec: {containers: [{name:"
    ' main, image: "example.com/app:1", env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]}]}}'
)


def in_config_map(text: str) -> str:
    return f"{HEAD}data:\n  pod.yaml: |\n{indented(text)}"


def found(done: Outcome) -> list[tuple[str, int]]:
    return [(f["rule"], f["line"]) for f in done.report["findings"] if f["level"] == "error"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (in_config_map(POD), [15]),
        (in_config_map(f"---\n{POD}---\n{POD}"), [16, 27]),
        (f"{HEAD}data:\n  a: x\n  pod.yaml: |-\n{indented(POD, '      ')}\n  b: y\n", [16]),
        (HEAD.replace("ConfigMap", "Secret") + f"stringData:\n  p: |\n{indented(POD)}", [15]),
        (f"{HEAD}data:\n  pod.yaml: {json.dumps(POD)}\n", [5]),
        (f"{HEAD}data:\n  pod.yaml: {json.dumps(f'{POD}---{chr(10)}{POD}')}\n", [5, 5]),
        (f"apiVersion: v1\nkind: List\nitems:\n- {indented(in_config_map(POD), '  ')[2:]}", [18]),
        (in_config_map(in_config_map(POD)), [20]),
        (in_config_map(COMPACT + "\n"), [6]),
        (in_config_map(f"{COMPACT}\n---\n{FLOW}\n"), [6, 8]),
        (f"{HEAD}data:\n  pod.json: '{COMPACT}'\n", [5]),
        (in_config_map(f"[{COMPACT}]\n"), []),  # kubectl applies no such list
    ],
    ids=[
        *("block", "several", "indented", "secret", "quoted", "quoted several", "list", "nested"),
        *("compact", "flow", "quoted compact", "list of JSON"),
    ],
)
def test_a_manifest_in_a_text_of_an_object_is_linted_in_its_line(
    command: LintCommand, text: str, lines: list[int]
) -> None:
    command.write("addon.yaml", text)
    done = command.json("addon.yaml")
    assert found(done) == [("visible-devices-env", line) for line in lines]
    assert done.status == (1 if lines else 0)


def test_findings_in_a_quoted_text_are_at_its_key(command: LintCommand) -> None:
    text = f"{HEAD}data:\n  pod.yaml: {json.dumps(POD)}\n"
    command.write("addon.yaml", text)
    findings = command.json("addon.yaml").report["findings"]
    assert {(f["line"], f["column"]) for f in findings} == {(5, 3)}
    assert "5 |   pod.yaml: " in command("addon.yaml").out


def test_no_report_shows_the_text_of_a_secret(command: LintCommand) -> None:
    manifest = json.loads(secret("Opaque", ""))
    text = json.dumps({**manifest, "data": {}, "stringData": {"pod.yaml": POD + "# hidden\n"}})
    done = command("-", stdin=text)
    assert "visible-devices-env" in done.out
    assert "hidden" not in done.out
    assert "metadata" not in done.out


def secret(kind: str, value: str) -> str:
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "type": kind}
    return json.dumps({**manifest, "data": {"pod.yaml": value}})


def test_the_secrets_that_cluster_api_applies_are_decoded(command: LintCommand) -> None:
    encoded = b64encode(POD.encode()).decode()
    applied = "addons.cluster.x-k8s.io/resource-set"
    assert found(command.json("-", stdin=secret(applied, encoded))) == [("visible-devices-env", 1)]
    assert found(command.json("-", stdin=secret("Opaque", encoded))) == []
    assert command("-", stdin=secret(applied, "no base64")).status == 0


@pytest.mark.parametrize(
    "text",
    [
        in_config_map(POD.replace("all", "void")),
        in_config_map("kind: of text\nNVIDIA_VISIBLE_DEVICES: all\n"),
        in_config_map(POD)
        .replace("kind: ConfigMap", "kind: Script")
        .replace("v1", "example.com/v1"),
    ],
    ids=["clean", "no object", "another kind"],
)
def test_other_texts_have_no_finding(command: LintCommand, text: str) -> None:
    command.write("addon.yaml", text)
    assert found(command.json("addon.yaml")) == []


def test_a_comment_in_the_text_suppresses(command: LintCommand) -> None:
    ignore = "# gpuward: ignore[visible-devices-env] the monitoring agent\n"
    command.write(
        "addon.yaml", in_config_map(POD.replace("          value", ignore + "          value"))
    )
    done = command.json("addon.yaml")
    assert (found(done), done.report["remarks"]) == ([], [])
    assert done.report["summary"]["suppressed"] == 1


def test_no_fix_is_written_into_a_text(command: LintCommand) -> None:
    text = in_config_map(
        POD.replace("      env", "      resources: {limits: {nvidia.com/gpu: 1}}\n      env")
    )
    file = command.write("addon.yaml", text)
    assert command.run("fix", "--unsafe-fixes", "addon.yaml").status == 1
    assert file.read_text() == text
    assert command.json("addon.yaml").report["summary"]["fixable"] == 0


def test_a_text_that_cannot_be_read_is_a_warning(command: LintCommand) -> None:
    command.write("addon.yaml", in_config_map(POD.replace("taker", "{{ name }}")))
    done = command("addon.yaml")
    assert done.status == 0
    assert "warning: addon.yaml:8:" in done.out
    assert "not evaluated: " in done.out


def nested(depth: int) -> dict[str, Any]:
    manifest: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}}
    for _ in range(depth):
        data = {"a": "apiVersion: v1\nkind: X\n---\n" + json.dumps(manifest)}
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "data": data}
    return manifest


def test_texts_in_texts_are_read_to_a_depth_and_refused_beyond(command: LintCommand) -> None:
    assert command("-", stdin=json.dumps(nested(4))).status == 0
    done = command("-", stdin=json.dumps(nested(5)))
    assert done.status == 3
    assert "not evaluated: <stdin>:1:1: a manifest in more than 4 texts" in done.out


def test_a_text_that_aliases_repeat_is_evaluated_once(command: LintCommand) -> None:
    aliases = "".join(f"  k{number}: *x\n" for number in range(5_000))
    text = f"{HEAD}data:\n  pod.yaml: &x |\n{indented(POD)}{aliases}"
    command.write("a.yaml", text)
    assert len(found(command.run("lint", "--isolated", "--output=json", "a.yaml"))) == 1


APPLIER = """\
apiVersion: v1
kind: Pod
metadata: {name: applier, namespace: ml}
spec:
  containers:
    - name: kubectl
      image: example.com/kubectl:1
      command: [sh, -c]
      args:
        - |
          cat <<EOF | kubectl apply -f -
          apiVersion: v1
          kind: ConfigMap
          metadata: {name: settings}
          ---
          apiVersion: v1
          kind: Pod
          metadata: {name: $NAME}
          spec:
            containers:
              - name: main
                image: example.com/app:1
                env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]
          EOF
          kubectl wait pod
"""


def test_a_manifest_in_the_command_of_a_pod_is_linted(command: LintCommand) -> None:
    file = command.write("applier.yaml", APPLIER)
    done = command.json("applier.yaml")
    (finding,) = [f for f in done.report["findings"] if f["level"] == "error"]
    assert (finding["rule"], finding["line"]) == ("visible-devices-env", 23)
    assert done.status == 1
    command.run("fix", "--unsafe-fixes", "applier.yaml")
    assert file.read_text() == APPLIER


def test_a_manifest_in_a_quoted_command_is_linted(command: LintCommand) -> None:
    document = read(Chunk(APPLIER))
    assert document is not None
    done = command.json("-", stdin=json.dumps(document.value))
    assert "visible-devices-env" in done.found


HEAD_OF_COMMAND = """\
apiVersion: v1
kind: Pod
metadata: {name: applier, namespace: ml}
spec:
  containers:
    - name: kubectl
      image: example.com/kubectl:1
      command: [sh, -c]
      args:
"""
MANY_LINES = POD.replace("\n", "\n          ").rstrip()


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (
            f"        - |\n          kubectl apply -f - <<A\n          {COMPACT}\n          A\n",
            12,
        ),
        (f"        - |\n          set -e\n          echo '{COMPACT}' | kubectl apply -f -\n", 12),
        (f"        - |\n          curl -d {json.dumps(COMPACT)} $URL/pods\n", 11),
        (f"        - |\n          echo '{MANY_LINES}' | kubectl apply -f -\n", 11),
        (f"        - {json.dumps(f'kubectl create -f - <<< {chr(39)}{COMPACT}{chr(39)}')}\n", 10),
    ],
    ids=["here-document", "echo", "escaped", "several lines", "quoted"],
)
def test_an_object_of_one_line_in_a_command_is_linted(
    command: LintCommand, args: str, line: int
) -> None:
    command.write("applier.yaml", HEAD_OF_COMMAND + args)
    assert found(command.json("applier.yaml")) == [("visible-devices-env", line)]


@pytest.mark.parametrize("quote", ["'", '"', "'{", '"{\\', "' {\\"])
def test_texts_are_read_in_linear_time(command: LintCommand, quote: str) -> None:
    """Not a measurement: with a quadratic search this would take minutes."""
    text = "apiVersion" + quote * 30_000 + "{,  " * 30_000 + "[" * 30_000
    pod = json.loads(json.dumps({"spec": {"containers": [{"name": "a", "args": [text]}]}}))
    pod.update(apiVersion="v1", kind="Pod", metadata={"name": "a"})
    assert command("-", stdin=json.dumps(pod)).status == 0
    config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": f"{{kind: {text}"}}
    assert command("-", stdin=json.dumps(config)).status == 0


def test_what_no_here_document_holds_is_no_manifest(command: LintCommand) -> None:
    text = APPLIER.replace("<<EOF | kubectl apply -f -", "a.yaml << 1")
    command.write("applier.yaml", text.replace("          EOF\n", ""))
    assert command("applier.yaml").status == 0
