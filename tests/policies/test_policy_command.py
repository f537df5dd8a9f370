"""The command `gpuward policy check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.cli import main
from tests.testkit.policy_mistakes import MISTAKES, POLICY_HEADER

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


def test_expired_exceptions_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, POLICY_HEADER + EXCEPTION % "2020-01-31")[0] == 0
    expected = "note: the exception to absurd-count, zero-gpu expired after 2020-01-31\n"
    assert expected in capsys.readouterr().out
    assert check(tmp_path, POLICY_HEADER + EXCEPTION % "2999-01-31")[0] == 0
    assert "note" not in capsys.readouterr().out


def test_profiles_can_be_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, POLICY_HEADER, "--profile=gke")[0] == 0
    assert "profile gke;" in capsys.readouterr().out
    assert check(tmp_path, POLICY_HEADER, "--profile=no-such")[0] == 1
    assert "no-such" in capsys.readouterr().err


def test_wrong_usage_has_another_status() -> None:
    with pytest.raises(SystemExit) as error:
        main(["check"])
    assert error.value.code == 2
