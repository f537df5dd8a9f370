"""Tests of the credentials and the API server that `gpuward webhooks remove` uses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from kubernetes.config import incluster_config

from cluster.api.errors import ClusterError, ConfigurationKind, ConfigurationRef
from cluster.webhooks.cli import main
from cluster.webhooks.removal import remove as remove_configurations
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import free_port
from tests.testkit.missing_packages import run_without
from tests.testkit.paths import ROOT
from tests.testkit.registration.removal import ADMISSION, MODE_OFF, remove
from webhook.registration import configurations

NAME = "gpuward-credentials"
OPTIONS = [f"--{kind}-configuration={NAME}" for kind in ("mutating", "validating")]
NO_FILE = "no credentials for the Kubernetes API: there is no file "


@pytest.fixture
def cluster(api_server: Cluster) -> Iterator[Cluster]:
    """An API server with configurations to remove."""
    manifests = configurations(NAME, lambda path: {"url": "https://127.0.0.1:1" + path}, MODE_OFF)
    paths = [f"{ADMISSION}/{kind.value}" for kind in ConfigurationKind]
    for path, manifest in zip(paths, manifests, strict=True):
        api_server.create(path, manifest)
    yield api_server
    for path in paths:
        api_server.request("DELETE", f"{path}/{NAME}")


def is_empty(cluster: Cluster) -> bool:
    paths = [f"{ADMISSION}/{kind.value}/{NAME}" for kind in ConfigurationKind]
    return {cluster.request("GET", path).status for path in paths} == {404}


def unreachable_kubeconfig(folder: Path) -> Path:
    """A kubeconfig file of a cluster that does not exist."""
    server = f"https://127.0.0.1:{free_port()}"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "nowhere", "cluster": {"server": server}}],
        "users": [{"name": "nobody", "user": {"token": "x"}}],
        "contexts": [{"name": "away", "context": {"cluster": "nowhere", "user": "nobody"}}],
        "current-context": "away",
    }
    file = folder / "away.kubeconfig"
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def test_the_kubeconfig_in_the_home_folder_is_used(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / ".kube" / "config"
    file.parent.mkdir()
    file.write_text(cluster.kubeconfig.read_text(encoding="utf-8"), encoding="utf-8")
    assert remove(*OPTIONS, HOME=str(tmp_path), KUBECONFIG="").returncode == 0
    assert is_empty(cluster)


def test_of_several_files_the_first_names_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    missing, other_file = tmp_path / "missing", unreachable_kubeconfig(tmp_path)
    listed = f"{missing}:{cluster.kubeconfig}:{other_file}"
    chosen = cluster.kubectl("config", "current-context", kubeconfig=Path(listed)).stdout
    assert chosen == cluster.kubectl("config", "current-context").stdout, (
        "this is what kubectl does"
    )
    done = remove(*OPTIONS, KUBECONFIG=listed)
    assert done.returncode == 0, done.stderr
    assert is_empty(cluster)


def test_the_named_context_is_used(cluster: Cluster, tmp_path: Path) -> None:
    listed = f"{unreachable_kubeconfig(tmp_path)}:{cluster.kubeconfig}"
    context = cluster.kubectl("config", "current-context").stdout.strip()
    done = remove(*OPTIONS, "--context", context, KUBECONFIG=listed)
    assert done.returncode == 0, done.stderr
    assert is_empty(cluster)


def test_the_service_account_of_the_pod_is_used(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster.create(
        "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "gpuward-remover"}}
    )
    (tmp_path / "token").write_text(cluster.token("gpuward-remover", "default"), encoding="utf-8")
    (tmp_path / "ca.crt").write_bytes(cluster.authority.bundle)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    url = urlsplit(cluster.url)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(url.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(url.port))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert main(["remove", *OPTIONS]) == 1
    assert 'User "system:serviceaccount:default:gpuward-remover"' in capsys.readouterr().err
    cluster.request("DELETE", "/api/v1/namespaces/default/serviceaccounts/gpuward-remover")


@pytest.mark.parametrize(
    ("arguments", "environment", "file"),
    [
        ([], {}, "~/.kube/config"),
        ([], {"KUBECONFIG": "/nonexistent/a:/nonexistent/b"}, "/nonexistent/a:/nonexistent/b"),
        (["--kubeconfig", "/nonexistent/c"], {}, "/nonexistent/c"),
        (["--context", "x"], {"KUBERNETES_SERVICE_HOST": "127.0.0.1"}, "~/.kube/config"),
    ],
)
def test_missing_credentials_are_reported(
    arguments: list[str], environment: dict[str, str], file: str
) -> None:
    done = remove(*arguments, **environment)
    assert done.returncode == 1
    assert done.stderr.startswith(f"gpuward webhooks: {NO_FILE}{file}\n")
    assert done.stderr.splitlines()[-1].startswith("  kubectl delete validatingwebhook")


def test_a_broken_file_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "broken"
    file.write_text("a: [", encoding="utf-8")
    done = remove("--kubeconfig", str(file))
    assert done.returncode == 1
    assert done.stderr.startswith("gpuward webhooks: no credentials for the Kubernetes API: ")


@pytest.mark.slow
def test_a_refused_connection_is_reported(tmp_path: Path) -> None:
    file = unreachable_kubeconfig(tmp_path)
    done = remove("--kubeconfig", str(file))
    assert done.returncode == 1
    assert done.stderr.count("connection refused") == 2, done.stderr
    expected = "kubectl delete validatingwebhookconfigurations/gpuward "
    expected += f"mutatingwebhookconfigurations/gpuward --ignore-not-found --kubeconfig {file}"
    assert done.stderr.splitlines()[-1] == f"  {expected}"


class RefusingServer:
    """An API server that first refuses, as while the rights of a new account are not known yet."""

    def __init__(self, refusals: int, *existing: ConfigurationRef) -> None:
        self.refusals = refusals
        self.existing = set(existing)

    def get_configuration(self, ref: ConfigurationRef) -> dict[str, Any] | None:
        if self.refusals:
            self.refusals -= 1
            raise ClusterError("403")
        found = {"metadata": {"uid": ref.name}, "webhooks": [{"name": "deny.gpuward.io"}]}
        return found if ref in self.existing else None

    def delete_configuration(self, ref: ConfigurationRef, uid: str) -> Sequence[str]:
        assert uid == ref.name
        self.existing.remove(ref)
        return ()

    def delete_cluster_role_binding(self, name: str) -> None:
        raise AssertionError(name)


@pytest.mark.parametrize("refusals", [2, 3])
def test_a_refused_request_is_retried_twice(refusals: int) -> None:
    ref = ConfigurationRef(ConfigurationKind.MUTATING, "gpuward")
    server = RefusingServer(refusals, ref)
    messages: list[str] = []
    remaining = remove_configurations(
        server,
        [ref],
        on_deleted=lambda _, what: messages.append(what),
        on_failed=lambda _, why: messages.append(why),
        retry_seconds=(0, 0),
    )
    assert set(remaining) == server.existing == (set() if refusals == 2 else {ref})
    assert messages == ["403"] * refusals + ["deleted"] * (not remaining)


def test_the_help_lists_the_exit_statuses_and_the_kubectl_command() -> None:
    expected = remove("--help").stdout
    assert "0 none exists any more, 1 one may still exist, 2 wrong usage" in expected
    command = " ".join(expected.partition("  kubectl")[2].replace("\\\n", "").split())
    manual = (ROOT / "docs" / "uninstall.md").read_text(encoding="utf-8")
    assert f"$ kubectl {command}\n" in manual
    assert remove("--mutating-configuration", ",").returncode == 2


def test_a_missing_client_package_is_named_with_its_extra() -> None:
    done = run_without("kubernetes", "webhooks", "remove")
    hint = "`pip install 'gpuward[certs]'`"
    expected = f"gpuward webhooks needs the package kubernetes: {hint}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)
