"""Each bypass of docs/coverage.md that a pod can say, on a real node with the real kubelet."""

from __future__ import annotations

import os

import pytest

from tests.testkit.admission.server_process import Server
from tests.testkit.container_runtime.answers import (
    OWN,
    REFUSED,
    Outcome,
    data,
    not_on_a_node,
    on_a_node,
)
from tests.testkit.coverage.table import bypasses
from tests.testkit.real_node.bypasses import bypass_pods, outcomes, write
from tests.testkit.real_node.node import RealNode

WRITE = "GPUWARD_WRITE_PROOF"
PODS = bypass_pods()
EACH = pytest.mark.parametrize("name", [pod.name for pod in PODS])
NOTHING_MORE = {"none", OWN, "does not start"}


@pytest.fixture(scope="module")
def found(real_node: RealNode, server: Server) -> dict[str, Outcome]:
    """Return what each pod gets. With the variable, the answers are written into the file."""
    assert server.url, "the namespaces in mode deny have no webhook"
    answers = outcomes(real_node)
    if os.environ.get(WRITE):
        write(answers)
        on_a_node.cache_clear()
    return answers


@EACH
def test_the_recorded_answers_are_those_of_the_node(name: str, found: dict[str, Outcome]) -> None:
    """If not, `make proof` writes them anew: read the difference, and what the rules say of it."""
    assert on_a_node()[name] == found[name]


@EACH
def test_without_gpuward_a_bypass_gives_more_than_is_counted(name: str) -> None:
    """Or the data says why it is in the table nevertheless. The node has mode cdi."""
    needs_legacy = name in {"gated", "gated-beside-gpu"}
    is_harmless = on_a_node()[name].without in NOTHING_MORE
    assert is_harmless == (name in data()["harmless"] or needs_legacy)


@EACH
def test_in_mode_deny_it_is_refused_or_gives_what_is_counted_or_the_table_says_otherwise(
    name: str,
) -> None:
    (cell,) = (bypass.cell("pods") for bypass in bypasses() if bypass.name == name)
    without, deny = on_a_node()[name]
    if cell == "refused":
        assert deny == REFUSED
    elif cell == "fixed":
        assert deny in {"none", OWN}
    else:
        assert deny == without


def test_every_bypass_that_the_runtime_executes_is_a_pod_or_says_why_not() -> None:
    assert [pod.name for pod in PODS] == list(on_a_node())
    executed = {*data()["bypasses"], *data()["only_on_a_node"]}
    assert executed == {*on_a_node(), *not_on_a_node()}
