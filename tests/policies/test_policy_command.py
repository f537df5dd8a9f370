"""The command `gpuward policy check`."""

from __future__ import annotations

import datetime
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml

from lint.policy.cli import main
from policies.loading import PolicyError
from tests.testkit.policy_mistakes import MISTAKES, POLICY_HEADER
from webhook.reload.policy import PolicyReloader

EXCEPTION = """exceptions:
- {rules: [absurd-count, zero-gpu], match: {namespace: x}, reason: r, expires: %s}
"""


def check(folder: Path, text: str, *options: str) -> tuple[int, str]:
    """Check a policy file; the exit status and the file's name."""
    file = folder / "gpuward.yaml"
    file.write_text(text, encoding="utf-8")
    return main(["check", str(file), *options]), str(file)


@pytest.mark.parametrize(("text", "place", "message"), MISTAKES)
def test_every_mistake_is_refused_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, place: str, message: str
) -> None:
    status, file = check(tmp_path, POLICY_HEADER + text)
    output = capsys.readouterr()
    assert (status, output.out) == (1, "")
    assert output.err.startswith(f"gpuward policy: refused: {file}:")
    assert f"{file}:{place}: " in output.err
    assert message in output.err


def test_a_missing_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "/nonexistent/gpuward.yaml"]) == 1
    expected = "gpuward policy: refused: /nonexistent/gpuward.yaml: no such file or directory\n"
    assert capsys.readouterr().err == expected


def test_a_good_policy_is_summarised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, file = check(tmp_path, POLICY_HEADER + "rules: {absurd-count: {action: deny}}\n")
    expected = f"{file}: gpuward can use this policy; profile nvidia; rules: 1, exceptions: 0\n"
    assert (status, capsys.readouterr().out) == (0, expected)


@pytest.mark.parametrize(("days", "verb"), [(-400, "ended"), (2, "ends"), (13, "ends"), (16, "")])
def test_exceptions_that_end_soon_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], days: int, verb: str
) -> None:
    last_day = datetime.datetime.now(tz=datetime.UTC).date() + datetime.timedelta(days=days)
    assert check(tmp_path, POLICY_HEADER + EXCEPTION % last_day)[0] == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if ": note: " in line]
    what = f"the exception to absurd-count, zero-gpu {verb} after {last_day}"
    assert [note.partition(": note: ")[2] for note in notes] == [what] * bool(verb)


def test_the_policy_may_be_in_a_config_map(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text, status in (("", 0), ("rule: {}\n", 1)):
        data = {"gpuward.yaml": POLICY_HEADER + text}
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "data": data}
        assert check(tmp_path, yaml.safe_dump(manifest), "--config-map")[0] == status
    error = capsys.readouterr().err
    assert f"{tmp_path}/gpuward.yaml[gpuward.yaml]:3:1: unknown key 'rule'" in error


def test_without_the_option_for_config_maps_the_error_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"gpuward.yaml": POLICY_HEADER}}
    for text, is_config_map in ((yaml.safe_dump(manifest), True), ("kind: ConfigMap\n", False)):
        assert check(tmp_path, text)[0] == 1
        assert ("is a ConfigMap: add --config-map" in capsys.readouterr().err) is is_config_map


def test_it_accepts_what_the_webhook_accepts(tmp_path: Path) -> None:
    file = tmp_path / "gpuward.yaml"
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"gpuward.yaml": POLICY_HEADER}}
    for text, is_good in ((POLICY_HEADER, True), (yaml.safe_dump(manifest), False), ("a", False)):
        assert (check(tmp_path, text)[0] == 0) == is_good
        with nullcontext() if is_good else pytest.raises(PolicyError):
            PolicyReloader(str(file)).load()


def test_profiles_can_be_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, POLICY_HEADER, "--profile=gke")[0] == 0
    assert "profile gke;" in capsys.readouterr().out
    assert check(tmp_path, POLICY_HEADER, "--profile=no-such")[0] == 1
    assert "no-such" in capsys.readouterr().err


def test_wrong_usage_has_another_status() -> None:
    with pytest.raises(SystemExit) as error:
        main(["check"])
    assert error.value.code == 2
