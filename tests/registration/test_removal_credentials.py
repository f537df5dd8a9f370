"""As whom, and at which API server, `gpuward webhooks remove` deletes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from kubernetes.config import incluster_config

from cluster.api import ClusterError, ConfigurationKind, ConfigurationRef
from registration.cli import main
from registration.configurations import configurations
from registration.removal import remove as remove_by
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import free_port
from tests.testkit.missing_packages import without
from tests.testkit.paths import ROOT
from tests.testkit.registration.removal import ADMISSION, NOBODY, remove

NAME = "gpuward-credentials"
NAMED = [f"--{kind}-configuration={NAME}" for kind in ("mutating", "validating")]
NO_FILE = "no credentials for the Kubernetes API: there is no file "


@pytest.fixture
def there(api_server: Cluster) -> Iterator[Cluster]:
    """An API server with something to remove."""
    made = configurations(NAME, lambda path: {"url": "https://127.0.0.1:1" + path}, NOBODY)
    paths = [f"{ADMISSION}/{kind.value}" for kind in ConfigurationKind]
    for path, manifest in zip(paths, made, strict=True):
        api_server.create(path, manifest)
    yield api_server
    for path in paths:
        api_server.request("DELETE", f"{path}/{NAME}")


def is_empty(cluster: Cluster) -> bool:
    paths = [f"{ADMISSION}/{kind.value}/{NAME}" for kind in ConfigurationKind]
    return {cluster.request("GET", path).status for path in paths} == {404}


def elsewhere(folder: Path) -> Path:
    """A kubeconfig file of a cluster that is not there."""
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


def test_the_kubeconfig_of_the_home(there: Cluster, tmp_path: Path) -> None:
    file = tmp_path / ".kube" / "config"
    file.parent.mkdir()
    file.write_text(there.kubeconfig.read_text(encoding="utf-8"), encoding="utf-8")
    assert remove(*NAMED, HOME=str(tmp_path), KUBECONFIG="").returncode == 0
    assert is_empty(there)


def test_of_several_files_the_first_names_the_cluster(there: Cluster, tmp_path: Path) -> None:
    missing, away = tmp_path / "missing", elsewhere(tmp_path)
    listed = f"{missing}:{there.kubeconfig}:{away}"
    chosen = there.kubectl("config", "current-context", kubeconfig=Path(listed)).stdout
    assert chosen == there.kubectl("config", "current-context").stdout, "this is what kubectl does"
    done = remove(*NAMED, KUBECONFIG=listed)
    assert done.returncode == 0, done.stderr
    assert is_empty(there)


def test_the_context_that_is_named(there: Cluster, tmp_path: Path) -> None:
    listed = f"{elsewhere(tmp_path)}:{there.kubeconfig}"
    context = there.kubectl("config", "current-context").stdout.strip()
    done = remove(*NAMED, "--context", context, KUBECONFIG=listed)
    assert done.returncode == 0, done.stderr
    assert is_empty(there)


def test_the_account_of_the_pod(
    there: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there.create(
        "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "gpuward-remover"}}
    )
    (tmp_path / "token").write_text(there.token("gpuward-remover", "default"), encoding="utf-8")
    (tmp_path / "ca.crt").write_bytes(there.authority.bundle)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    place = urlsplit(there.url)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(place.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(place.port))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert main(["remove", *NAMED]) == 1
    assert 'User "system:serviceaccount:default:gpuward-remover"' in capsys.readouterr().err
    there.request("DELETE", "/api/v1/namespaces/default/serviceaccounts/gpuward-remover")


@pytest.mark.parametrize(
    ("arguments", "environment", "file"),
    [
        ([], {}, "~/.kube/config"),
        ([], {"KUBECONFIG": "/nonexistent/a:/nonexistent/b"}, "/nonexistent/a:/nonexistent/b"),
        (["--kubeconfig", "/nonexistent/c"], {}, "/nonexistent/c"),
        (["--context", "x"], {"KUBERNETES_SERVICE_HOST": "127.0.0.1"}, "~/.kube/config"),
    ],
)
def test_without_credentials(arguments: list[str], environment: dict[str, str], file: str) -> None:
    done = remove(*arguments, **environment)
    assert done.returncode == 1
    assert done.stderr.startswith(f"gpuward webhooks: {NO_FILE}{file}\n")
    assert done.stderr.splitlines()[-1].startswith("  kubectl delete validatingwebhook")


def test_a_file_that_is_broken_is_said(tmp_path: Path) -> None:
    file = tmp_path / "broken"
    file.write_text("a: [", encoding="utf-8")
    done = remove("--kubeconfig", str(file))
    assert done.returncode == 1
    assert done.stderr.startswith("gpuward webhooks: no credentials for the Kubernetes API: ")


def test_nobody_answers(tmp_path: Path) -> None:
    file = elsewhere(tmp_path)
    done = remove("--kubeconfig", str(file))
    assert done.returncode == 1
    assert done.stderr.count("Connection refused") == 2, done.stderr
    told = "kubectl delete validatingwebhookconfigurations/gpuward "
    told += f"mutatingwebhookconfigurations/gpuward --ignore-not-found --kubeconfig {file}"
    assert done.stderr.splitlines()[-1] == f"  {told}"


class Reluctant:
    """An API server that first refuses, as before it has heard of a new account's rights."""

    def __init__(self, refusals: int, *there: ConfigurationRef) -> None:
        self.refusals = refusals
        self.there = set(there)

    def get_configuration(self, ref: ConfigurationRef) -> dict[str, Any] | None:
        if self.refusals:
            self.refusals -= 1
            raise ClusterError("403")
        found = {"metadata": {"uid": ref.name}, "webhooks": [{"name": "deny.gpuward.io"}]}
        return found if ref in self.there else None

    def delete_configuration(self, ref: ConfigurationRef, uid: str) -> Sequence[str]:
        assert uid == ref.name
        self.there.remove(ref)
        return ()


@pytest.mark.parametrize("refusals", [2, 3])
def test_who_is_refused_asks_twice_more(refusals: int) -> None:
    ours = ConfigurationRef(ConfigurationKind.MUTATING, "gpuward")
    server = Reluctant(refusals, ours)
    said: list[str] = []
    left = remove_by(
        server,
        [ours],
        on_deleted=lambda _, what: said.append(what),
        on_failed=lambda _, why: said.append(why),
        retry_seconds=(0, 0),
    )
    assert set(left) == server.there == (set() if refusals == 2 else {ours})
    assert said == ["403"] * refusals + ["deleted"] * (not left)


def test_the_help_says_how_it_ends_and_the_command_that_needs_nothing_of_ours() -> None:
    told = remove("--help").stdout
    assert "0 none exists any more, 1 one may still exist, 2 wrong usage" in told
    command = " ".join(told.partition("  kubectl")[2].replace("\\\n", "").split())
    manual = (ROOT / "docs" / "uninstall.md").read_text(encoding="utf-8")
    assert f"$ kubectl {command}\n" in manual
    assert remove("--mutating-configuration", ",").returncode == 2


def test_the_client_that_is_missing_is_named_with_its_extra() -> None:
    done = without("kubernetes", "webhooks", "remove")
    told = "gpuward webhooks needs the package kubernetes: pip install 'gpuward[certs]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)
