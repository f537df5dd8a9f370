"""Tests of `gpuward lsp`, the program, by a client of the Language Server Protocol."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.workspace import Workspace
from pytest_lsp import LanguageClient, client_capabilities, make_test_lsp_client

from lint.language_server.diagnostics import Analysis, analyze
from lint.language_server.policies import EditorSettings
from lint.language_server.server import create_server
from tests.testkit.fix_texts import FIXED, REQUEST
from tests.testkit.paths import ROOT
from tests.testkit.settled_rules import UNSETTLED

pytestmark = pytest.mark.asyncio(loop_scope="module")

TAKER = """\
apiVersion: v1
kind: Pod
metadata: {name: taker}
spec:
  containers:
    - name: main
      image: example.com/app:1
      env:
        - {"😀你": "", name: NVIDIA_VISIBLE_DEVICES, value: all}
"""
POLICY = "apiVersion: gpuward.io/v1\nkind: Policy\n"
# Seconds until a server that says nothing has failed.
_PATIENCE = 60
START = types.Position(0, 0)


def utf16(line: str) -> str:
    """The line with two characters where UTF-16 has two units."""
    return "".join(c * (1 + (c > "\uffff")) for c in line)


class Editor:
    """An editor with one open document in a folder of its workspace."""

    def __init__(self, client: LanguageClient, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.text = ""
        self.uri = ""
        self._version = 0
        (folder / ".git").mkdir()
        event = types.WorkspaceFoldersChangeEvent(
            [types.WorkspaceFolder(folder.as_uri(), "folder")], []
        )
        client.workspace_did_change_workspace_folders(types.DidChangeWorkspaceFoldersParams(event))

    async def open(self, name: str, text: str) -> list[types.Diagnostic]:
        """Open a document, which need not exist on disk; its diagnostics."""
        self.uri, self.text, self._version = (self.folder / name).as_uri(), text, 0
        item = types.TextDocumentItem(self.uri, "yaml", 0, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return await self.diagnostics()

    async def change(self, *texts: str) -> list[types.Diagnostic]:
        """Replace the text, several times at once; the diagnostics of the last one."""
        for self.text in texts:
            self._version += 1
            document = types.VersionedTextDocumentIdentifier(self._version, self.uri)
            change = types.TextDocumentContentChangeWholeDocument(self.text)
            self.client.text_document_did_change(
                types.DidChangeTextDocumentParams(document, [change])
            )
        return await self.diagnostics()

    async def diagnostics(self) -> list[types.Diagnostic]:
        """The diagnostics that the server publishes next, or has published since the last call."""
        # To wait for the notification would be to miss one that the client has yet to store.
        async with asyncio.timeout(_PATIENCE):
            while self.uri not in self.client.diagnostics:  # noqa: ASYNC110  # it has no event
                await asyncio.sleep(0.01)
        found = self.client.diagnostics.pop(self.uri)
        return [one for one in found if one.code not in UNSETTLED]

    async def actions(
        self, place: types.Range, *kinds: str, diagnostics: Iterable[types.Diagnostic] = ()
    ) -> dict[str, types.CodeAction]:
        """The actions at a place, by their titles."""
        context = types.CodeActionContext(list(diagnostics), only=list(kinds) or None)
        document = types.TextDocumentIdentifier(self.uri)
        params = types.CodeActionParams(document, place, context)
        found = await self.client.text_document_code_action_async(params)
        actions = {one.title: one for one in found or () if isinstance(one, types.CodeAction)}
        unsettled = [title for title in actions for rule in UNSETTLED if rule in title]
        return {title: action for title, action in actions.items() if title not in unsettled}

    async def hover(self, line: int, character: int) -> str:
        """Return what is shown at a position."""
        document = types.TextDocumentIdentifier(self.uri)
        params = types.HoverParams(document, types.Position(line, character))
        found = await self.client.text_document_hover_async(params)
        if found is None:
            return ""
        assert isinstance(found.contents, types.MarkupContent)
        return found.contents.value

    async def completion(self, position: types.Position) -> set[str]:
        """Return what is proposed at a position."""
        document = types.TextDocumentIdentifier(self.uri)
        params = types.CompletionParams(document, position)
        found = await self.client.text_document_completion_async(params)
        assert isinstance(found, list)
        return {item.label for item in found}

    def applied_settings(self, action: types.CodeAction) -> str:
        """The text after an action."""
        assert action.edit
        assert action.edit.document_changes
        (change,) = action.edit.document_changes
        assert isinstance(change, types.TextDocumentEdit)
        assert (change.text_document.uri, change.text_document.version) == (
            self.uri,
            self._version,
        )
        edits = [edit for edit in change.edits if isinstance(edit, types.TextEdit)]
        return apply(self.text, edits)


def apply(text: str, edits: list[types.TextEdit]) -> str:
    """The text after edits, whose columns count units of UTF-16."""
    lines = text.split("\n")
    starts = [0, *itertools.accumulate(len(line) + 1 for line in lines)]

    def offset(position: types.Position) -> int:
        line = lines[position.line]
        units = itertools.accumulate((1 + (c > "\uffff") for c in line), initial=0)
        return starts[position.line] + list(units).index(position.character)

    for edit in sorted(edits, key=lambda edit: offset(edit.range.start), reverse=True):
        text = text[: offset(edit.range.start)] + edit.new_text + text[offset(edit.range.end) :]
    return text


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[LanguageClient]:
    """A client as Visual Studio Code is one, and the server."""
    client = make_test_lsp_client()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    await client.start_io(sys.executable, "-m", "gpuward", "lsp", "--stdio", env=environment)

    @client.feature(types.CLIENT_REGISTER_CAPABILITY)  # type: ignore[untyped-decorator]
    def register(params: types.RegistrationParams) -> None:
        assert [one.method for one in params.registrations] == [
            types.WORKSPACE_DID_CHANGE_WATCHED_FILES
        ]

    capabilities = client_capabilities("visual-studio-code")
    await client.initialize_session(types.InitializeParams(capabilities=capabilities))
    yield client
    await client.shutdown_session()
    await client.stop()  # type: ignore[no-untyped-call]


@pytest.fixture
def editor(client: LanguageClient, tmp_path: Path) -> Editor:
    return Editor(client, tmp_path)


async def test_a_finding_is_marked_where_it_is(editor: Editor) -> None:
    (found,) = await editor.open("pod.yaml", TAKER)
    place = found.range
    line = utf16(TAKER.split("\n")[place.start.line])
    assert line[place.start.character : place.end.character] == "all"
    assert (found.code, found.source) == ("visible-devices-env", "gpuward")
    assert found.severity == types.DiagnosticSeverity.Error
    assert found.code_description
    assert found.code_description.href.endswith("/docs/rules/visible-devices-env.md")
    assert "Help: " in found.message
    assert await editor.change(TAKER, "", TAKER.replace("value: all", "value: void")) == []


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
async def test_a_fix_is_that_of_gpuward_fix(editor: Editor, line_break: str, mark: str) -> None:
    text, fixed = (
        mark + f"# 😀 {line_break}{one}".replace("\n", line_break) for one in (REQUEST, FIXED)
    )
    text, fixed = text.replace("\r\r", "\r"), fixed.replace("\r\r", "\r")
    (found,) = await editor.open("pod.yaml", text)
    actions = await editor.actions(found.range, diagnostics=[found])
    (title,) = [title for title in actions if title.startswith("request-only: set the limit")]
    assert editor.applied_settings(actions[title]) == fixed
    assert actions[title].is_preferred
    assert list(actions[title].diagnostics or ()) == [found]
    (fix_all,) = (await editor.actions(found.range, "source.fixAll")).values()
    assert editor.applied_settings(fix_all) == fixed


async def test_each_finding_has_its_own_fix_and_unsafe_ones_say_so(editor: Editor) -> None:
    found = (await editor.open("pod.yaml", f"{REQUEST}---\n{TAKER}"))[-1]
    (title, *_) = await editor.actions(found.range, "quickfix")
    action = (await editor.actions(found.range, "quickfix"))[title]
    assert "review: " in title
    assert action.is_preferred is None
    changed = editor.applied_settings(action)
    assert changed.startswith(f"{REQUEST}---\n")
    assert changed.endswith("value: void}\n")
    (editor.folder / "gpuward.yaml").write_text(
        POLICY + "rules: {visible-devices-env: {fix: false}}"
    )
    await editor.change(editor.text + "\n")
    assert title not in await editor.actions(found.range, "quickfix")


async def test_what_is_not_shown_is_not_fixed(editor: Editor) -> None:
    pod = FIXED.replace("  tolerations: [{key: nvidia.com/gpu, operator: Exists}]\n", "")
    assert await editor.open("pod.yaml", pod) == []  # a missing toleration is a note
    everywhere = types.Range(START, types.Position(100, 0))
    assert await editor.actions(everywhere) == {}


async def test_a_comment_suppresses_once_it_has_a_reason(editor: Editor) -> None:
    (found,) = await editor.open("pod.yaml", TAKER)
    actions = await editor.actions(found.range)
    (title,) = [title for title in actions if "comment" in title]
    commented = editor.applied_settings(actions[title])
    comment = "# gpuward: ignore[visible-devices-env] "
    assert commented == TAKER.replace("all}\n", f"all}} {comment}\n")
    remarks = await editor.change(commented)
    assert {one.code for one in remarks} == {None, "visible-devices-env"}
    assert await editor.change(commented.replace(comment, f"{comment}a test node")) == []


async def test_where_a_line_has_no_place_for_a_comment_it_goes_above(editor: Editor) -> None:
    text = TAKER.replace("all}", "all} # gpuward: ignore[absurd-count] for another rule")
    found = next(one for one in await editor.open("pod.yaml", text) if one.code)
    actions = await editor.actions(found.range)
    (title,) = [title for title in actions if "comment" in title]
    line = '        # gpuward: ignore[visible-devices-env] \n        - {"😀你"'
    assert editor.applied_settings(actions[title]) == text.replace('        - {"😀你"', line)


async def test_no_comment_is_offered_where_it_would_have_no_effect(editor: Editor) -> None:
    json_pod = (
        '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a\\ud83d\\ude00"}, "spec": '
        '{"containers": [{"name": "b", "env": [{"name": "\\ud83d\\ude00"}, '
        '{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}]}}'
    )
    (found,) = await editor.open("pod.json", json_pod)
    assert json_pod[found.range.start.character : found.range.end.character] == '"all"'
    assert not [title for title in await editor.actions(found.range) if "comment" in title]
    policy = POLICY + "rules: {visible-devices-env: {suppressible: false}}"
    (editor.folder / "gpuward.yaml").write_text(policy)
    (found,) = await editor.open("pod.yaml", TAKER)
    assert not [title for title in await editor.actions(found.range) if "comment" in title]


async def test_rules_are_explained(editor: Editor) -> None:
    text = TAKER + "# gpuward: ignore[absurd-count] because\n"
    found = await editor.open("pod.yaml", text)
    place = next(one.range for one in found if one.code).start
    assert "## Why it matters" in await editor.hover(place.line, place.character)
    last = text.count("\n") - 1
    assert (await editor.hover(last, 20)).startswith("# absurd-count")
    assert await editor.hover(0, 0) == ""


async def test_the_policy_is_that_of_the_linter(editor: Editor) -> None:
    file = editor.folder / "gpuward.yaml"
    file.write_text(POLICY + "rules: {visible-devices-env: {action: warn}}")
    (found,) = await editor.open("deploy/pod.yaml", TAKER)
    assert found.severity == types.DiagnosticSeverity.Warning
    file.write_text(POLICY + "rules: {visible-devices-env: {action: off}}")
    event = types.FileEvent(file.as_uri(), types.FileChangeType.Changed)
    editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([event]))
    (found,) = await editor.diagnostics()
    assert "the policy cannot be used" in found.message
    assert "gpuward.yaml:3:31" in found.message
    file.unlink()
    os.mkfifo(file)
    (found,) = await editor.change(TAKER + "\n")
    assert "not a regular file" in found.message


async def test_the_policy_nearest_to_the_file_counts(editor: Editor) -> None:
    warn = POLICY + "rules: {visible-devices-env: {action: warn}}\n"
    (editor.folder / "gpuward.yaml").write_text(warn + "lint: {exclude: [vendor]}\n")
    (editor.folder / "team").mkdir()
    (editor.folder / "team" / "gpuward.yaml").write_text(
        POLICY + "perPath:\n  - {paths: old, rules: {visible-devices-env: {action: audit}}}\n"
    )
    (found,) = await editor.open("pod.yaml", TAKER)
    assert found.severity == types.DiagnosticSeverity.Warning
    (found,) = await editor.open("team/pod.yaml", TAKER)
    assert found.severity == types.DiagnosticSeverity.Error
    assert await editor.open("team/old/pod.yaml", TAKER) == []  # a note
    assert await editor.open("vendor/pod.yaml", TAKER) == []


async def test_a_policy_may_extend_a_file_beside_it(editor: Editor) -> None:
    (editor.folder / "org.yaml").write_text(POLICY)
    assert await editor.open("gpuward.yaml", POLICY + "extends: [./org.yaml]\n") == []
    (found,) = await editor.change(POLICY + "extends: [./none.yaml]\n")
    assert "none.yaml: no such file" in found.message
    assert found.range.start.line == 2


async def test_a_file_of_another_program_that_is_called_as_a_policy_has_no_mistakes(
    editor: Editor,
) -> None:
    release = "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: a}\n"
    assert await editor.open("gpuward.yaml", release) == []
    assert await editor.change("on: push\njobs: {}\n") == []
    assert await editor.change("apiVersion: kyverno.io/v1\nkind: Policy\n") == []
    assert len(await editor.change("kind: Policy\njobs: {}\n")) > 0
    (editor.folder / "gpuward.yaml").write_text(release)
    (found,) = await editor.open("pod.yaml", TAKER)
    assert found.code == "visible-devices-env"


async def test_mistakes_in_a_policy_are_marked(editor: Editor) -> None:
    (found,) = await editor.open("gpuward.yaml", POLICY + "rules:\n  absurd-cuont: {}\n")
    assert found.range.start == types.Position(3, 2)
    assert 'did you mean "absurd-count"?' in found.message
    assert await editor.change(POLICY) == []
    assert len(await editor.change("a: [")) == 1


@pytest.mark.parametrize(
    ("text", "expected", "unexpected"),
    [
        ("", {"rules", "catalog", "profiles", "exceptions"}, {"action", "persona"}),
        ("kind: ", {"Policy"}, {"rules"}),
        ("rules:\n  ", {"absurd-count", "visible-devices-env"}, {"rules"}),
        ("rules:\n  absurd-count:\n    action: ", {"deny", "warn", "off"}, {"action"}),
        ("rules:\n  absurd-count:\n    suppressible: ", {"true", "false"}, set()),
        ("rules:\n  absurd-count:\n    options:\n      ", {"max_devices"}, {"action"}),
        ("profiles: [", {"nvidia", "gke"}, {"rules"}),
        ("extends:\n  - ", {"essential", "strict"}, {"nvidia"}),
        ("profiles:\n- ", {"nvidia", "name"}, {"rules"}),
        ("exceptions:\n- rules: [absurd-count]\n  match:\n    ", {"namespace"}, {"rules"}),
        ("exceptions:\n  - reason: x\n    rules:\n      - ", {"absurd-count"}, {"reason"}),
        ("exceptions:\n  - reason: x\n    ", {"rules", "match", "expires"}, {"catalog"}),
        ("rules: {}\n# a comment\n\n", {"profiles"}, {"action"}),
    ],
)
async def test_a_policy_is_completed(
    editor: Editor, text: str, expected: set[str], unexpected: set[str]
) -> None:
    await editor.open("gpuward.yaml", text)
    lines = text.split("\n")
    proposed = await editor.completion(types.Position(len(lines) - 1, len(lines[-1])))
    assert expected <= proposed
    assert not unexpected & proposed


async def test_keys_of_a_policy_are_explained_and_comments_completed(editor: Editor) -> None:
    await editor.open("gpuward.yaml", "rules:\n  absurd-count:\n    action: deny\n")
    assert "Values: `deny`, `warn`, `audit`, `off`" in await editor.hover(2, 6)
    assert (await editor.hover(1, 4)).startswith("# absurd-count")
    await editor.open("pod.yaml", "a: 1 # gpuward: ignore[")
    assert "absurd-count" in await editor.completion(types.Position(0, 23))
    assert await editor.completion(START) == set()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("torn.yaml", "kind: Pod\nspec: [\n", "not evaluated: "),
        ("package.json", "{not JSON", ""),
        ("large.yaml", "#" * (10 * 1024 * 1024 + 1), "larger than 10 MiB: split it"),
        ("surrogate.yaml", "kind: \ud800", "not UTF-8"),
        ("breaks.yaml", TAKER.replace("taker", '"a\u2028b\x85"') + "\r# end", "sets NVIDIA"),
    ],
)
async def test_unusual_documents(editor: Editor, name: str, text: str, message: str) -> None:
    found = await editor.open(name, text)
    assert [message in one.message for one in found] == [True] * bool(message)


async def test_a_template_is_not_evaluated_and_says_so(editor: Editor) -> None:
    (editor.folder / "templates").mkdir()
    (editor.folder / "Chart.yaml").write_text("name: chart\n")
    (found,) = await editor.open("templates/pod.yaml", "{{ if .Values.gpu }}\n" + TAKER)
    assert found.severity == types.DiagnosticSeverity.Information
    assert "a chart's template" in found.message


async def test_errors_do_not_end_the_server(editor: Editor) -> None:
    await editor.open("pod.yaml", TAKER)
    assert await editor.hover(10**6, 10**6) == ""
    everywhere = types.Range(START, types.Position(2**31 - 1, 2**31 - 1))
    assert await editor.actions(everywhere)
    nowhere = types.TextDocumentIdentifier((editor.folder / "missing.yaml").as_uri())
    with pytest.raises(JsonRpcException):
        await editor.client.text_document_hover_async(types.HoverParams(nowhere, START))
    server = editor.client._server  # noqa: SLF001  # what a broken client would send
    assert server
    assert server.stdin
    for body in (b"{{{{", b'{"jsonrpc": "2.0", "id": 7, "method": "textDocument/hover"}', b"[]"):
        server.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    assert len(await editor.change(TAKER + "\n")) == 1


async def test_a_closed_document_has_no_diagnostics(editor: Editor) -> None:
    await editor.open("pod.yaml", TAKER)
    document = types.TextDocumentIdentifier(editor.uri)
    editor.client.text_document_did_close(types.DidCloseTextDocumentParams(document))
    assert await editor.diagnostics() == []


async def test_a_document_is_evaluated_once_at_a_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    running: list[str] = []
    evaluated: list[tuple[str, ...]] = []
    started, may_end = threading.Event(), threading.Event()

    def analyze_slowly(name: str, text: str, *given: Any) -> Analysis:
        running.append(text)
        evaluated.append(tuple(running))
        started.set()
        may_end.wait(_PATIENCE)
        running.remove(text)
        return analyze(name, text, *given)

    monkeypatch.setattr("lint.language_server.server.analyze", analyze_slowly)
    server = create_server(EditorSettings(isolated=True))
    uri = (tmp_path / "pod.yaml").as_uri()
    server.protocol._workspace = Workspace(tmp_path.as_uri())  # noqa: SLF001  # as a client sets it
    server.workspace.put_text_document(types.TextDocumentItem(uri, "yaml", 0, "first: 1"))
    document = server.workspace.get_text_document(uri)
    waiting = [asyncio.ensure_future(server.analysis(document))]
    assert await asyncio.to_thread(started.wait, _PATIENCE)
    for text in ("second: 1", "third: 1"):  # each takes the place of the one before
        waiting[-1].cancel()
        server.workspace.put_text_document(types.TextDocumentItem(uri, "yaml", 1, text))
        document = server.workspace.get_text_document(uri)
        waiting.append(asyncio.ensure_future(server.analysis(document)))
        await asyncio.sleep(0)
    may_end.set()
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert [getattr(one, "text", None) for one in done] == [None, None, "third: 1"]
    assert evaluated == [("first: 1",), ("third: 1",)]
