"""Pods that `gpu-node-without-request` finds on GPU nodes: why they are there, what they take."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from cluster.accounting.pods_without_gpu import RULE, PodWithoutGpu, taken_without_gpu
from cluster.accounting.usage import Usage
from cluster.audit.evaluation import Evaluated
from cluster.gpus.document import pod_without_gpu_document, stranded_by_pods_without_gpu
from cluster.gpus.tables import cpu_text, memory_text, words_about_pods_without_gpu
from cluster.snapshot.snapshot import Snapshot
from cluster.source.objects import NODES, namespace_in
from reports.formats import many, some
from reports.results import PodsWithoutGpu, Remark
from rules.objects.object_ref import ObjectRef
from terminal import printable

_MAX_REMARKS = 20


class PodsOnGpuNodes:
    """Collects the pods of which the rule says that they run on a GPU node.

    `namespace` is the only one that is audited; None for all. `owner_of` is who controls a pod in
    the end.
    """

    def __init__(self, namespace: str | None, owner_of: Callable[[Evaluated], ObjectRef]) -> None:
        self._namespace = namespace
        self._owner_of = owner_of
        self._names: set[tuple[str, str]] = set()
        self._kept_off: dict[str, Counter[str]] = defaultdict(Counter)
        self._usage = Usage((), ())

    def add(self, evaluated: Evaluated) -> None:
        """Add the object, if it is such a pod."""
        if evaluated.ref.kind != "Pod":
            return
        if evaluated.is_kept_off or any(f.rule == RULE for f in evaluated.findings):
            self._names.add((namespace_in(evaluated.raw), evaluated.ref.name))
        if evaluated.is_kept_off:
            owner = self._owner_of(evaluated)
            name = f"{owner.kind}/{owner.name}".lower()
            self._kept_off[namespace_in(evaluated.raw)][name] += 1

    @property
    def kept_off(self) -> Mapping[str, Sequence[str]]:
        """Return who makes pods that would be kept off the GPU nodes where they run, by namespace.

        Mode `deny` would fix their pods, and not refuse them, if they were created again.
        """
        return {namespace: [*owners] for namespace, owners in self._kept_off.items()}

    def read(self, snapshot: Snapshot) -> None:
        """Count what the pods take, if there are any: `gpuward gpus` counts the same.

        It lists all pods and nodes again. Raises SourceError if that fails.
        """
        if not self._names:
            return
        account = snapshot.count(self._namespace)
        if error := snapshot.missing.get(NODES):
            raise error
        account.keep_pods_without_gpu(self._names)
        self._usage = snapshot.usage(account, self._namespace)

    def remarks_about_kept_off(self) -> Iterator[Remark]:
        """Yield the pods that would be kept off, for each of the namespaces with most of them."""
        most = sorted(self._kept_off.items(), key=lambda each: (-each[1].total(), each[0]))
        for namespace, owners in most[:_MAX_REMARKS]:
            pods = f"{many(owners.total(), 'pod')} on GPU nodes would be kept off them"
            yield _note(f"namespace {namespace}: {pods}, not refused: {some([*owners])}")
        if rest := most[_MAX_REMARKS:]:
            pods = many(sum(owners.total() for _, owners in rest), "pod")
            yield _note(f"{many(len(rest), 'more namespace')}: {pods} would be kept off GPU nodes")

    def results(self) -> list[PodsWithoutGpu]:
        """The pods for programs; none if there are none.

        What they strand is not known of one namespace alone, as other pods use the nodes too.
        """
        pods = [pod_without_gpu_document(pod) for pod in self._usage.without_gpu]
        stranded = {} if self._namespace else stranded_by_pods_without_gpu(self._usage)
        return [PodsWithoutGpu("", pods, stranded)] if pods else []

    def remarks(self) -> Iterator[Remark]:
        """Yield what all take, and what those of each owner take: those with the most CPU first."""
        said = words_about_pods_without_gpu(self._usage, are_all=self._namespace is None)
        if not said:
            return
        yield _note(said)
        groups: dict[tuple[str, str, str], list[PodWithoutGpu]] = defaultdict(list)
        for pod in self._usage.without_gpu:
            groups[pod.namespace, pod.owner, pod.why].append(pod)
        taken = {group: taken_without_gpu(pods) for group, pods in groups.items()}
        most = sorted(taken, key=lambda group: (-taken[group].cpu, group))
        for group in most[:_MAX_REMARKS]:
            namespace, owner, why = group
            of_group, nodes = taken[group], sorted({pod.node for pod in groups[group]})
            where = f"node {printable(nodes[0])}" if len(nodes) == 1 else f"{len(nodes):,} nodes"
            yield _note(
                f"namespace {namespace}: {printable(owner)}: {many(of_group.pods, 'pod')} on "
                f"{where} without a GPU ({why}): {cpu_text(of_group.cpu)} CPU, "
                f"{memory_text(of_group.memory)} memory"
            )
        if rest := most[_MAX_REMARKS:]:
            pods = sum(taken[group].pods for group in rest)
            yield _note(f"{many(pods, 'more pod')} without a GPU of {many(len(rest), 'owner')}")


def _note(text: str) -> Remark:
    return Remark("note", "", 0, 0, text, is_always_shown=True)
