"""What the editor asks of the server, and what answers it."""

from __future__ import annotations

import asyncio
from functools import partial

from lsprotocol import types

from lint.language_server.code_actions import FIX_ALL, code_actions
from lint.language_server.completion import comment_completion, policy_completion
from lint.language_server.hover import manifest_hover, policy_hover
from lint.language_server.policies import Settings
from lint.language_server.server import GpuwardServer, is_policy
from policies.policy_files import POLICY_FILE


def create_server(settings: Settings) -> GpuwardServer:
    """A server with all features."""
    server = GpuwardServer(settings)
    _add_synchronization(server)
    _add_answers(server)
    return server


def _add_synchronization(server: GpuwardServer) -> None:
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
        server.forget(params.text_document.uri)


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
