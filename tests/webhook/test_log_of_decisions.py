"""Tests of the log of decisions, and of the manual's commands that read it."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.testkit.admission.reviews import container, gpus, pod, review_body, variable
from tests.testkit.admission.server import RunningServer, Serve, serving
from tests.testkit.documented_recipes import recipe, recipes, run_recipe

PAGE = "webhook-server.md"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "trainer-7d4b9c6f5"}
PERSON = "alice@example.com"
HASH = f"sha256:{hashlib.sha256(PERSON.encode()).hexdigest()[:16]}"
CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"


@pytest_asyncio.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Starts servers."""
    async with serving(tmp_path) as start:
        yield start


def owned(*containers: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """A pod of a ReplicaSet."""
    made = pod(*containers)
    owner = {**OWNER, "controller": True}
    made["metadata"] = {"generateName": f"{OWNER['name']}-", "ownerReferences": [owner], **metadata}
    return made


BYPASS = owned(container("main", **variable("all")))


async def log_of(
    server: RunningServer, path: str, manifest: dict[str, Any], **request: Any
) -> dict[str, Any]:
    """The line about one review."""
    dry_run = request.pop("dry_run", False)
    body = review_body(manifest, **request)
    body["request"]["dryRun"] = dry_run
    caller = await server.connect()
    assert (await caller.post(path, json.dumps(body).encode())).status == 200
    return server.logged()[-1]


async def test_a_refusal_names_rule_family_container_field_and_owner(serve: Serve) -> None:
    line = await log_of(await serve(), "/validate/deny", BYPASS)
    assert line["event"] == "denied"
    assert line["reasons"] == [
        {
            "rule": "visible-devices-env",
            "family": "bypass",
            "container": "main",
            "path": "/spec/containers/0/env/0/value",
        }
    ]
    assert (line["owner_kind"], line["owner_name"]) == ("ReplicaSet", OWNER["name"])


async def test_a_fix_has_its_reasons_too(serve: Serve) -> None:
    line = await log_of(await serve(), "/mutate/deny", owned(container(**gpus(requests=1))))
    assert line["event"] == "fixed"
    assert {reason["rule"] for reason in line["reasons"]} == set(line["rules"])
    [request] = [r for r in line["reasons"] if r["rule"] == "request-only"]
    assert request["family"] == "requests"
    assert request["path"].startswith("/spec/containers/0/resources/")


async def test_an_owner_that_is_no_controller_is_not_the_owner(serve: Serve) -> None:
    lax = copy.deepcopy(BYPASS)
    lax["metadata"]["ownerReferences"] = [OWNER]
    line = await log_of(await serve(), "/validate/deny", lax)
    assert (line["owner_kind"], line["owner_name"]) == ("", "")


async def test_an_object_that_is_not_evaluated_has_the_bound_as_its_reason(serve: Serve) -> None:
    huge = pod(*(container(f"c{number}") for number in range(20_000)))
    line = await log_of(await serve(), "/validate/deny", huge)
    [reason] = line["reasons"]
    assert (reason["rule"], reason["family"]) == ("too-large", "not-evaluated")


async def test_reasons_are_bounded(serve: Serve) -> None:
    many = pod(*(container("n" * 5_000, **variable("all")) for _ in range(60)))
    key = "nvidia.cdi.k8s.io/" + "k" * 3_000
    many["metadata"]["annotations"] = {key: "nvidia.com/gpu=all"}
    line = await log_of(await serve(), "/validate/deny", many)
    assert 1 <= len(line["reasons"]) <= 20
    assert len(json.dumps(line)) < 30_000


async def test_reasons_have_no_values(serve: Serve) -> None:
    secret = "s3cr3t-canary"  # noqa: S105  # what must not be logged
    spec = owned(container("main", image=f"example.com/{secret}", **variable(secret)))
    spec["metadata"]["annotations"] = {"nvidia.cdi.k8s.io/pod": f"nvidia.com/gpu={secret}"}
    line = await log_of(await serve(), "/validate/deny", spec)
    assert line["reasons"]
    assert secret not in json.dumps(line)


@pytest.mark.parametrize(
    ("user", "shown"), [(PERSON, HASH), (CONTROLLER, CONTROLLER), ("", ""), ("\ud800", None)]
)
async def test_names_of_persons_are_hashed(serve: Serve, user: str, shown: str | None) -> None:
    line = await log_of(await serve(), "/validate/deny", BYPASS, user=user)
    assert line["user"] == shown or (shown is None and line["user"].startswith("sha256:"))


async def test_names_are_logged_if_asked_for(serve: Serve) -> None:
    server = await serve(settings={"log_user_names": True})
    line = await log_of(server, "/validate/deny", BYPASS, user=PERSON)
    assert line["user"] == PERSON


# The commands of the manual


async def log_text(server: RunningServer) -> str:
    """A log with various decisions, and with lines that are no JSON between them."""
    caller = await server.connect()
    for path, manifest, user, dry_run in (
        ("/validate/deny", BYPASS, CONTROLLER, False),
        ("/validate/deny", BYPASS, CONTROLLER, False),
        ("/validate/deny", BYPASS, CONTROLLER, True),
        ("/validate/warn", BYPASS, CONTROLLER, False),
        ("/validate/warn", pod(container(**variable("all"))), PERSON, False),
        ("/validate/warn", BYPASS, PERSON, True),
        ("/mutate/deny", owned(container(**gpus(requests=1))), CONTROLLER, False),
    ):
        body = review_body(manifest, user=user)
        body["request"]["dryRun"] = dry_run
        await caller.post(path, json.dumps(body).encode())
    lines = [json.dumps(line) for line in server.logged()]
    return "\n".join(["not a line of the log", *lines, ""])


def fields(output: str) -> list[list[str]]:
    """The lines of an output, with the count of `uniq -c` as a field."""
    counted = (line.split(None, 1) for line in output.splitlines())
    return sorted([count, *rest.split("\t")] for count, rest in counted)


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Runs the recipe that contains a text, on a log."""
    return lambda part, text: run_recipe(recipe(PAGE, part), tmp_path, text)


async def test_what_deny_would_have_refused_is_counted_by_owner(serve: Serve, run: Any) -> None:
    output = run("would-be-denied", await log_text(await serve()))
    assert fields(output) == [
        ["1", "team-vision", "Pod", "trainer", "visible-devices-env", "main"],
        ["1", "team-vision", "ReplicaSet", OWNER["name"], "visible-devices-env", "main"],
    ]


async def test_the_reasons_of_one_owner_are_listed(serve: Serve, run: Any) -> None:
    output = run(".owner_name ==", await log_text(await serve()))
    path = "/spec/containers/0/env/0/value"
    assert output == f"visible-devices-env\tbypass\tmain\t{path}\n"


async def test_refusals_are_counted_by_family(serve: Serve, run: Any) -> None:
    output = run("unique", await log_text(await serve()))
    assert output.split() == ["2", "bypass"]


async def test_a_known_user_is_found_by_the_hash(serve: Serve, run: Any) -> None:
    output = run("sha256sum", await log_text(await serve()))
    found = [line.split("\t")[1:] for line in output.splitlines()]
    assert found == [
        ["warned", "team-vision", "Pod", "trainer"],
        ["warned", "team-vision", "Pod", f"{OWNER['name']}-"],
    ]


def test_every_recipe_of_the_manual_is_tested() -> None:
    parts = ("would-be-denied", ".owner_name ==", "unique", "sha256sum")
    assert sorted(recipe(PAGE, part) for part in parts) == sorted(recipes(PAGE))
