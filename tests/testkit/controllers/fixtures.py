"""Fixtures of the tests with controllers of GPU workloads: a pytest plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from policies.loading import default_policy
from tests.testkit.admission.in_process import Exports
from tests.testkit.control_plane.build import Programs, controllers
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.controllers.controller import Controller, built
from tests.testkit.controllers.recipes import JOBSET, KUBERAY, KUEUE, LWS, TRAINER
from webhook.in_process.fixes import fix_objects
from webhook.in_process.objects import ExportOptions, policy_objects
from webhook.registration import MODE_LABEL


@pytest.fixture(scope="session")
def exports(plane: ControlPlane) -> Exports:
    """Exports to the control plane that all tests share, so that all have names of their own."""
    return Exports(plane)


@pytest.fixture(scope="session")
def controller_programs() -> Programs:
    """The programs; skips the test if they cannot be built."""
    return built(controllers)


@pytest.fixture(scope="session")
def running(
    plane: ControlPlane,
    controller_programs: Programs,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Controller]]:
    """All controllers by name. Kueue is the last: it asks at its start which kinds there are."""
    with ExitStack() as stack:
        yield {
            recipe.name: stack.enter_context(
                Controller(recipe, plane, controller_programs, tmp_path_factory.mktemp(recipe.name))
            )
            for recipe in (JOBSET, LWS, KUBERAY, TRAINER, KUEUE)
        }


@pytest.fixture(scope="module", params=["webhook", "policies"])
def new_namespace(
    request: pytest.FixtureRequest, plane: ControlPlane, exports: Exports
) -> Iterator[Callable[[], str]]:
    """Makes namespaces in mode deny: of the webhook, or of the policies that gpuward exports."""
    if request.param == "webhook":
        request.getfixturevalue("server")
        yield lambda: plane.namespace({MODE_LABEL: "deny"})
        return
    first = exports.add(default_policy(), ExportOptions(), fix_objects, policy_objects)
    yield lambda: exports.namespace_like(first)
    exports.remove(first)
