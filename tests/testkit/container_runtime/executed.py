"""The devices that containers get on a node, with answers.

The containers are those of the bypasses and claims of tests/data/executed.yaml.

    python -m tests.testkit.container_runtime.executed

asks a real container runtime and writes its answers into tests/data/executed_answers.yaml, from
which `make docs` makes the tables of docs/coverage.md and docs/proof.md. The tests ask again and
compare.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from policies.loading import load_policy
from policies.policy import Policy
from rules.engine.fixing import fix
from rules.engine.rule_set import RuleSet
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.profile.profile import Profile
from rules.workloads.discovery import find_subjects
from tests.testkit.admission.reviews import container, pod
from tests.testkit.cases import TODAY
from tests.testkit.container_runtime.answers import ANSWERS, COLUMNS, Answers, data
from tests.testkit.container_runtime.node import Container, Node, Settings
from tests.testkit.container_runtime.pods import Asked, containers
from tests.testkit.coverage.table import Bypass, bypasses, strict_policy

_HEAD = "# Written by `make proof`, from what NVIDIA's container runtime did. Do not edit.\n"
_POLICY = "apiVersion: gpuward.io/v1\nkind: Policy\nprofiles: [nvidia]\n"


@dataclass(frozen=True)
class Execution:
    """A pod whose containers are started, on nodes with one kind of settings."""

    name: str
    says: str
    manifest: dict[str, Any]
    entry: Mapping[str, Any]
    bypass: Bypass | None = None

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of NVIDIA's container toolkit that are not its defaults."""
        found: Mapping[str, Any] = data()["nodes"][self.entry.get("node", "default")]
        return found

    @property
    def asked(self) -> Asked:
        """The container that the bypass or claim is about."""
        return self._container(self.manifest)

    @property
    def fixed(self) -> Asked | None:
        """Return the container in the pod that gpuward has fixed; None if it does not fix it.

        gpuward fixes in mode `deny`.
        """
        rules = self._rules()
        if rules is None:
            return None
        assert self.bypass is not None
        user = self.bypass.user or "jane"
        context = Context(today=TODAY, namespace="ml", user=user, operation="CREATE")
        return self._container(fix(self.manifest, rules, context).manifest)

    def _rules(self) -> RuleSet | None:
        if self.bypass and self.bypass.cell("pods") == "fixed":
            return _rules(_POLICY)
        if self.bypass and self.bypass.cell("strict") == "fixed":
            return _rules(f"{_POLICY}{strict_policy()}")
        return None

    def _container(self, manifest: Any) -> Asked:
        wanted = self.entry.get("container", "main")
        image, config = self.entry.get("image", {}), self.entry.get("config", {})
        for view in pods(manifest, _policy(_POLICY).profile):
            for asked in containers(view, image, config):
                if asked.view.raw["name"] == wanted:
                    made = asked.container
                    annotations = tuple(self.entry.get("annotations", {}).items())
                    return asked._replace(container=made._replace(annotations=annotations))
        raise AssertionError(f"{self.name} has no container {wanted}")

    def answers(self, node: Node) -> Answers:
        """Return what the container gets on `node`, before and after the fix."""
        fixed = self.fixed
        after = self._ask(node, fixed.container) if fixed else ()
        return Answers(self._ask(node, self.asked.container), after)

    def _ask(self, node: Node, asked: Container) -> tuple[str, ...]:
        return tuple(
            str(node.ask(asked, Settings(version, mode, **self.settings)))
            for version, mode in COLUMNS
        )


def pods(manifest: Any, profile: Profile) -> Iterator[Pod]:
    """Yield the pods of a manifest."""
    return (view for view in find_subjects(manifest, profile) if isinstance(view, Pod))


def executions() -> list[Execution]:
    """The bypasses that are executed, and the claims, in the order of their files."""
    executed = data()["bypasses"]
    of_bypasses = [
        Execution(b.name, b.entry["description"], _pod(b.pod), executed[b.name], b)
        for b in bypasses()
        if b.name in executed
    ]
    claims = [
        Execution(entry["name"], entry["says"], _pod(_claimed(entry)), entry)
        for entry in data()["claims"]
    ]
    return [*of_bypasses, *claims]


def _claimed(entry: Mapping[str, Any]) -> dict[str, Any]:
    return pod(container(**entry.get("pod", {}).get("container", {})), **_spec(entry))


def _spec(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    spec: Mapping[str, Any] = entry.get("pod", {}).get("spec", {})
    return spec


def _pod(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", **manifest}


@cache
def _policy(text: str) -> Policy:
    return load_policy(text, "the policy of the tests")


@cache
def _rules(text: str) -> RuleSet:
    return _policy(text).rule_set()


def write(ask: Callable[[Execution], Answers]) -> None:
    """Write the answers of all executions."""
    content = {}
    for execution in executions():
        answers = ask(execution)
        content[execution.name] = {"before": list(answers.before)}
        if answers.after:
            content[execution.name]["after"] = list(answers.after)
    text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=100)
    ANSWERS.write_text(f"{_HEAD}{text}", encoding="utf-8")


def main() -> int:
    """Run from the command line; see the module's docstring."""
    with tempfile.TemporaryDirectory() as folder:
        node = Node(Path(folder))
        try:
            write(lambda execution: execution.answers(node))
        finally:
            node.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
