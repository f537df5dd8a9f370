"""README.md shows what users read, and docs/README.md leads to every page."""

from __future__ import annotations

import re
import subprocess
import sys

import yaml

from examples import demo
from policies.loading import load_policy
from tests.testkit.admission.reviews import Admission
from tests.testkit.chart.rendering import find_one, render
from tests.testkit.paths import DOCS, ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
LINK = re.compile(r"\]\(([^)#]+)\)")


def test_the_refusal_in_the_readme_is_what_the_webhook_answers() -> None:
    text = (ROOT / "examples" / "bypass.yaml").read_text(encoding="utf-8")
    notebook = next(yaml.safe_load_all(text))
    message = Admission().validate(notebook).message
    assert f'webhook "deny.gpuward.io" denied the request: {message}\n' in README


def test_the_policy_in_the_readme_can_be_used() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    policy = load_policy(text.encode(), "gpuward.yaml")
    assert policy.rule_set().profile.name == "gke"
    assert [exception.rules for exception in policy.exceptions] == [("privileged-gpu",)]
    # Every key but the first two is optional, as the text says.
    head = "".join(text.splitlines(keepends=True)[:2])
    assert load_policy(head.encode(), "gpuward.yaml").exceptions == ()


def test_the_demo_lints_shows_a_fix_and_prints_a_patch() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(demo.COMMANDS) == 3
    linted, diff, patch = done.stdout.split("\n# ")[1:]
    assert "error[visible-devices-env]" in linted
    assert re.search(r"^-.*\n(.*\n)*?\+", diff, re.MULTILINE)
    assert '"op": "remove"' in patch


def test_what_the_readme_says_about_the_registration_is_what_the_chart_has() -> None:
    """The command for emergencies takes all of it away, and a hanging webhook costs so long."""
    objects = render("")
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    registered = {kind: find_one(objects, kind) for kind in kinds}
    (command,) = re.findall(r"^\$ kubectl delete (\S+) (\S+)$", README, re.MULTILINE)
    assert sorted(command[0].split(",")) == sorted(map(str.lower, kinds))
    assert {one["metadata"]["name"] for one in registered.values()} == {command[1]}
    assert [one for one in objects if one["kind"] in kinds] == [*registered.values()]
    seconds = {
        kind: {entry["timeoutSeconds"] for entry in one["webhooks"]}
        for kind, one in registered.items()
    }
    # A pod is sent to both, one after the other, and a workload to the first.
    assert seconds == {kind: {3} for kind in kinds}
    assert "up to six seconds longer, a workload\nthree" in README


def test_the_index_of_the_documentation_leads_to_every_page() -> None:
    index = DOCS / "README.md"
    linked = LINK.findall(index.read_text(encoding="utf-8"))
    pages = {page.name for page in DOCS.glob("*.md")} - {index.name}
    folders = {str(page.relative_to(DOCS)) for page in DOCS.glob("*/README.md")}
    assert pages | folders <= set(linked)
