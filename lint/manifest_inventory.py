"""Gather what the manifests of a run say about other objects, before any of them is evaluated.

Only documents that name a kind of an inventory are parsed, so that this costs a search of the text
for all others.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kubeyaml import YamlError, split
from reports.results import InputNotEvaluated, Remark, Results
from rules.inventory.builder import MIG_CONFIGS
from rules.inventory.inventory import EMPTY_INVENTORY, KINDS, ConfigMap, Inventory, Secret
from rules.placement.node_labels import GPU_MEM
from rules.placement.selected_cards import add_shares_to_inventory
from rules.profile.context import Context
from rules.profile.profile import Profile
from rules.workloads.referred_objects import (
    add_gpu_patches,
    add_mig_configurations,
    add_objects,
    add_patched_objects,
    new_builder,
    variables_of_runtimes,
)
from sources.kustomization_files import Kustomizations
from sources.sources import (
    LARGE_BYTES,
    Input,
    InputFile,
    InputReader,
    Source,
    definition_head,
)

_KINDS_WITH_VARIABLES = (ConfigMap.__name__, Secret.__name__)


def gather_inventory(
    inputs: Iterable[Input],
    results: Results,
    profile: Profile,
    context: Context,
    kustomizations: Kustomizations,
    reader: InputReader,
) -> Inventory:
    """Return the objects of `inputs` as an inventory; what it lacks is remarked in `results`.

    Standard input is left out, because it can be read only once.
    """
    gatherer = _InventoryGatherer(profile, context, kustomizations, reader)
    try:
        for source in _relevant_sources(inputs, gatherer.may_matter, reader):
            gatherer.add(source)
    except Exception as error:  # noqa: BLE001  # a bug of ours must not hide what rules find without
        why = f"please report it: {type(error).__name__}: {error}"
        why = f"gpuward itself failed to read what objects refer to, {why}"
        results.not_evaluated.append(InputNotEvaluated("", 0, 0, why))
        return EMPTY_INVENTORY
    if missing := gatherer.builder.message_about_missing_objects():
        results.remarks.append(Remark("warning", "", 1, 1, missing))
    return gatherer.builder.inventory()


class _InventoryGatherer:
    def __init__(
        self,
        profile: Profile,
        context: Context,
        kustomizations: Kustomizations,
        reader: InputReader,
    ) -> None:
        self._variables = variables_of_runtimes(profile).beginnings
        self.builder = new_builder(profile)
        self._profile = profile
        self._context = context
        self._kustomizations = kustomizations
        self._documents = reader.documents
        self._kind = _search_of_kinds(kind for kind in KINDS if kind not in _KINDS_WITH_VARIABLES)
        self._has_variables = _search_of_kinds(_KINDS_WITH_VARIABLES)

    def may_matter(self, text: str) -> bool:
        if self._kind(text):
            return True
        # Most ConfigMaps and Secrets have nothing that matters.
        is_read = self._has_variables(text) and any(word in text for word in self._variables)
        is_other = MIG_CONFIGS in text or _may_share_cards(text) or _may_be_patch(text)
        return bool(is_read) or is_other

    def add(self, source: Source) -> None:
        context = self._context
        if not source.is_rendering:
            context = self._kustomizations.context_of(source.name, context)
        for chunk in split(source.text):
            if not self.may_matter(chunk.text) or definition_head(chunk.text):
                continue
            try:
                document = self._documents.read(chunk)
            except YamlError:
                continue  # the linter reports it
            if document is not None and _may_be_patch(chunk.text):
                add_gpu_patches(self.builder, document.value, self._profile)
            if document is not None and context.is_patch:
                # It says only a part of what its object says.
                add_patched_objects(
                    self.builder, document.value, context.namespace, source.namespace_stand_in
                )
            elif document is not None:
                add_objects(
                    self.builder, document.value, context.namespace, source.namespace_stand_in
                )
                if MIG_CONFIGS in chunk.text:
                    add_mig_configurations(self.builder, document.value)
                if _may_share_cards(chunk.text):
                    add_shares_to_inventory(self.builder, document.value, context.namespace)


def _may_share_cards(text: str) -> bool:
    """Return whether `text` may have a pod that asks for a share of a card on nodes of a pool."""
    return GPU_MEM in text and "nodeSelector" in text


def _may_be_patch(text: str) -> bool:
    """Return whether `text` may be a patch that gives devices to containers of another object."""
    return "limits" in text and "containers" in text and "image" not in text


def _search_of_kinds(kinds: Iterable[str]) -> Callable[[str], Any]:
    """The search of a text for one of `kinds`, in YAML or JSON, or for a list of them.

    The pattern begins with a fixed text, which Python looks for much faster.
    """
    return re.compile(rf"""kind["']?\s*:\s*["']?(?:{"|".join(sorted(kinds))})""").search


def _relevant_sources(
    inputs: Iterable[Input], may_matter: Callable[[str], bool], reader: InputReader
) -> Iterator[Source]:
    """The inputs that can be read twice, as far as their text may matter."""
    for given in inputs:
        sources = _sources_of_file(given, reader) if isinstance(given, InputFile) else (given,)
        yield from (s for s in sources if isinstance(s, Source) and may_matter(s.text))


def _sources_of_file(file: InputFile, reader: InputReader) -> Iterable[Input]:
    try:
        status = os.stat(file.name)
    except OSError:
        return ()  # the linter reports it
    if not stat.S_ISREG(status.st_mode):
        return ()
    if status.st_size < LARGE_BYTES:
        return (reader.read_ahead(file),)
    from sources.large_files import split_large_inputs  # noqa: PLC0415  # few are large

    return split_large_inputs((file,))
