"""Options of the commands that run in a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest

from cluster.audit import cli as audit
from cluster.controllers import certs_command as certs
from cluster.controllers import exceptions_command as exceptions
from cluster.controllers import inventory_command as inventory
from cluster.webhooks import cli as webhooks


@pytest.mark.parametrize(
    ("make_parser", "words"),
    [
        (audit.make_parser, ()),
        (certs.make_parser, ("run",)),
        (inventory.make_parser, ("run",)),
        (exceptions.make_parser, ("run",)),
        (webhooks.make_parser, ("watch",)),
    ],
)
def test_a_port_that_cannot_be_is_wrong_usage(
    make_parser: Callable[[], argparse.ArgumentParser],
    words: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    for port in ("-1", "65536", "x"):
        with pytest.raises(SystemExit):
            make_parser().parse_args([*words, f"--status-port={port}"])
        assert "argument --status-port" in capsys.readouterr().err
