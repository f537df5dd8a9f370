"""The language server: keeps documents, evaluates them in a thread, and answers the editor."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path
from pygls.workspace import TextDocument

from lint.fix.changes import TextEdit
from lint.language_server.code_actions import FIX_ALL, code_actions
from lint.language_server.diagnostics import (
    Analysis,
    Positions,
    analyze,
    manifest_diagnostics,
    policy_diagnostics,
)
from lint.language_server.hover import (
    comment_completion,
    manifest_hover,
    policy_completion,
    policy_hover,
)
from lint.language_server.policies import EditorPolicies, EditorSettings
from policies import POLICY_FILE
from policies.loading import is_of_another_program
from terminal import installed_version, printable

_LOG = logging.getLogger(__name__)
# Seconds without a key before a document is evaluated.
_DELAY_SECONDS = 0.25
_UNTITLED_FILE = "untitled.yaml"


class GpuwardServer(LanguageServer):
    """The open documents with what is known about them.

    Clients send whole texts: a change of a part is told in lines, and pygls counts more line breaks
    than the protocol.
    """

    def __init__(self, settings: EditorSettings) -> None:
        super().__init__(
            "gpuward",
            installed_version() or "unknown",
            text_document_sync_kind=types.TextDocumentSyncKind.Full,
        )
        self.settings = settings
        self.policies = EditorPolicies(settings)
        self.has_client = False  # until an editor has introduced itself
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._analyses: dict[str, Analysis] = {}
        self._evaluating: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def evaluate_later(self, uri: str, delay: float = _DELAY_SECONDS) -> None:
        """Publish new diagnostics of a document once it has not changed for `delay` seconds."""
        self.forget_task(uri)
        self._tasks[uri] = asyncio.ensure_future(self._evaluate_after(uri, delay))

    def evaluate_all(self) -> None:
        """Publish new diagnostics of all open documents, as after a change of a policy."""
        self._analyses.clear()
        for uri in self.workspace.text_documents:
            self.evaluate_later(uri)

    def forget_document(self, uri: str) -> None:
        """A document is closed: its diagnostics go."""
        self.forget_task(uri)
        self._analyses.pop(uri, None)
        if not self._evaluating[uri].locked():
            del self._evaluating[uri]
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def forget_task(self, uri: str) -> None:
        """Cancel the evaluation that waits, because it is out of date."""
        if task := self._tasks.pop(uri, None):
            task.cancel()

    def positions(self, text: str) -> Positions:
        """The positions in a text, in the units that the client wants."""
        encoding = self.server_capabilities.position_encoding
        return Positions(text, encoding or types.PositionEncodingKind.Utf16)

    async def analysis(self, document: TextDocument) -> Analysis:
        """Return the results for the text that the document has now.

        One evaluation of a document runs at a time: large ones take longer than a user takes to
        type the next character.
        """
        uri = document.uri
        async with self._evaluating[uri]:
            text, known = document.source, self._analyses.get(uri)
            if known is None or known.text != text:
                name = file_name(document)
                given = (name, text, self._folder_of(name), self.policies, self.settings)
                known = await _run_in_thread(partial(analyze, *given))
                if uri in self.workspace.text_documents:
                    self._analyses[uri] = known
        return known

    def edit(self, document: TextDocument, edits: Sequence[TextEdit]) -> types.WorkspaceEdit:
        """The edits of a document, for its current version if the client can check that."""
        positions = self.positions(document.source)
        changes = [
            types.TextEdit(positions.range_between(edit.start, edit.end), edit.text)
            for edit in edits
        ]
        workspace = self.client_capabilities.workspace
        if workspace and workspace.workspace_edit and workspace.workspace_edit.document_changes:
            target = types.OptionalVersionedTextDocumentIdentifier(document.uri, document.version)
            return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(target, changes)])
        return types.WorkspaceEdit(changes={document.uri: changes})

    async def _evaluate_after(self, uri: str, delay: float) -> None:
        await asyncio.sleep(delay)
        try:
            await self._publish(self.workspace.get_text_document(uri))
        except Exception as error:  # noqa: BLE001  # a bug of ours must not end the server
            _LOG.exception("%s was not evaluated", uri)
            message = f"gpuward itself failed, please report it: {type(error).__name__}: {error}"
            self.window_log_message(types.LogMessageParams(types.MessageType.Error, message))

    async def _publish(self, document: TextDocument) -> None:
        text, version = document.source, document.version
        if is_policy(document):
            folder = os.path.dirname(file_name(document))
            given = (text, self.positions(text), folder)
            found = await asyncio.to_thread(policy_diagnostics, *given)
        else:
            analysis = await self.analysis(document)
            notes = self.settings.notes
            positions = self.positions(text)
            found = await asyncio.to_thread(manifest_diagnostics, analysis, positions, notes=notes)
        if document.version == version:
            self.text_document_publish_diagnostics(
                types.PublishDiagnosticsParams(document.uri, found, version)
            )

    def _folder_of(self, name: str) -> str:
        """The folder where the linter would run: the innermost of the workspace, or the file's."""
        folders = [to_fs_path(uri) for uri in self.workspace.folders]
        if not folders and self.workspace.root_path:
            folders = [self.workspace.root_path]
        around = [path for path in folders if path and name.startswith(os.path.join(path, ""))]
        return max(around, key=len, default=os.path.dirname(name) or os.getcwd())


