"""The access of two users, a proxy and no user; a real API server knows their rights."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from aiohttp.test_utils import TestClient, TestServer

from cluster.api.connection import Connection
from cluster.api.reviews import Identity, KubernetesReviewer
from cluster.source.api_server import ApiServerSource
from console.access import (
    AUDIENCE,
    MAX_NAMESPACES,
    PROXY_GROUPS_HEADER,
    PROXY_SECRET_HEADER,
    PROXY_USER_HEADER,
    SESSION_COOKIE,
    Access,
    Credentials,
    SecretError,
    read_secret,
)
from console.cli import main
from console.pages.gpus import OTHERS
from console.server import Console
from console.state import ClusterState, state_of
from console.view import View
from policies.loading import default_policy
from tests.testkit.chart.permissions import RBAC
from tests.testkit.chart.rendering import find_one, render
from tests.testkit.cluster_commands.gpu_objects import node as listed_node
from tests.testkit.cluster_commands.gpu_objects import pod as gpu_pod
from tests.testkit.console.server import live_state
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.objects import gpu_node, service_account
from tests.testkit.control_plane.processes import eventually, free_port
from tests.testkit.control_plane.rights import await_rights
from tests.testkit.paths import ROOT

JSON = {"Accept": "application/json"}
RESOURCE = "nvidia.com/mig-3g.71gb"  # which no other test asks for
NODE = "console-access"
SECRET = "0123456789abcdef" * 4
RULE = "visible-devices-env"


class World(NamedTuple):
    """A cluster with the namespaces of two teams, and users of whom one sees the first alone.

    `kubeconfig` is that of an account with the rights that the chart gives to the console.
    """

    plane: Cluster
    kubeconfig: Path
    state: ClusterState
    home: str
    other: str

    def token(self, name: str, audience: str = AUDIENCE) -> str:
        path = f"/api/v1/namespaces/{self.home}/serviceaccounts/{name}/token"
        spec = {"audiences": [audience] if audience else None, "expirationSeconds": 3600}
        kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        return str(self.plane.create(path, {**kind, "spec": spec})["status"]["token"])

    def access(self, **options: Any) -> Access:
        connection = Connection.in_cluster(str(self.kubeconfig))
        return Access(KubernetesReviewer(connection), **options)

    def client(self, access: Access | None = None) -> TestClient[Any, Any]:
        console = Console(self.state, None, access or self.access())
        return TestClient(TestServer(console.application()))

    def marks(self, namespace: str) -> list[str]:
        """The addresses of the findings in a namespace."""
        from reports.entries import fingerprints  # noqa: PLC0415

        found = self.state.audit().result.results.findings
        pairs = zip(fingerprints(found), found, strict=True)
        return [mark for mark, one in pairs if str(one.finding.object).find(namespace) >= 0]


def bind(plane: Cluster, name: str, role: str, subject: dict[str, str], home: str = "") -> None:
    kind = "RoleBinding" if home else "ClusterRoleBinding"
    path = f"{RBAC}/namespaces/{home}/rolebindings" if home else f"{RBAC}/clusterrolebindings"
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    plane.create(
        path,
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "roleRef": reference,
            "subjects": [subject],
        },
    )


def create_pods(plane: Cluster, namespace: str, prefix: str) -> None:
    """A pod on the node and one that waits, both of an owner and with a fault."""
    core = f"/api/v1/namespaces/{namespace}"
    owner = plane.create(f"{core}/configmaps", {"metadata": {"name": f"{prefix}-owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "controller": True}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    container = {
        "name": f"{prefix}-container",
        "image": "example.com/app:1",
        "resources": {"limits": {RESOURCE: "1"}},
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
    }
    for name, node in ((f"{prefix}-runs", NODE), (f"{prefix}-waits", "")):
        spec: dict[str, Any] = {"containers": [container], "nodeSelector": {"no": "such-node"}}
        if node:
            spec |= {"nodeName": node, "nodeSelector": {}}
            spec["tolerations"] = [{"operator": "Exists"}]
        plane.create(
            f"{core}/pods",
            {"metadata": {"name": name, "ownerReferences": [reference]}, "spec": spec},
        )


@pytest.fixture(scope="module")
def world(api_server: Cluster) -> Iterator[World]:
    plane = api_server
    plane.create("/api/v1/nodes", gpu_node(NODE, RESOURCE, 8, {}, taint=True))
    home, other = plane.namespace(), plane.namespace()
    role = find_one(render("console: {enabled: true}"), "ClusterRole", "gpuward-console")
    roles = f"{RBAC}/clusterroles"
    plane.create(roles, {**role, "metadata": {"name": "console-test"}})
    for name in ("console", "member", "admin", "stranger"):
        account = service_account(name)
        plane.create(f"/api/v1/namespaces/{home}/serviceaccounts", account)
    accounts = {
        name: {"kind": "ServiceAccount", "name": name, "namespace": home}
        for name in ("console", "member", "admin")
    }
    bind(plane, "console-test", "console-test", accounts["console"])
    bind(plane, "console-test-admin", "view", accounts["admin"])
    bind(plane, "member", "view", accounts["member"], home)
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "team-a"}
    bind(plane, "team", "view", group, home)
    await_rights(plane)
    create_pods(plane, home, "own")
    create_pods(plane, other, "hidden")
    kubeconfig = plane.kubeconfig_for(plane.token("console", home))
    source = ApiServerSource(Connection.in_cluster(str(kubeconfig)))
    try:
        eventually(
            lambda: all(
                plane.request("GET", f"/api/v1/namespaces/{ns}/pods/{name}").status == HTTPStatus.OK
                for ns, name in ((home, "own-waits"), (other, "hidden-waits"))
            )
        )
        yield World(plane, kubeconfig, state_of("test", source, default_policy(), ""), home, other)
    finally:
        plane.request("DELETE", f"/api/v1/nodes/{NODE}")
        plane.request("DELETE", f"{roles}/console-test")
        for name in ("console-test", "console-test-admin"):
            plane.request("DELETE", f"{RBAC}/clusterrolebindings/{name}")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def leaked(world: World, text: str) -> list[str]:
    """Return what a text says of the namespace that not every user sees."""
    return [word for word in (world.other, "hidden-") if word in text]


async def test_without_a_token_nothing_is_shown(world: World) -> None:
    async with world.client() as client:
        for path in ("/", "/findings", "/rules", f"/nodes/{NODE}", "/events", "/no-such-page"):
            answer = await client.get(path)
            text = await answer.text()
            assert answer.status == 401, path
            assert "<h1>Sign in</h1>" in text
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            assert RESOURCE not in text
            assert "own-" not in text
            as_json = await client.get(path, headers=JSON)
            assert await as_json.json() == {"error": "sign in, or send a bearer token"}
        form = {"manifest": "a: 1"}
        assert (await client.post("/playground", data=form)).status == 401
        for path in ("/healthz", "/readyz", "/static/console.css", "/sign-in"):
            assert (await client.get(path)).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        bearer("garbage"),
        bearer(""),
        bearer("x" * 8_000),
        {"Authorization": "Basic YTpi"},
        {"Cookie": f"{SESSION_COOKIE}=garbage"},
        {PROXY_USER_HEADER: "alice", PROXY_GROUPS_HEADER: "team-a"},
        {PROXY_SECRET_HEADER: "", PROXY_USER_HEADER: "alice"},
        {PROXY_SECRET_HEADER: SECRET, PROXY_USER_HEADER: "alice"},
        {"Impersonate-User": "system:admin"},
    ],
    ids=str,
)
async def test_what_proves_nothing_is_refused(world: World, headers: dict[str, str]) -> None:
    async with world.client() as client:
        answer = await client.get("/", headers={**headers, **JSON})
        assert answer.status == 401
        assert set(await answer.json()) == {"error"}


async def test_a_user_sees_the_own_namespace_and_totals_of_others(world: World) -> None:
    headers = bearer(world.token("member"))
    async with world.client() as client:
        one = await (await client.get("/", headers={**headers, **JSON})).json()
        admin = bearer(world.token("admin"))
        everything = await (await client.get("/", headers={**admin, **JSON})).json()
        assert one["totals"] == everything["totals"]
        assert one["nodes"] == everything["nodes"]
        seen = {(each["namespace"], each["name"]) for each in one["consumers"]}
        assert {(world.home, "own-runs"), (world.home, "own-waits")} <= seen
        assert {namespace for namespace, _ in seen} == {world.home, "(other namespaces)"}
        assert (world.other, "hidden-runs") in {
            (each["namespace"], each["name"]) for each in everything["consumers"]
        }
        page = await (await client.get(f"/nodes/{NODE}", headers=headers)).text()
        assert "own-runs" in page
        assert "(other namespaces)" in page
        found = await (await client.get(f"/findings?rule={RULE}", headers=headers)).text()
        assert "own-container" in found
        why = await client.get(f"/pods/{world.home}/own-waits", headers={**headers, **JSON})
        assert (await why.json())["answer"] == "cannot"


async def test_no_page_names_what_is_in_a_namespace_of_others(world: World) -> None:
    marks = world.marks(world.other)
    assert marks
    paths = [
        "/",
        f"/?node={NODE}",
        "/?namespace=(other%20namespaces)",
        f"/nodes/{NODE}",
        "/findings?level=note",
        "/findings?as=deny&level=note",
        "/owners?level=note",
        "/owners?as=deny&level=note&format=csv",
        "/decisions",
        "/rules",
        f"/rules/{RULE}",
        "/playground",
        *(f"/findings/{mark}" for mark in marks),
    ]
    headers = bearer(world.token("member"))
    admin = bearer(world.token("admin"))
    async with world.client() as client:
        for path in paths:
            for kind in ({}, JSON):
                answer = await client.get(path, headers={**headers, **kind})
                assert leaked(world, await answer.text()) == [], path
                assert answer.status == (404 if path.startswith("/findings/") else 200)
        for path in ("/", "/findings?level=note", f"/nodes/{NODE}", f"/findings/{marks[0]}"):
            assert leaked(world, await (await client.get(path, headers=admin)).text()), path


async def test_a_pod_of_others_is_as_one_that_is_not_there(world: World) -> None:
    headers = {**bearer(world.token("member")), **JSON}
    async with world.client() as client:
        answers = []
        for name in ("hidden-waits", "absent-waits"):
            answer = await client.get(f"/pods/{world.other}/{name}", headers=headers)
            assert answer.status == 404
            answers.append((await answer.text()).replace(name, ""))
        assert answers[0] == answers[1]
        admin = {**bearer(world.token("admin")), **JSON}
        there = await client.get(f"/pods/{world.other}/hidden-waits", headers=admin)
        assert there.status == 200


async def test_where_a_pod_would_run_is_said_of_the_own_namespace_alone(world: World) -> None:
    """The answer says what quotas the namespace has."""
    quota = {"metadata": {"name": "hidden-quota"}, "spec": {"hard": {f"requests.{RESOURCE}": "0"}}}
    world.plane.create(f"/api/v1/namespaces/{world.other}/resourcequotas", quota)
    manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: new}\n"
    manifest += "spec: {tolerations: [{operator: Exists}], containers: "
    manifest += f"[{{name: a, image: i, resources: {{limits: {{{RESOURCE}: 1}}}}}}]}}"
    headers = {**bearer(world.token("member")), **JSON}
    admin = {**bearer(world.token("admin")), **JSON}
    async with world.client() as client:

        async def verdicts(namespace: str, headers: dict[str, str]) -> list[str]:
            form = {"manifest": manifest, "namespace": namespace}
            answer = await client.post("/playground", data=form, headers=headers)
            return [one["verdict"] for one in (await answer.json())["placements"]]

        (own,) = await verdicts(world.home, headers)
        assert f"1 node can take it: {NODE}" in own
        assert await verdicts(world.other, headers) == []
        (seen,) = await verdicts(world.other, admin)
        assert "hidden-quota" in seen


async def test_who_may_list_pods_nowhere_sees_totals_alone(world: World) -> None:
    headers = bearer(world.token("stranger"))
    async with world.client() as client:
        document = await (await client.get("/", headers={**headers, **JSON})).json()
        assert {each["namespace"] for each in document["consumers"]} == {"(other namespaces)"}
        for path in ("/", "/findings?level=note", f"/nodes/{NODE}"):
            text = await (await client.get(path, headers=headers)).text()
            assert leaked(world, text) == []
            assert "own-" not in text


async def test_a_token_for_another_program_is_refused(world: World) -> None:
    async with world.client() as client:
        for audience, status in ((AUDIENCE, 200), ("", 200), ("another-program", 401)):
            headers = bearer(world.token("member", audience))
            assert (await client.get("/", headers=headers)).status == status, audience


async def test_a_browser_signs_in_and_out_and_its_cookie_is_no_token(world: World) -> None:
    token = world.token("member")
    async with world.client() as client:
        form = {"token": f" {token}\n", "where": "/findings?level=note"}
        signed = await client.post("/sign-in", data=form, allow_redirects=False)
        assert (signed.status, signed.headers["Location"]) == (303, "/findings?level=note")
        cookie = signed.headers["Set-Cookie"]
        assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= {*cookie.split("; ")}
        assert token not in cookie
        page = await (await client.get("/")).text()
        assert "own-waits" in page
        assert "serviceaccount:" in page
        assert leaked(world, page) == []
        secret = {"Cookie": cookie.split(";")[0]}
        left = await client.post("/sign-out", allow_redirects=False)
        assert left.headers["Location"] == "/sign-in"
        assert (await client.get("/", headers=secret)).status == 401


async def test_the_cookie_is_sent_without_encryption_to_loopback_names_alone(world: World) -> None:
    form = {"token": world.token("member")}
    async with world.client() as client:
        for host, secure in (("localhost:8088", False), ("gpus.example.com", True)):
            headers = {"Host": host}
            signed = await client.post(
                "/sign-in", data=form, headers=headers, allow_redirects=False
            )
            assert ("Secure" in signed.headers["Set-Cookie"]) is secure


async def test_signing_in_leads_nowhere_else_and_not_from_elsewhere(world: World) -> None:
    token = world.token("member")
    async with world.client() as client:
        for where in ("//evil.example", "https://evil.example", "/\\evil.example", "", "/\r\nX: y"):
            form = {"token": token, "where": where}
            signed = await client.post("/sign-in", data=form, allow_redirects=False)
            assert signed.headers["Location"] == "/", where
        origin = {"Origin": "http://evil.example"}
        for path in ("/sign-in", "/sign-out"):
            answer = await client.post(path, data={"token": token}, headers=origin)
            assert answer.status == 403
        refused = await client.post("/sign-in", data={"token": "garbage", "where": "/rules"})
        text = await refused.text()
        assert refused.status == 401
        assert "The API server does not accept this token" in text
        assert "garbage" not in text


async def test_a_proxy_says_who_asks_if_it_shows_the_secret(world: World) -> None:
    access = world.access(proxy_secret=SECRET.encode)
    proxy = {PROXY_SECRET_HEADER: SECRET, PROXY_USER_HEADER: "alice", **JSON}

    async def namespaces(client: TestClient[Any, Any], headers: dict[str, str]) -> set[str]:
        answer = await client.get("/", headers=headers)
        assert answer.status == 200, await answer.text()
        return {each["namespace"] for each in (await answer.json())["consumers"]}

    others = "(other namespaces)"
    async with world.client(access) as client:
        assert await namespaces(client, proxy) == {others}
        of_team = {**proxy, PROXY_GROUPS_HEADER: "dev, team-a"}
        assert await namespaces(client, of_team) == {world.home, others}
        # No identity provider makes a user a part of Kubernetes.
        masters = {**proxy, PROXY_GROUPS_HEADER: "system:masters"}
        assert await namespaces(client, masters) == {others}
        for wrong in (
            {**proxy, PROXY_USER_HEADER: "system:admin"},
            {**proxy, PROXY_USER_HEADER: ""},
            {**proxy, PROXY_SECRET_HEADER: SECRET[:-1]},
            {**proxy, PROXY_SECRET_HEADER: "é"},
            {PROXY_USER_HEADER: "alice", PROXY_GROUPS_HEADER: "team-a", **JSON},
        ):
            assert (await client.get("/", headers=wrong)).status == 401, wrong
        twice = [*proxy.items(), (PROXY_USER_HEADER, "bob")]
        assert (await client.get("/", headers=twice)).status == 401


async def test_a_right_that_is_taken_away_ends_within_a_minute(world: World) -> None:
    now = [0.0]
    access = world.access(monotonic=lambda: now[0])
    home = world.plane.namespace()
    account = {"kind": "ServiceAccount", "name": "stranger", "namespace": world.home}
    bind(world.plane, "briefly", "view", account, home)
    token = world.token("stranger")

    def seen(asked: Access) -> frozenset[str]:
        return asked.viewer(Credentials(authorization=[f"Bearer {token}"])).visible({home})

    eventually(lambda: seen(world.access()) == {home})
    assert seen(access) == {home}
    path = f"{RBAC}/namespaces/{home}/rolebindings/briefly"
    assert world.plane.request("DELETE", path).status == HTTPStatus.OK
    eventually(lambda: not seen(world.access()))
    assert seen(access) == {home}
    now[0] += 61
    assert seen(access) == frozenset()


class EveryNamespace:
    """Stands for an API server, which would have to have thousands of namespaces."""

    def identity(self, _token: str, _audience: str) -> Identity | None:
        return Identity("alice")

    def may_list_pods(self, _identity: Identity, namespace: str) -> bool:
        return bool(namespace)


def test_namespaces_with_gpus_are_asked_about_before_those_without() -> None:
    """Pods without a GPU are in as many namespaces as there are, as those of agents."""
    without = [
        gpu_pod("agent", {"cpu": "1"}, on="a", namespace=f"a-{number:04}")
        for number in range(MAX_NAMESPACES)
    ]
    train = gpu_pod("train", {"nvidia.com/gpu": "1"}, on="a", namespace="z")
    state = live_state([listed_node("a", {"nvidia.com/gpu": "8"}), *without, train])
    viewer = Access(EveryNamespace()).viewer(Credentials(authorization=["Bearer token"]))
    usage, remarks = View(state, viewer).usage()
    assert [consumer.name for consumer in usage.consumers] == ["train"]
    assert [pod.pods for pod in usage.without_gpu if pod.namespace == OTHERS] == [1]
    assert any("by name, those with GPUs before those without" in each for each in remarks)


async def test_it_is_said_where_not_all_namespaces_are_asked_about() -> None:
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "a", "namespace": f"team-{number:04}"},
            "spec": {"containers": [{"name": "a", "resources": resources}]},
        }
        for number in range(MAX_NAMESPACES + 1)
    ]
    application = Console(live_state(pods), None, Access(EveryNamespace())).application()
    async with TestClient(TestServer(application)) as client:
        answer = await client.get("/", headers=bearer("token"))
        text = await answer.text()
        assert "the API server is asked about the first 2,000 by name" in text
        document = await (await client.get("/", headers={**bearer("token"), **JSON})).json()
        names = {each["namespace"] for each in document["consumers"]}
        assert len(names) == MAX_NAMESPACES + 1
        assert "(other namespaces)" in names


def test_the_program_asks_for_a_token_on_every_address(world: World) -> None:
    port = free_port()
    options = ["--kubeconfig", str(world.kubeconfig), "--port", str(port), "--isolated"]
    options += ["--authenticate", "--listen", "*"]
    command = [sys.executable, "-m", "gpuward", "console", *options]
    address = f"http://127.0.0.1:{port}"

    def status(path: str, headers: dict[str, str] | None = None) -> int:
        request = Request(address + path, headers=headers or {})  # noqa: S310  # our own
        try:
            with urlopen(request, timeout=30) as answer:  # noqa: S310  # the same
                return int(answer.status)
        except HTTPError as error:
            return error.code
        except (URLError, ConnectionError):
            return 0

    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            eventually(lambda: status("/readyz") == HTTPStatus.OK)
            assert status("/") == HTTPStatus.UNAUTHORIZED
            assert status("/", bearer(world.token("member"))) == HTTPStatus.OK
        finally:
            process.terminate()
            _, errors = process.communicate(timeout=30)
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--listen", "0.0.0.0"], "everybody who reaches it would see all"),  # noqa: S104
        (["--listen", "*"], "add --authenticate"),
        (["--listen", "::"], "add --authenticate"),
        (["--demo", "--listen", "192.0.2.1"], "add --authenticate"),
        (["--listen", "example.com"], "expected an IP address"),
        (["--demo", "--authenticate"], "leave --demo, --from and --export out"),
        (["--proxy-secret", "file"], "--proxy-secret is for --authenticate"),
    ],
)
def test_what_would_show_the_cluster_to_everybody_is_refused_at_start(
    options: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(options)
    assert ended.value.code == 2
    assert expected in capsys.readouterr().err


def test_a_secret_that_is_weak_or_missing_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    with pytest.raises(SecretError, match="no such file"):
        read_secret(str(file))
    for content in (b"", b"short", b" " * 100, b"x" * 5_000):
        file.write_bytes(content)
        with pytest.raises(SecretError, match="openssl rand -hex 32"):
            read_secret(str(file))
    file.write_text(f"{SECRET}\n", encoding="utf-8")
    assert read_secret(str(file)) == SECRET.encode()
