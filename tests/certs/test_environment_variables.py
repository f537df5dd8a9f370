"""Tests of the options of `gpuward certs run`, which can also be environment variables."""

from __future__ import annotations

import datetime
import socket

import pytest

from cluster.controllers import certs_command
from cluster.controllers.certificates import make_loop
from tests.testkit.certs.fake_cluster import CONFIG, CONFIGURATIONS, MemoryCluster


@pytest.mark.parametrize(
    ("variable", "option", "expected"),
    [
        ("NAMESPACE", "namespace", "x"),
        ("IDENTITY", "identity", "x"),
        ("CA_DAYS", "ca_days", 0.5),
        ("INTERVAL", "interval", 5.0),
        ("STATUS_PORT", "status_port", 8082),
        ("POLICY", "policy", "policy.yaml"),
        ("EXPECTED_REGISTRATION", "expected_registration", "webhooks.yaml"),
    ],
)
def test_a_variable_stands_for_an_option(
    variable: str, option: str, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"GPUWARD_CERTS_{variable}", str(expected))
    parser = certs_command.make_parser()
    assert getattr(parser.parse_args(["run"]), option) == expected


def test_the_options_decide_about_certificates_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = MemoryCluster()
    monkeypatch.setattr("cluster.controllers.certificates.KubernetesCluster", lambda *_: cluster)
    given = {
        "ca-secret": CONFIG.authority_secret,
        "secret": CONFIG.serving_secret,
        "lease": CONFIG.lease,
        "service": "gpuward",
        "headless-service": "gpuward-replicas",
        "namespace": "gpuward-system",
        "mutating-configuration": CONFIGURATIONS[0].name,
        "validating-configuration": f"other, {CONFIGURATIONS[1].name}",
        "ca-days": "30",
        "leaf-days": "4",
    }
    arguments = [f"--{name}={value}" for name, value in given.items()]
    options = certs_command.make_parser().parse_args(["run", *arguments])
    (controller,) = make_loop(options).controllers
    assert controller.reconcile()
    signer, leaf = cluster.stored.signer, cluster.stored.leaf
    assert signer
    assert leaf
    for pair, days in ((signer, 30), (leaf, 4)):
        found = pair.certificate
        lifetime = found.not_valid_after_utc - found.not_valid_before_utc
        assert lifetime == datetime.timedelta(days=days, hours=1)  # from an hour ago
    assert {cluster.published(ref) for ref in CONFIGURATIONS} == {signer.certificate_pem}
    assert cluster.objects["leases", CONFIG.lease]["spec"]["holderIdentity"] == socket.gethostname()


def test_help_says_what_stands_for_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, text in (
        (["--help"], "gpuward certs [-h] COMMAND"),
        (["run", "--help"], "--serving-port PORT"),
        (["run", "--help"], "--policy FILE"),
    ):
        with pytest.raises(SystemExit):
            certs_command.main(arguments)
        assert text in capsys.readouterr().out
