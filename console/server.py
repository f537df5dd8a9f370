"""The server: addresses, answers as HTML or JSON, and what browsers may do with them."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from aiohttp import web

from cluster.api.errors import ClusterError
from cluster.doctor.rows import State
from cluster.doctor.rows import to_document as rows_document
from cluster.gpus.document import to_document
from cluster.source.objects import SourceError
from cluster.webhooks.decision_log import OUTCOMES
from cluster.why.explanation import Explanation
from cluster.why.explanation import to_document as explained_document
from console.access import (
    AUDIENCE,
    MAX_TOKEN_CHARACTERS,
    PROXY_GROUPS_HEADER,
    PROXY_SECRET_HEADER,
    PROXY_USER_HEADER,
    SESSION_COOKIE,
    Access,
    AccessError,
    Credentials,
    Everybody,
)
from console.pages import decisions, findings, gpus, owner_lists, playground, rules
from console.pages.gpus import (
    STATES,
    Filter,
    GpusPage,
    filtered,
    gpus_page,
    idle_holders,
)
from console.pages.nodes import nodes_in, rows_about
from console.pictures import chart
from console.playground_menu import playground_examples
from console.rendering import FOLDER, Templates
from console.state import ClusterState, Examination
from console.utilisation import Utilisation
from console.view import MAX_SEARCHED_NODES, View
from reports.explain import explanation
from reports.findings import RULE_BY_NAME
from reports.formats import rule_page_url as manual_page

NAVIGATION = (
    ("/", "GPUs"),
    ("/findings", "Findings"),
    ("/decisions", "Decisions"),
    ("/doctor", "Doctor"),
    ("/playground", "Playground"),
    ("/rules", "Rules"),
)
MAX_BYTES = 1 << 20  # of a request
_SECONDS = 20  # for one answer
_STILL_BUSY = f"no answer within {_SECONDS} seconds: it is still being worked out, so try again"
_MAX_PAGES = 10_000
_MAX_STREAMS = 200
_EVENT_SECONDS = 1.0  # at least between two events of a stream
_BEAT_SECONDS = 20.0  # after which a stream says that it is still there
_EXPLAINED_NODES = 200
_MAX_MAKERS = 5  # nodes on which pods could make room
_STATE_ORDER = (State.WRONG, State.NOT_KNOWN, State.OK)
_EVALUATIONS = 2  # of the playground at once
_SIGN_INS = 4  # at once, of which each may ask the API server
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_OPEN_PATHS = frozenset({"/healthz", "/readyz", "/sign-in", "/sign-out"})
LEVELS = ("error", "warning", "note")
_CONTENT_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
    "Vary": "Accept, Authorization, Cookie",
}
_ENDINGS = {"text": "txt", "markdown": "md", "csv": "csv"}
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

_log = logging.getLogger("gpuward.console")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Page = Callable[[web.Request, View], "Answer"]
_VIEW = web.RequestKey("view", View)


class Answer(NamedTuple):
    """The answer of a page: `document` as JSON, or the template with its `values` as HTML."""

    document: Callable[[], Any]
    template: str
    values: Mapping[str, Any]
    status: int = 200


class Console:
    """The pages about one cluster.

    - `hosts` are the names by which browsers may call the server; None: any, which is safe only
      with `access`.
    - `access` says who asks, and what they may see; None: every client sees all.
    """

    def __init__(
        self, state: ClusterState, hosts: frozenset[str] | None, access: Access | None = None
    ) -> None:
        self._state = state
        self._hosts, self._access = hosts, access
        self._sign_ins = asyncio.Semaphore(_SIGN_INS)
        self._templates = Templates()
        self._change = asyncio.Event()
        self._streams = 0
        self._evaluations = asyncio.Semaphore(_EVALUATIONS)

    @property
    def title(self) -> str:
        """Return the name of the cluster on the pages."""
        return self._state.title

    def application(self) -> web.Application:
        """The application for aiohttp."""
        made = web.Application(middlewares=[self._protect], client_max_size=MAX_BYTES)
        made.on_response_prepare.append(_add_headers)
        made.on_startup.append(self._follow_changes)
        made.router.add_get("/", self._page(self._gpus))
        made.router.add_get("/nodes/{node}", self._page(self._node))
        made.router.add_get("/pods/{namespace}/{pod}", self._page(self._pod))
        made.router.add_get("/findings", self._page(self._findings))
        made.router.add_get("/findings/{mark}", self._page(self._finding))
        made.router.add_get("/owners", self._owners)
        made.router.add_get("/doctor", self._page(self._doctor))
        made.router.add_get("/decisions", self._page(self._decisions))
        made.router.add_get("/rules", self._page(self._rules))
        made.router.add_get("/rules/{rule}", self._page(self._rule))
        made.router.add_get("/playground", self._open_playground)
        made.router.add_post("/playground", self._check_manifest)
        made.router.add_get("/static/{name}", _static)
        made.router.add_get("/events", self._events)
        made.router.add_get("/healthz", _healthy)
        made.router.add_get("/readyz", self._ready)
        if self._access:
            made.router.add_get("/sign-in", self._empty_sign_in)
            made.router.add_post("/sign-in", partial(self._sign_in, self._access))
            made.router.add_post("/sign-out", self._sign_out)
        return made

    async def _follow_changes(self, _application: web.Application) -> None:
        """Have the state wake the streams, from whichever thread changes it."""
        loop = asyncio.get_running_loop()
        self._state.on_change = lambda: loop.call_soon_threadsafe(self._change.set)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events: the version of the state, whenever it has changed."""
        if self._streams >= _MAX_STREAMS:
            raise web.HTTPServiceUnavailable(text="too many pages are open")
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        self._streams += 1
        try:
            sent = -1
            while True:
                version = self._state.version
                line = ": nothing new" if version == sent else f"data: {version}"
                await stream.write(f"{line}\n\n".encode())
                sent = version
                await asyncio.sleep(_EVENT_SECONDS)
                if self._state.version == sent:
                    self._change.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_BEAT_SECONDS):
                            await self._change.wait()
        except (ConnectionResetError, asyncio.CancelledError):
            return stream
        finally:
            self._streams -= 1

    @web.middleware
    async def _protect(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer only to own names, and tell browsers what the pages may do.

        Without the check of the name, any site could have a name of its own lead to this address,
        and read the pages by its scripts.
        """
        try:
            self._refuse_other_names(request)
            request[_VIEW] = await self._view_of(request)
            async with asyncio.timeout(None if request.path == "/events" else _SECONDS):
                answer = await handler(request)
        except AccessError as error:
            answer = self._unknown_viewer(request, str(error))
        except web.HTTPException as error:
            answer = error if error.status < 400 else self._error(request, error.status, error.text)  # noqa: PLR2004  # redirects
        except TimeoutError:
            answer = self._error(request, 503, _STILL_BUSY)
        except (SourceError, ClusterError) as error:
            answer = self._error(request, 503, str(error))
        except Exception as error:  # noqa: BLE001  # a bug in one page must not hide the others
            _log.exception("%s failed", request.path)
            why = f"gpuward itself failed here, please report it: {type(error).__name__}"
            answer = self._error(request, 500, why)
        return answer

    def _refuse_other_names(self, request: web.Request) -> None:
        if self._hosts is not None and _host(request) not in self._hosts:
            raise web.HTTPMisdirectedRequest(text="this name is not that of the console")

    async def _view_of(self, request: web.Request) -> View:
        """Return the view of the user who asks. Raises AccessError, and ClusterError.

        Nothing of the cluster is on the paths that are open to all.
        """
        if self._access is None:
            return View(self._state, Everybody())
        if request.path in _OPEN_PATHS or request.path.startswith("/static/"):
            return View(self._state, Nobody())
        async with asyncio.timeout(_SECONDS), self._sign_ins:
            viewer = await asyncio.to_thread(self._access.viewer, _credentials(request))
        return View(self._state, viewer)

    def _unknown_viewer(self, request: web.Request, why: str) -> web.StreamResponse:
        """Say to programs what is missing, and to people where to sign in."""
        where = request.path_qs if request.method == "GET" else "/"
        answer = self._sign_in_page(where, why)
        response = self._written(lambda _request, _view: answer, request)
        response.headers["WWW-Authenticate"] = 'Bearer realm="gpuward console"'
        return response

    def _sign_in_page(self, where: str, why: str = "") -> Answer:
        values = {
            "heading": "Sign in",
            "why": why,
            "where": _own_path(where),
            "audience": AUDIENCE,
            "most": MAX_TOKEN_CHARACTERS,
        }
        return Answer(lambda: {"error": why}, "sign_in.html", values, 401 if why else 200)

    async def _empty_sign_in(self, request: web.Request) -> web.StreamResponse:
        answer = self._sign_in_page("/")
        return self._written(lambda _request, _view: answer, request)

    async def _sign_in(self, access: Access, request: web.Request) -> web.StreamResponse:
        """Begin a session with a token, which stays on the server."""
        _refuse_other_sites(request)
        given = await request.post()
        token, where = (str(given.get(name, "")) for name in ("token", "where"))
        try:
            async with self._sign_ins:
                secret = await asyncio.to_thread(access.sign_in, token)
        except AccessError as error:
            answer = self._sign_in_page(where, str(error))
            return self._written(lambda _request, _view: answer, request)
        response = _redirect(_own_path(where))
        # The cookie ends with the browser. It comes with a link that a colleague has sent, and not
        # with a form of another site. Loopback addresses have no TLS.
        response.set_cookie(
            SESSION_COOKIE,
            secret,
            httponly=True,
            samesite="Lax",
            secure=_host(request) not in LOOPBACK_NAMES,
        )
        return response

    async def _sign_out(self, request: web.Request) -> web.StreamResponse:
        _refuse_other_sites(request)
        if self._access:
            self._access.sign_out(request.cookies.get(SESSION_COOKIE, ""))
        response = _redirect("/sign-in")
        response.del_cookie(SESSION_COOKIE)
        return response

    async def _ready(self, _request: web.Request) -> web.StreamResponse:
        """Return whether the nodes and pods are known, so that pages say something."""
        self._state.usage()
        return web.Response(text="ok\n")

    def _page(self, make: Page) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            return await asyncio.to_thread(self._written, make, request)

        return handle

    def _written(self, make: Page, request: web.Request) -> web.Response:
        version = self._state.version  # of the state that the answer is at least about
        view = request.get(_VIEW) or View(self._state, Nobody())
        answer = make(request, view)
        if wants_json(request.headers.get("Accept", "")):
            body = json.dumps(answer.document(), indent=2) + "\n"
            return web.Response(text=body, content_type="application/json", status=answer.status)
        return self._html(answer, version, view)

    def _html(self, answer: Answer, version: int, view: View) -> web.Response:
        common = {
            "state": self._state,
            "viewer": view.name,
            "is_open": self._access is not None and not view.name,
            "state_version": version,
            "navigation": NAVIGATION,
            "current": "",
        }
        body = self._templates.render(answer.template, {**common, **answer.values})
        response = web.Response(text=body, content_type="text/html", status=answer.status)
        response.enable_compression()
        return response

    def _error(self, request: web.Request, status: int, why: str | None) -> web.StreamResponse:
        message = why or ""
        values = {"heading": f"Error {status}", "message": message}
        answer = Answer(lambda: {"error": message}, "error.html", values, status)
        return self._written(lambda _request, _view: answer, request)

    def _gpus(self, request: web.Request, view: View) -> Answer:
        wanted = filter_of(request.query)
        usage, missing = view.usage()
        try:
            teams = view.teams()
        except SourceError as error:
            teams, missing = None, (*missing, str(error))
        page = gpus_page(usage, wanted, teams)
        busy = view.utilisation(usage)
        values = {
            "heading": "GPUs",
            "current": "/",
            "page": page,
            "filter": wanted,
            "states": STATES,
            "missing": missing,
            "reasons": _reasons(view, page),
            **self._faults(view),
            "busy": busy,
            "idle": idle_holders(usage, wanted, teams, page.resource, busy) if busy else (),
        }
        shown = filtered(usage, wanted, teams or {})

        def document() -> Any:
            found = gpus.as_document(shown, teams)
            return found if busy is None else {**found, "utilisation": _busy_document(busy)}

        return Answer(document, "gpus.html", values)

    def _faults(self, view: View) -> dict[str, Any]:
        """Return how many things doctor finds wrong, and when it has found them.

        Of a cluster it is what the last examination found, as the next one may take a while.
        """
        is_live = self._state.is_live
        examined = view.known_doctor() if is_live else view.doctor()
        wrong = sum(row.state is State.WRONG for row in examined.rows) if examined else 0
        return {"faults": wrong, "faults_found": _time(examined) if is_live else ""}

    def _pod(self, request: web.Request, view: View) -> Answer:
        namespace, name = request.match_info["namespace"], request.match_info["pod"]
        found = view.why(namespace, name)
        if found is None:
            raise web.HTTPNotFound(text=f"there is no pod {namespace}/{name}")
        makers = view.room_makers(found)
        values = {
            "heading": name,
            "why": found,
            "makers": makers,
            "most_makers": _MAX_MAKERS,
            "searched": MAX_SEARCHED_NODES,
        }

        def document() -> Any:
            said = [
                {"node": one.node, "pods": [f"{pod.namespace}/{pod.name}" for pod in one.pods]}
                for one in makers or ()
            ]
            return {**explained_document(found), "roomMakers": said}

        return Answer(document, "pod.html", values)

    def _node(self, request: web.Request, view: View) -> Answer:
        name = request.match_info["node"]
        usage = view.usage()[0]
        page = view.node(usage, name)
        if page is None:
            raise web.HTTPNotFound(text=f"there is no node {name!r}")
        # In a large cluster, doctor takes longer than a look at a node should.
        is_small = len(usage.nodes) <= _EXPLAINED_NODES
        examined = view.doctor() if is_small else view.known_doctor()
        rows = rows_about(examined.rows, name) if examined else None
        shown = [(row, ()) for row in rows] if rows is not None else None
        values = {
            "heading": name,
            "page": page,
            "rows": shown,
            "rows_found": _time(examined) if self._state.is_live else "",
            "may_ask": view.sees_all,
            "busy": view.utilisation(usage),
        }

        def document() -> Any:
            of_node = to_document(usage.on_nodes(frozenset({name})))
            facts = {"model": page.model, "status": page.status, "taints": list(page.taints)}
            why = page.stranding.words if page.stranding else None
            said = rows_document(rows)["rows"] if rows is not None else None
            return {**of_node, **facts, "stranded": why, "doctor": said}

        return Answer(document, "node.html", values)

    def _doctor(self, _request: web.Request, view: View) -> Answer:
        examined = view.doctor()
        rows = examined.rows if examined else ()
        nodes = view.node_names()
        by_state = [
            (state, [(row, nodes_in(row, nodes)) for row in rows if row.state is state])
            for state in _STATE_ORDER
        ]
        values = {
            "heading": "Doctor",
            "current": "/doctor",
            "examined": examined,
            "by_state": by_state,
        }
        return Answer(lambda: rows_document(rows), "doctor.html", values)

    def _findings(self, request: web.Request, view: View) -> Answer:
        wanted = finding_filter_of(request.query)
        audited = view.audit(only_refused=wanted.refused)
        results = audited.results
        trend = view.trend()
        values = {
            "heading": "Findings",
            "current": "/findings",
            "page": findings.findings_page(results, wanted),
            "filter": wanted,
            "levels": LEVELS,
            "audited": audited.read_at,
            "trend": trend,
            "chart": chart(trend.days) if trend.days else None,
        }

        def document() -> Any:
            days = [{**day._asdict(), "date": day.date.isoformat()} for day in trend.days]
            return {**findings.document(results, wanted), "trend": days}

        return Answer(document, "findings.html", values)

    async def _owners(self, request: web.Request) -> web.StreamResponse:
        """The findings by owner: a page with a text to copy, or the text itself."""
        kind = request.query.get("format", "")
        if kind not in owner_lists.FORMATS:
            return await self._page(self._owners_page)(request)
        content_type, write = owner_lists.FORMATS[kind]
        wanted, view = finding_filter_of(request.query), request[_VIEW]
        text = await asyncio.to_thread(lambda: write(*_owner_lists(view, wanted)))
        headers = {"Content-Disposition": f'inline; filename="findings.{_ENDINGS[kind]}"'}
        response = web.Response(
            text=text, content_type=content_type, charset="utf-8", headers=headers
        )
        response.enable_compression()
        return response

    def _owners_page(self, request: web.Request, view: View) -> Answer:
        wanted = finding_filter_of(request.query)
        lists, left_out = _owner_lists(view, wanted)
        values = {
            "heading": "Findings by owner",
            "current": "/findings",
            "filter": wanted,
            "formats": owner_lists.FORMATS,
            "text": owner_lists.as_text(lists, left_out),
            "owners": len(lists),
        }
        rows = [{**one._asdict(), "rows": [row._asdict() for row in one.rows]} for one in lists]
        return Answer(lambda: {"owners": rows, "leftOut": left_out}, "owners.html", values)

    def _finding(self, request: web.Request, view: View) -> Answer:
        mark = request.match_info["mark"]
        results = view.audit().results
        located = findings.find(results, mark)
        if located is None:
            raise web.HTTPNotFound(text="this finding is gone")
        row = findings.row_of(located, mark)
        preview = view.fix_preview(located)
        about = rules.rule_page(row.rule, view.policy, {})
        sections = dict(about.sections) if about else {}
        values = {
            "heading": row.rule,
            "current": "/findings",
            "row": row,
            "preview": preview,
            "why": sections.get("Why it matters", ()),
        }

        def document() -> Any:
            diff = [sign + line for sign, line in preview.lines]
            return {**row._asdict(), "fix": preview.title, "diff": diff, "whyNoFix": preview.why}

        return Answer(document, "finding.html", values)

    def _decisions(self, request: web.Request, view: View) -> Answer:
        wanted = decision_filter_of(request.query)
        facts = view.webhook()
        today = datetime.datetime.now(tz=datetime.UTC).date()
        values = {
            "heading": "Decisions",
            "current": "/decisions",
            "page": decisions.decisions_page(facts, wanted, today),
            "facts": facts,
            "filter": wanted,
            "outcomes": OUTCOMES,
            "levels": decisions.LEVEL_BY_OUTCOME,
            "policy": view.policy,
        }
        return Answer(lambda: decisions.document(facts, wanted), "decisions.html", values)

    def _rules(self, request: web.Request, view: View) -> Answer:
        wanted = request.query.get("q", "")[:100]
        families = rules.catalogue(view.policy, _counts(view), wanted)
        rows = [rules.as_document(row) for _, members in families for row in members]
        values = {
            "heading": "Rules",
            "current": "/rules",
            "families": families,
            "wanted": wanted,
            "all": len(RULE_BY_NAME),
            "shown": len(rows),
        }
        return Answer(lambda: rows, "rules.html", values)

    def _rule(self, request: web.Request, view: View) -> Answer:
        name = request.match_info["rule"]
        page = rules.rule_page(name, view.policy, _counts(view))
        if page is None:
            raise web.HTTPNotFound(text=f"there is no rule {name!r}")
        values = {
            "heading": name,
            "current": "/rules",
            "page": page,
            "manual": manual_page(name),
        }
        document = {
            **rules.as_document(page.row),
            "explanation": explanation(RULE_BY_NAME[name]),
            "example": page.example._asdict() if page.example else None,
        }
        return Answer(lambda: document, "rule.html", values)

    async def _open_playground(self, request: web.Request) -> web.StreamResponse:
        """The playground with an example, and for browsers with what is said about it."""
        examples = playground_examples()
        name = request.query.get("example", "")
        example = next((one for one in examples if one.name == name), examples[0])
        found = playground.chosen(request.query, self._state.profiles)
        if found.manifest or wants_json(request.headers.get("Accept", "")):
            return await self._page(lambda _request, _view: self._playground(found, None))(request)
        chosen = found._replace(manifest=example.text)
        async with self._evaluations:
            return await asyncio.to_thread(self._checked, request, chosen, example.name)

    async def _check_manifest(self, request: web.Request) -> web.StreamResponse:
        """Evaluate a manifest: nothing is changed by it, and nothing is kept."""
        _refuse_other_sites(request)
        given = await request.post()
        texts = {name: value for name, value in given.items() if isinstance(value, str)}
        chosen = playground.chosen(texts, self._state.profiles)
        if len(chosen.manifest) > playground.MAX_CHARACTERS:
            most = f"{playground.MAX_CHARACTERS:,}"
            raise web.HTTPRequestEntityTooLarge(
                playground.MAX_CHARACTERS, len(chosen.manifest), text=f"more than {most} characters"
            )
        async with self._evaluations:
            return await asyncio.to_thread(self._checked, request, chosen)

    def _checked(
        self, request: web.Request, chosen: playground.Chosen, example: str = ""
    ) -> web.Response:
        policy = self._state.policy_for(chosen.profile)
        verdict = playground.evaluate(
            chosen.manifest, policy, playground.MODES[chosen.mode], chosen.namespace
        )

        def answer(_request: web.Request, view: View) -> Answer:
            made = self._playground(chosen, verdict, _placements(view, verdict), example)
            is_part = request.query.get("part") == "verdict"
            return made._replace(template="verdict.html") if is_part else made

        return self._written(answer, request)

    def _playground(
        self,
        chosen: playground.Chosen,
        verdict: playground.Verdict | None,
        placements: Sequence[Explanation] = (),
        example: str = "",
    ) -> Answer:
        values = {
            "heading": "Playground",
            "current": "/playground",
            "chosen": chosen,
            "verdict": verdict,
            "placements": placements,
            "profiles": self._state.profiles,
            "modes": playground.MODES,
            "most": playground.MAX_CHARACTERS,
            "examples": playground_examples(),
            "example": example,
        }
        examples = {one.name: one.text for one in playground_examples()}
        how = {"how": playground.HOW, "examples": examples}
        document = playground.document(verdict, placements) if verdict else how
        return Answer(lambda: document, "playground.html", values)


def _time(examined: Examination | None) -> str:
    """Return when doctor has looked; empty if it has not."""
    return examined.read_at.isoformat(timespec="seconds") if examined else ""


def _busy_document(busy: Utilisation) -> dict[str, Any]:
    pods = [
        {"namespace": namespace, "name": name, "hour": found.hour, "day": found.day}
        for (namespace, name), found in sorted(busy.by_pod.items())
    ]
    return {"pods": pods, "whyNot": busy.why or None}


def _placements(view: View, verdict: playground.Verdict) -> list[Explanation]:
    """Return where the pods would run, as far as that is known and the viewer may know it."""
    found = []
    for pod in verdict.new_pods:
        with contextlib.suppress(SourceError):
            why = view.explain(pod, verdict.new_claims)
            if why and why.nodes:
                found.append(why)
    return found


def _owner_lists(
    view: View, wanted: findings.Filter
) -> tuple[tuple[owner_lists.OwnerList, ...], int]:
    results = view.audit(only_refused=wanted.refused).results
    return owner_lists.owner_lists(results, wanted)


def _reasons(view: View, page: GpusPage) -> Mapping[tuple[str, str], str]:
    """Return why the pods that the page shows wait, by namespace and name.

    The answer of the scheduler is there already; to find our own takes time in large clusters.
    """
    said = view.scheduler_messages()
    found = {}
    for one in page.waiting:
        key = one.namespace, one.name
        if not one.is_pod:
            continue
        if page.nodes <= _EXPLAINED_NODES:
            why = view.why(*key)
            found[key] = why.verdict if why else ""
        else:
            found[key] = said.get(key, "")
    return found


def _counts(view: View) -> Mapping[str, int]:
    """Return how many findings each rule has."""
    return Counter(located.finding.rule for located in view.audit().results.findings)


class Nobody:
    """A viewer who has not said who they are."""

    name = ""
    sees_all = False

    def visible(self, _namespaces: Iterable[str]) -> frozenset[str]:
        """None of them."""
        return frozenset()


def _credentials(request: web.Request) -> Credentials:
    def all_of(name: str) -> list[str]:
        return request.headers.getall(name, [])

    return Credentials(
        all_of("Authorization"),
        all_of(PROXY_SECRET_HEADER),
        all_of(PROXY_USER_HEADER),
        all_of(PROXY_GROUPS_HEADER),
        request.cookies.get(SESSION_COOKIE, ""),
    )


def _redirect(where: str) -> web.Response:
    return web.Response(status=303, headers={"Location": where})


def _own_path(where: str) -> str:
    """The path where the user wanted to go; `/` if that is not here."""
    is_own = where.isprintable() and where.startswith("/") and "\\" not in where
    return where if is_own and not where.startswith("//") else "/"


def finding_filter_of(query: Mapping[str, str]) -> findings.Filter:
    """The filter of findings that the query of an address means."""
    texts = {name: query.get(name, "")[:300] for name in ("namespace", "rule", "owner", "level")}
    if texts["level"] not in LEVELS:
        texts["level"] = ""
    return findings.Filter(**texts, refused=query.get("as") == "deny", page=_page_number(query))


def decision_filter_of(query: Mapping[str, str]) -> decisions.Filter:
    """The filter of decisions that the query of an address means."""
    texts = {name: query.get(name, "")[:300] for name in ("namespace", "rule")}
    outcome = decisions.outcome_of(query.get("outcome", ""))
    return decisions.Filter(**texts, outcome=outcome, page=_page_number(query))


def _page_number(query: Mapping[str, str]) -> int:
    page = query.get("page", "1")
    is_number = page.isdecimal() and len(page) < len(str(_MAX_PAGES))
    return max(int(page), 1) if is_number else 1


def _refuse_other_sites(request: web.Request) -> None:
    """Refuse a request that a page of another site has sent.

    Browsers say where a request comes from, and no script can change it. Programs say nothing.
    """
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    origin = request.headers.get("Origin", "")
    if site not in {"same-origin", "none"} or (origin and urlsplit(origin).netloc != request.host):
        raise web.HTTPForbidden(text="the request comes from another site")


_GPU_FILTERS = ("model", "namespace", "team", "state", "node", "resource")


def filter_of(query: Mapping[str, str]) -> Filter:
    """The filter that the query of an address means; what is no filter is left out."""
    texts = {name: query.get(name, "")[:253] for name in _GPU_FILTERS}
    if texts["state"] not in STATES:
        texts["state"] = ""
    return Filter(**texts, page=_page_number(query))


def wants_json(accept: str) -> bool:
    """Return whether a client asks for JSON before HTML, as programs do and browsers do not."""
    kinds = [kind.split(";")[0].strip() for kind in accept.split(",")[:20]]
    found = [kind for kind in kinds if kind in {"application/json", "text/html"}]
    return found[:1] == ["application/json"]


def _host(request: web.Request) -> str:
    """The name by which a request calls the server, without the port."""
    host = request.headers.get("Host", "")
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0].lower()


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


async def _static(request: web.Request) -> web.StreamResponse:
    content = assets().get(request.match_info["name"])
    if content is None:
        raise web.HTTPNotFound
    kind = _TYPES[os.path.splitext(request.match_info["name"])[1]]
    response = web.Response(body=content, content_type=kind, charset="utf-8")
    response.enable_compression()
    return response


async def _healthy(_request: web.Request) -> web.StreamResponse:
    return web.Response(text="ok\n")


def assets() -> Mapping[str, bytes]:
    """The files that pages load, by their names."""
    folder = os.path.join(FOLDER, "static")
    found = {}
    for name in sorted(os.listdir(folder)):
        if os.path.splitext(name)[1] in _TYPES:
            with open(os.path.join(folder, name), "rb") as file:
                found[name] = file.read()
    return found
