"""The image, built in a folder without a container engine: its programs and its files."""

from __future__ import annotations

import json
import re
import ssl
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from gpuward import __version__
from tests.testkit.admission.caller import REVIEW, TIMEOUT_SECONDS
from tests.testkit.admission.server import ANY_PORT, write_certificate
from tests.testkit.control_plane.processes import eventually
from tests.testkit.image.dockerfile_replay import Replay
from tests.testkit.image.programs import Image, fetch, read_event
from tests.testkit.paths import ROOT

pytestmark = pytest.mark.slow

EXTRAS = ("webhook", "certs", "console", "fast")
SIZE_LIMIT = 80 << 20  # bytes; the Kubernetes client alone would be 126 MB
UNCHECKED = (1).to_bytes(4, "little")  # flags of bytecode that does not look at its source
TRAP = "raise SystemExit('imported from the working folder')\n"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: a}]}\n"


def installed_packages(image: Image) -> list[Distribution]:
    """The packages that are installed in the image."""
    return list(distributions(path=[str(image.tree)]))


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image, built with the instructions of the Dockerfile."""
    folder = tmp_path_factory.mktemp("image")
    return Image(Replay(ROOT / "Dockerfile", folder), folder)


class _EmptyApiServer(BaseHTTPRequestHandler):
    """A fake API server without any objects."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()
        self.wfile.write(b'{"kind": "Status", "message": "there is none"}')

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[str]:
    """The path of a kubeconfig for a fake API server without any objects."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _EmptyApiServer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        names = {"cluster": "x", "user": "x"}
        content = {
            "clusters": [
                {"name": "x", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
            ],
            "users": [{"name": "x", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": names}],
            "current-context": "x",
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(content), encoding="utf-8")
        yield str(tmp_path / "kubeconfig")
        server.shutdown()
        thread.join()


def test_it_serves_and_stops_on_sigterm(image: Image, tmp_path: Path) -> None:
    authority = write_certificate(tmp_path / "tls")
    options = ["--listen", ANY_PORT, "--metrics-listen", ANY_PORT, "--drain-seconds", "0"]
    before = set(image.files())
    with image.start(
        tmp_path, "serve", *options, "--certificate", str(authority.parent)
    ) as process:
        serving = read_event(process.stderr, "serving")
        eventually(lambda: fetch(f"http://{serving['metrics_address']}/readyz"), what="it is ready")
        url = f"https://localhost:{serving['address'].rsplit(':', 1)[1]}/validate/deny"
        answer = fetch(url, REVIEW, ssl.create_default_context(cafile=str(authority)))
        assert json.loads(answer)["response"]["allowed"] is False
        process.terminate()
        assert read_event(process.stderr, "stopped")
        assert process.wait(TIMEOUT_SECONDS) == 0
    assert set(image.files()) == before


def test_the_certificate_controller_reaches_the_api_server(
    image: Image, tmp_path: Path, kubeconfig: str
) -> None:
    """The image has all modules of the Kubernetes client that gpuward uses."""
    names = [f"--{option}=x" for option in ("namespace", "service", "headless-service", "secret")]
    names += [f"--{option}=x" for option in ("ca-secret", "lease", "mutating-configuration")]
    with image.start(
        tmp_path, "certs", "run", *names, "--kubeconfig", kubeconfig, "--status-port", "0"
    ) as process:
        failed = read_event(process.stderr, "reconciliation failed")
    # Its Lease does not exist, and this API server lets no client create one.
    assert "leases/x: 501" in str(failed)


def test_the_removal_finds_nothing_to_remove(image: Image, tmp_path: Path, kubeconfig: str) -> None:
    status, out, err = image.run(tmp_path, "webhooks", "remove", "--kubeconfig", kubeconfig)
    assert (status, out.count("\n"), err) == (0, 2, "")


def test_it_lints_and_imports_nothing_from_the_working_folder(image: Image, tmp_path: Path) -> None:
    for name in ("gpuward", "yaml", "rules", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(TRAP)
    (tmp_path / "pod.yaml").write_text(POD)
    assert image.run(tmp_path, "lint", "pod.yaml")[::2] == (0, "")
    assert image.run(tmp_path, "--version") == (0, f"gpuward {__version__}\n", "")


def test_the_console_has_its_templates_and_what_draws_them(image: Image, tmp_path: Path) -> None:
    status, out, err = image.run(tmp_path, "console", "--demo", "--export", "-")
    assert (status, err) == (0, "")
    assert "demo cluster" in out


def test_it_contains_the_pinned_packages_and_nothing_else(image: Image) -> None:
    pinned = re.findall(r"^(\S+)==", (ROOT / "requirements/image.txt").read_text(), re.MULTILINE)
    found = installed_packages(image)
    assert sorted(one.metadata["Name"].lower().replace("_", "-") for one in found) == sorted(
        ["gpuward", *pinned]
    )
    recorded = {str(file) for one in found for file in one.files or ()}
    assert {name for name in image.files() if not name.endswith(".pyc")} <= recorded
    top_level = {name.partition("/")[0].removesuffix(".py") for name in image.files()}
    assert not top_level & sys.stdlib_module_names
    assert "direct_url.json" not in {Path(name).name for name in image.files()}


def test_every_requirement_is_met(image: Image) -> None:
    found = {
        one.metadata["Name"].lower().replace("_", "-"): one for one in installed_packages(image)
    }
    for name, one in found.items():
        extras = EXTRAS if name == "gpuward" else ("",)
        for requirement in map(Requirement, one.requires or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
                wanted = requirement.name.lower().replace("_", "-")
                assert found[wanted].version in requirement.specifier, f"{name}: {requirement}"


def test_all_bytecode_is_valid_without_a_check_of_the_source(image: Image) -> None:
    files = image.files()
    compiled = {
        re.sub(r"__pycache__/(.+)\.cpython-\d+\.pyc$", r"\1.py", name): path.read_bytes()
        for name, path in files.items()
        if name.endswith(".pyc")
    }
    assert set(compiled) == {name for name in files if name.endswith(".py")}
    assert {content[4:8] for content in compiled.values()} == {UNCHECKED}
    assert b"/opt/gpuward/gpuward/__main__.py" in compiled["gpuward/__main__.py"]
    here = str(image.build_folder).encode()
    assert [name for name, path in files.items() if here in path.read_bytes()] == []


def test_its_size_is_below_the_limit(image: Image) -> None:
    size = sum(path.stat().st_size for path in image.files().values())
    assert size < SIZE_LIMIT, f"{size / (1 << 20):.1f} MiB"
