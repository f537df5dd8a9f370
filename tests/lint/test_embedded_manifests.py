"""Tests of `--also markdown,shell`: manifests in other texts, and objects that kubectl makes."""

from __future__ import annotations

import json

import pytest

from tests.testkit.lint_command import LintCommand, Outcome

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers:
    - name: main
      image: example.com/train:1
      resources: {limits: {nvidia.com/gpu: 0.5}}
"""
AMOUNT = ("fractional-gpu", 8, 44)  # line and column in the manifest


def indented(by: str, text: str = POD) -> str:
    return "".join(by + line for line in text.splitlines(keepends=True))


def found(done: Outcome) -> list[tuple[str, int, int]]:
    """The rule, the line and the column of each error and warning."""
    findings = [f for f in done.report["findings"] if f["level"] != "note"]
    return [(f["rule"], f["line"], f["column"]) for f in findings]


def lint(command: LintCommand, name: str, text: str) -> Outcome:
    command.write(name, text)
    return command.json("--also", "markdown,shell", ".")


@pytest.mark.parametrize(
    ("text", "lines", "columns"),
    [
        (f"# Title\n\n```yaml\n{POD}```\n", 3, 0),
        (f'```yaml title="pod.yaml" {{1,2}}\n{POD}```\n', 1, 0),
        (f"~~~~ yml\n{POD}~~~~\n", 1, 0),
        (f"```\n{POD}```\n", 1, 0),
        (f"```yaml\n{POD}", 1, 0),
        (f"1. A list:\n\n    ```yaml\n{indented('    ')}    ```\n", 3, 4),
        (f"> ```yaml\n{indented('> ')}> ```\n", 1, 2),
        (f"````yaml\n# ```\n{POD}````\n", 2, 0),
        (f"```bash\nkubectl apply -f - <<EOF\n{POD}EOF\n```\n", 2, 0),
        (f"```console\n$ cat > pod.yaml <<'EOF'\n{POD}EOF\n```\n", 2, 0),
        (f"```\nkubectl apply -f - <<EOF\n{POD}EOF\n```\n", 2, 0),
        (f"```powershell\ncat <<EOF | kubectl apply -f -\n{POD}EOF\n```\n", 2, 0),
    ],
)
def test_a_code_block_of_markdown_is_linted(
    command: LintCommand, text: str, lines: int, columns: int
) -> None:
    rule, line, column = AMOUNT
    done = lint(command, "docs/README.md", text)
    assert found(done) == [(rule, line + lines, column + columns)]
    assert done.status == 1


@pytest.mark.parametrize(
    "text",
    [
        POD,
        f"```text\n{POD}```\n",
        f"```yaml\n{POD.replace('apiVersion: v1', '')}```\n",
        "```yaml\nresources: {limits: {nvidia.com/gpu: 0.5}}\n```\n",
        f"```diff\n{POD}```\n",
    ],
)
def test_other_text_of_markdown_is_not_linted(command: LintCommand, text: str) -> None:
    done = lint(command, "README.md", text)
    assert (found(done), done.status) == ([], 0)


@pytest.mark.parametrize(
    ("text", "lines", "columns"),
    [
        (f"cat <<EOF | kubectl apply -f -\n{POD}EOF\n", 1, 0),
        (f"kubectl apply -f - <<-'END'\n{indented(chr(9))}\tEND\n", 1, 1),
        (f'a <<"A" <<B\nx\nA\n{POD}B\n', 3, 0),
        (f"# <<NO\nkubectl apply -f - <<EOF\n{POD}EOF\n", 2, 0),
        (f"kubectl apply -f - <<\\EOF\n{POD}EOF\n", 1, 0),
        (f"kubectl apply -f - <<'END OF IT'\n{POD}END OF IT\n", 1, 0),
        (f'kubectl apply -f - <<-"E.O-F"\n{POD}\tE.O-F\n', 1, 0),
        # No here-documents
        (f"mask=$((1<<BITS))\nkubectl apply -f - <<EOF\n{POD}EOF\n", 2, 0),
        (f"grep x <<<TEXT\nkubectl apply -f - <<EOF\n{POD}EOF\n", 2, 0),
    ],
)
def test_a_here_document_is_linted(
    command: LintCommand, text: str, lines: int, columns: int
) -> None:
    rule, line, column = AMOUNT
    assert found(lint(command, "deploy.sh", text)) == [(rule, line + lines, column + columns)]


COMPACT = (
    '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"train"},"spec":{"containers":'
    '[{"name":"main","image":"example.com/train:1","resources":'
    '{"limits":{"nvidia.com/gpu":"0.5"}}}]}}'
)


@pytest.mark.parametrize(
    ("name", "text", "line", "column"),
    [
        ("a.md", f"```json\n{COMPACT}\n```\n", 2, 1),
        ("a.md", f"```\n{COMPACT}\n```\n", 2, 1),
        ("a.md", f"```sh\nkubectl apply -f - <<EOF\n{COMPACT}\nEOF\n```\n", 3, 1),
        ("a.md", f"```bash\n$ echo '{COMPACT}' | kubectl apply -f -\n```\n", 2, 9),
        ("a.md", f"```\necho '{COMPACT}' | kubectl apply -f -\n```\n", 2, 7),
        ("a.sh", f"cat <<A\n'{COMPACT}'\nA\necho '{COMPACT}' | kubectl apply -f -\n", 4, 7),
        ("a.sh", f"# it isn't read\ncurl -d '{COMPACT}' $URL\n", 2, 10),
    ],
)
def test_an_object_of_one_line_is_linted(
    command: LintCommand, name: str, text: str, line: int, column: int
) -> None:
    done = lint(command, name, text)
    place = (line, column + COMPACT.index('"0.5"'))
    assert found(done) == [("fractional-gpu", *place)]


def test_an_object_between_double_quotes_is_at_its_quotation(command: LintCommand) -> None:
    text = f"```\necho {json.dumps(COMPACT)} | kubectl apply -f -\n```\n"
    assert found(lint(command, "a.md", text)) == [("fractional-gpu", 2, 6)]


def test_a_filter_of_jq_is_no_object(command: LintCommand) -> None:
    text = """kubectl get queue a -o json | jq '
    {
        apiVersion: .apiVersion, kind: .kind,
        metadata: {name: $name}, spec: (.spec + {weight: 2})
    }' | kubectl apply -f -
