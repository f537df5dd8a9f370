"""The time in which objects were created that `gpuward audit` is about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.audit.cli import main
from tests.testkit.admission.reviews import container, pod, variable

FIRST, LAST = "2031-03-01T02:10:00Z", "2031-03-01T02:45:00Z"


def audited(folder: Path, created: Any, capsys: pytest.CaptureFixture[str], *times: str) -> int:
    """Return how many findings there are about a pod that was created then."""
    made = pod(container(**variable("all")))
    made["metadata"] |= {"creationTimestamp": created, "namespace": "ml"}
    file = folder / "cluster.json"
    file.write_text(json.dumps(made))
    main(["-f", str(file), "--isolated", "-o", "json", *times])
    return len(json.loads(capsys.readouterr().out)["findings"])


@pytest.mark.parametrize(
    ("created", "is_meant"),
    [
        ("2031-03-01T02:09:59Z", False),
        (FIRST, True),
        ("2031-03-01T02:30:00Z", True),
        (LAST, True),
        ("2031-03-01T02:45:01Z", False),
        (None, True),  # a manifest: its author knows when
        ("yesterday", True),
        ("2031-03-01T02:30:00", True),
    ],
)
def test_only_objects_of_that_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], created: Any, *, is_meant: bool
) -> None:
    times = ("--since-time", FIRST, "--until-time", LAST)
    assert bool(audited(tmp_path, created, capsys, *times)) == is_meant
    assert audited(tmp_path, created, capsys)


@pytest.mark.parametrize("text", ["", "7", "1d", "1h1h", "-5m", "1.5h", "9999999h"])
def test_what_is_no_duration(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([f"--since={text}"])
    assert "expected hours, minutes and seconds: 1h30m, 45s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--until-time=nine"], "expected a time: 2031-03-01T02:10:00Z"),
        ([f"--since-time={LAST}", f"--until-time={FIRST}"], "--until-time is earlier than"),
        (["--since=1h", "--publish=policyreport"], "--publish is about all objects: leave --since"),
        (["--since=1h", "--interval=60"], "--interval is about all objects: leave --since"),
        (["--since=1h", f"--since-time={FIRST}"], "not allowed with argument"),
    ],
)
def test_options_that_do_not_go_together(
    options: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(options)
    except SystemExit as stop:
        status = int(str(stop.code))
    assert status == 2
    assert part in capsys.readouterr().err
