"""Tests that options of `gpuward certs run` can be given as environment variables."""

from __future__ import annotations

import pytest

from cluster.controllers import certs_command


@pytest.mark.parametrize(
    ("variable", "option", "expected"),
    [
        ("NAMESPACE", "namespace", "x"),
        ("IDENTITY", "identity", "x"),
        ("CA_DAYS", "ca_days", 0.5),
        ("INTERVAL", "interval", 5.0),
        ("STATUS_PORT", "status_port", 8082),
    ],
)
def test_a_variable_stands_for_an_option(
    variable: str, option: str, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"GPUWARD_CERTS_{variable}", str(expected))
    parser = certs_command.make_parser()
    assert getattr(parser.parse_args(["run"]), option) == expected