"""
    done = lint(command, "copy.sh", text)
    assert (found(done), done.status, done.report["remarks"]) == ([], 0, [])


def test_several_documents_and_blocks_keep_their_lines(command: LintCommand) -> None:
    other = POD.replace("0.5", "1.5")
    done = lint(command, "a.md", f"```yaml\n{POD}---\n{other}```\n\n```yml\n{POD}```\n")
    assert [line for _, line, _ in found(done)] == [9, 18, 29]


def test_what_a_shell_fills_in_is_not_judged(command: LintCommand) -> None:
    text = f"kubectl apply -f - <<EOF\n{POD.replace('0.5', '$COUNT')}EOF\n"
    assert found(lint(command, "a.sh", text)) == []


@pytest.mark.parametrize("spec", ["[\n  ...", "...", "{containers: ...}"])
def test_a_pattern_that_cannot_be_evaluated_is_a_warning(command: LintCommand, spec: str) -> None:
    done = lint(command, "a.md", f"```yaml\napiVersion: v1\nkind: Pod\nspec: {spec}\n```\n")
    assert (done.status, done.report["not_evaluated"]) == (0, [])
    (remark,) = done.report["remarks"]
    assert (remark["file"], remark["level"]) == ("a.md", "warning")
    assert remark["message"].startswith("not evaluated: ")


def test_comments_accept_findings_in_blocks(command: LintCommand) -> None:
    accepted = POD.replace("0.5}}", "0.5}}  # gpuward: ignore[fractional-gpu] shown on purpose")
    for name, text in (("a.md", f"```yaml\n{accepted}```\n"), ("a.sh", f"a <<E\n{accepted}E\n")):
        done = lint(command, name, text + "docker run --gpus all x\n")
        assert [rule for rule, _, _ in found(done) if rule != "run-gpu"] == []
        assert done.report["remarks"] == []


def test_no_fix_is_made_or_promised(command: LintCommand) -> None:
    text = f"```yaml\n{POD.replace('0.5', '{}').replace('limits: {nvidia', 'requests: {nvidia')}```"
    text = text.replace("{}", "1")
    file = command.write("a.md", text)
    report = command.json("--also", "markdown", ".").report
    assert [f["rule"] for f in report["findings"] if f["level"] == "error"] == ["request-only"]
    assert not any(f["fixable"] for f in report["findings"])
    command.run("fix", "--unsafe-fixes", "--also", "markdown", ".")
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("script", "places"),
    [
        (
            "kubectl run a --image=x --env=NVIDIA_VISIBLE_DEVICES=all",
            [("visible-devices-env", 1, 25)],
        ),
        (
            "kubectl run a --image x \\\n  --env NVIDIA_VISIBLE_DEVICES=all --rm -it -- sh",
            [("visible-devices-env", 2, 3)],
        ),
        (
            "kubectl -n ml run a --privileged -it --image=nvcr.io/nvidia/pytorch:24.01-py3",
            [("privileged-gpu", 1, 21)],
        ),
        (
            (
                "kubectl run a --image=x --overrides="
                """'{"spec": {"containers": [{"name": "a", "image": "x", "resources":"""
                """ {"limits": {"nvidia.com/gpu": "0.5"}}}]}}'"""
            ),
            [("fractional-gpu", 1, 25)],
        ),
        (
            (
                "kubectl run a --image=x --env=A=B --overrides="
                """'{"spec": {"containers": [{"name": "a", "image": "x", """
                """"resources": {"limits": {"nvidia.com/gpu": "0.5"}}}]}}'"""
            ),
            [("fractional-gpu", 1, 35)],
        ),
        (
            (
                "kubectl run a --image=x --override-type=json --overrides="
                """'[{"op": "add", "path": "/spec/containers/0", "value": {"name": "b"}},"""
                """ {"op": "add", "path": "/spec/containers/1/resources/limits","""
                """ "value": {"nvidia.com/gpu": "0.5"}}]'"""
            ),
            [("fractional-gpu", 1, 46)],
        ),
        *(
            (
                (
                    "kubectl run a --image=x --env=NVIDIA_VISIBLE_DEVICES=all --override-type=json "
                    f"""--overrides='[{{"op": "{operation}", "path": "{path}", "value": {{}}}}]'"""
                ),
                [("visible-devices-env", 1, 25)],
            )
            for operation in ("add", "replace")
            for path in (
                *("/spec/containers/x", "/spec/containers/-2/a", "/spec/containers/7/a"),
                *("/spec/volumes/-", "/kind/-", "/spec/containers/0/name/0/-", "/a" * 2000),
            )
        ),
        (
            "oc create resourcequota q --hard=cpu=4,nvidia.com/gpu=4",
            [("quota-inert-key", 1, 27)],
        ),
        (
            (
                "# gpuward: ignore[quota-inert-key] as agreed\n"
                "kubectl create quota q --hard=nvidia.com/gpu=4"
            ),
            [],
        ),
        ("kubectl set env deploy/a -c main NVIDIA_VISIBLE_DEVICES=all", [("run-gpu", 1, 34)]),
        ("kubectl set env deploy/a --env=NVIDIA_VISIBLE_DEVICES=all", [("run-gpu", 1, 26)]),
        ("kubectl set env deploy/a NVIDIA_VISIBLE_DEVICES=void NVIDIA_VISIBLE_DEVICES-", []),
        ("kubectl run a --image=nginx --overrides='{' --env=A=B", []),
        # Overrides of other types, and those that kubectl refuses
        (
            (
                "kubectl run a --image=x --override-type=strategic --overrides="
                """'{"spec": {"containers": [{"name": "a", "resources":"""
                """ {"limits": {"nvidia.com/gpu": "0.5"}}}]}}'"""
            ),
            [("fractional-gpu", 1, 51)],
        ),
        (
            (
                "kubectl run a --image=x --override-type json --overrides="
                """'[{"op": "add", "path": "/spec/containers/0/resources","""
                """ "value": {"limits": {"nvidia.com/gpu": "0.5"}}}]'"""
            ),
            [("fractional-gpu", 1, 46)],
        ),
        ("kubectl run", []),
        ("# kubectl run a --image=x --env=NVIDIA_VISIBLE_DEVICES=all", []),
        ("kubectl create quota q --hard=requests.nvidia.com/gpu=4", []),
        (
            "kubectl taint nodes a b nvidia.com/gpu=a:NoExecute nvidia.com/gpus=true:NoSchedule",
            [("unknown-node-taint", 1, 52)],
        ),
        (
            "kubectl taint node -l pool=gpu nvidia.com/gpu:NoSchedul --overwrite",
            [("unknown-node-taint", 1, 32)],
        ),
        ("kubectl taint nodes a nvidia.com/gpus- nvidia.com/gpus:NoSchedule-", []),
        ("kubectl taint nodes $NODE $TAINT=a:NoSchedule nvidia.com/gpu=$A:$EFFECT", []),
        (
            "kubectl label node/a ack.node.gpu.schedule=cGPU --overwrite=false",
            [("unknown-node-mode", 1, 22)],
        ),
        # The node may have its mode already.
        ("kubectl label nodes a ack.node.gpu.placement=binpack", []),
        ("kubectl label pods a ack.node.gpu.schedule=cGPU", []),
    ],
)
def test_objects_that_kubectl_makes_are_linted(
    command: LintCommand, script: str, places: list[tuple[str, int, int]]
) -> None:
    done = lint(command, "run.sh", f"{script}\n")
    assert found(done) == places


@pytest.mark.parametrize(
    ("kind", "overrides"),
    [
        ("merge", "[1]"),
        ("merge", '{"a":' * 600 + "1" + "}" * 600),
        ("json", '[{"op": "add", "path": "/spec/containers/x/y"}]'),
        ("json", '[{"op": "add", "path": "/metadata/name/0"}]'),
        ("json", '[{"op": "add", "path": "' + "/a" * 1_000 + '"}]'),
    ],
)
def test_overrides_that_kubectl_refuses_hide_nothing(
    command: LintCommand, kind: str, overrides: str
) -> None:
    run = "kubectl run a --env NVIDIA_VISIBLE_DEVICES=all --image=x"
    done = lint(command, "run.sh", f"{run} --override-type={kind} --overrides='{overrides}'\n")
    assert found(done) == [("visible-devices-env", 1, 15)]


def test_commands_are_read_in_linear_time(command: LintCommand) -> None:
    """Not a measurement: with a quadratic search this would take minutes."""
    text = "kubectl run a --image=x --env=A=B <<E\n" * 20_000 + "```yaml\n" * 20_000
    assert lint(command, "a.sh", text).status == 0
    assert lint(command, "a.md", text).status == 0
