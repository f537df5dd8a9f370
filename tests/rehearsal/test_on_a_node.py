"""Chart and image as they are in the registry, on a cluster with the real kubelet."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.paths import DOCS, ROOT
from tests.testkit.real_node import isolation
from tests.testkit.real_node.programs import programs
from tests.testkit.release.chart import PUBLIC
from tests.testkit.release.image import REPOSITORY, Builder
from tests.testkit.release.repository import VERSION
from tests.testkit.release.servers import Registry
from tests.testkit.skipping import skip_missing

INSTALL = (DOCS / "install.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def _node() -> None:
    """Skip what cannot run here before an image is built."""
    if why := isolation.obstacle():
        skip_missing(why)
    try:
        programs()
    except BuildError as error:
        skip_missing(str(error))


@pytest.mark.usefixtures("charts")
def test_two_commands_end_with_a_webhook_that_refuses_a_bypass(
    images: Builder, digest: str, registry: Registry
) -> None:
    images.tag(digest, registry, REPOSITORY, VERSION)
    (install,) = re.findall(
        rf"^\$ (helm install gpuward oci://{re.escape(PUBLIC)} .*)$", INSTALL, re.MULTILINE
    )
    command = f"{install} --version {VERSION} --set mode=deny"
    run = (sys.executable, "-m", "tests.testkit.release.fresh_cluster")
    done = subprocess.run(
        [*isolation.COMMAND, *run, str(registry.storage), command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout)
    assert (
        'denied the request: gpuward [visible-devices-env] container "jupyter"' in seen["refusal"]
    )
    assert seen["images"] == [f"ghcr.io/{REPOSITORY}@{digest}"]