async def _run_in_thread(work: Callable[[], Analysis]) -> Analysis:
    """Return the result of `work`. A caller that is cancelled waits: no thread can be stopped."""
    future = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise


def file_name(document: TextDocument) -> str:
    """The path of a document; a name that is no file's for one that has not been saved."""
    return to_fs_path(document.uri) or _UNTITLED_FILE


def is_policy(document: TextDocument) -> bool:
    """Return whether the document is a policy, by its name and its keys."""
    is_called_so = os.path.basename(file_name(document)) == POLICY_FILE
    return is_called_so and not is_of_another_program(document.source.encode(errors="replace"))


def create_server(settings: EditorSettings) -> GpuwardServer:
    """A server with all features."""
    server = GpuwardServer(settings)
    _add_synchronization(server)
    _add_answers(server)
    for name in _LOGGERS_OF_MESSAGES:
        logging.getLogger(name).addFilter(_is_about_more_than_a_message)
    return server


_LOGGERS_OF_MESSAGES = ("pygls.server", "pygls.protocol.json_rpc")
_DESERIALIZING = "Unable to deserialize message"
_HANDLING = "Unable to handle message"


def _is_about_more_than_a_message(record: logging.LogRecord) -> bool:
    """Return whether to log `record`; make one line of that about a message that is malformed.

    pygls logs the traceback of that twice. It logs what our own functions raise by other texts.
    """
    text = str(record.msg)
    if text.startswith(_HANDLING):
        error = record.exc_info[1] if record.exc_info else None
        record.msg = f"gpuward: a message is none of the protocol: {printable(str(error))}"
        record.args = record.exc_info = record.exc_text = None
    return not text.startswith(_DESERIALIZING)


def _add_synchronization(server: GpuwardServer) -> None:
    @server.feature(types.INITIALIZE)
    def initialize(_: types.InitializeParams) -> None:
        server.has_client = True

    @server.feature(types.INITIALIZED)
    async def initialized(_: types.InitializedParams) -> None:
        workspace = server.client_capabilities.workspace
        watched = workspace.did_change_watched_files if workspace else None
        if watched and watched.dynamic_registration:
            options = types.DidChangeWatchedFilesRegistrationOptions(
                [types.FileSystemWatcher(f"**/{POLICY_FILE}")]
            )
            method = types.WORKSPACE_DID_CHANGE_WATCHED_FILES
            registration = types.Registration("policies", method, options)
            await server.client_register_capability_async(types.RegistrationParams([registration]))

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def opened(params: types.DidOpenTextDocumentParams) -> None:
        server.evaluate_later(params.text_document.uri, delay=0)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: types.DidChangeTextDocumentParams) -> None:
        server.evaluate_later(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def saved(params: types.DidSaveTextDocumentParams) -> None:
        if is_policy(server.workspace.get_text_document(params.text_document.uri)):
            server.evaluate_all()

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    async def policy_changed(_: types.DidChangeWatchedFilesParams) -> None:
        server.evaluate_all()

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    async def closed(params: types.DidCloseTextDocumentParams) -> None:
        server.forget_document(params.text_document.uri)


def _add_answers(server: GpuwardServer) -> None:
    kinds = types.CodeActionOptions([types.CodeActionKind.QuickFix, FIX_ALL])

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, kinds)
    async def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        document = server.workspace.get_text_document(params.text_document.uri)
        if is_policy(document):
            return []
        version = document.version
        analysis = await server.analysis(document)
        positions = server.positions(analysis.text)
        make_edit = partial(server.edit, document)
        found = await asyncio.to_thread(code_actions, analysis, positions, params, make_edit)
        return found if document.version == version else []

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def hover(params: types.HoverParams) -> types.Hover | None:
        document = server.workspace.get_text_document(params.text_document.uri)
        text = document.source
        positions = server.positions(text)
        if is_policy(document):
            return policy_hover(text, positions, params.position)
        return manifest_hover(await server.analysis(document), positions, params.position)

    options = types.CompletionOptions(trigger_characters=["[", " ", "-"])

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, options)
    async def completion(params: types.CompletionParams) -> list[types.CompletionItem]:
        document = server.workspace.get_text_document(params.text_document.uri)
        text = document.source
        complete = policy_completion if is_policy(document) else comment_completion
        return complete(text, server.positions(text), params.position)
