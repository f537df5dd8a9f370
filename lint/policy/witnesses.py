"""Show by an object what a changed policy lets through.

The objects are small ones with each kind of finding of each rule, moved to where the policies
differ. Nothing is shown that the engine has not confirmed with both policies; then everything is
taken out of it without which they still differ.
"""

from __future__ import annotations

import copy
import datetime
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice, product, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from policies.openings import Box, Claim, Opening
from policies.policy import Policy
from rules.base.json_values import Json, as_object
from rules.base.json_values import Path as JsonPath
from rules.base.text_matching import matches
from rules.catalog.index import CATALOG
from rules.engine.bounds import TooManyStepsError
from rules.engine.evaluation import EvaluationResult
from rules.engine.fixing import check
from rules.engine.rule_set import RuleSet
from rules.finding import Action, Finding
from rules.gpu.components import DAEMON_SET_CONTROLLERS
from rules.inventory.inventory import EMPTY_INVENTORY
from rules.objects.container import CONTAINER_LISTS
from rules.placement.selected_cards import add_shares_to_inventory
from rules.profile.context import Context
from rules.profile.profile import Profile
from rules.workloads.referred_objects import add_objects, new_builder

MAX_TRIALS = 400
"""How many objects are tried to show one opening."""
_USER = "alice"
_TEMPLATE_KINDS = (
    *(("apps/v1", kind) for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")),
    ("batch/v1", "Job"),
    ("v1", "ReplicationController"),
    ("batch/v1", "CronJob"),
)
# What the API server demands of every object, by its last fields.
_NEEDED = (("apiVersion",), ("kind",), ("metadata",), ("metadata", "name"), ("spec",))
_NEEDED_OF_CONTAINERS = ("name", "image")
_NEEDED_OF_WORKLOADS = ("selector", "matchLabels", "template", "jobTemplate", "schedule", "spec")
_LABEL = "x"
_STATE_BY_ACTION = {Action.AUDIT: "noted", Action.WARN: "warned", Action.DENY: "refused"}
_FAMILY_BY_RULE = {rule.name: rule.family for rule in CATALOG}


class Witness(NamedTuple):
    """An object that the policies treat differently: `old` and `new` say how, for the rule `rule`.

    `beside` are other objects that a rule must know; `user` and `operation` are None for a file.
    """

    manifest: Any
    beside: list[Any]
    day: datetime.date
    user: str | None
    operation: str | None
    claim: Claim
    rule: str
    old: str
    new: str


class _Trial(NamedTuple):
    manifest: Any
    beside: list[Any]
    user: str | None
    operation: Any


class _Sample(NamedTuple):
    """An object with a finding of a rule; `request` has what a request with it needs."""

    manifest: Json
    beside: list[Json]
    request: Mapping[str, Any]


class WitnessFinder:
    """Finds objects that show the differences of two policies."""

    def __init__(self, old: Policy, new: Policy) -> None:
        self._rule_sets = (old.rule_set(), new.rule_set())

    def find(self, opening: Opening) -> Witness | None:
        """Return the smallest object that was found to show `opening`; None if none was."""
        for claim in opening.claims:
            for trial in islice(_trials(opening), MAX_TRIALS):
                if self._difference(trial, opening, claim) is not None:
                    least = self._smallest(trial, opening, claim)
                    if shown := self._difference(least, opening, claim):
                        return _witness(least, opening.day, claim, *shown)
        return None

    def _difference(
        self, trial: _Trial, opening: Opening, claim: Claim
    ) -> tuple[Finding, Finding | None] | None:
        """The finding that the old policy refuses or fixes, and what the new one has there."""
        old, new = (_checked(trial, rules, opening.day) for rules in self._rule_sets)
        if old is None or new is None:
            return None
        return first_difference(old, new, claim, opening.rules)

    def _smallest(self, trial: _Trial, opening: Opening, claim: Claim) -> _Trial:
        """Return `trial` without everything that it does without."""

        def shows(changed: _Trial) -> bool:
            return self._difference(changed, opening, claim) is not None

        for index in reversed(range(len(trial.beside))):
            less = trial._replace(beside=trial.beside[:index] + trial.beside[index + 1 :])
            if shows(less):
                trial = less
        manifest = smallest(trial.manifest, lambda raw: shows(trial._replace(manifest=raw)))
        return trial._replace(manifest=manifest)


def _witness(
    trial: _Trial, day: datetime.date, claim: Claim, finding: Finding, other: Finding | None
) -> Witness:
    return Witness(
        *(trial.manifest, trial.beside, day, trial.user, trial.operation, claim, finding.rule),
        old=_state(finding, claim),
        new="accepted" if other is None else _state(other, claim),
    )


def is_refusing(finding: Finding) -> bool:
    """Return whether a stored object with `finding` is refused in mode deny.

    A bypass that a policy fixes is refused where the fix is missing.
    """
    is_bypass = _FAMILY_BY_RULE.get(finding.rule) == "bypass"
    return finding.action is Action.DENY or (finding.fixable and is_bypass)


def first_difference(
    old: EvaluationResult,
    new: EvaluationResult,
    claim: Claim,
    rules: Iterable[str] | None = None,
) -> tuple[Finding, Finding | None] | None:
    """The first finding of `old` that refutes that `new` refuses, or fixes, what `old` does.

    With it, the finding of `new` at the same spot, if there is one. None if there is no difference.
    Only findings of `rules` count, if they are given.
    """
    if any(map(is_refusing, new.findings)):
        return None
    others = {_spot(finding): finding for finding in new.findings}
    fixed = {_spot(finding) for finding in new.findings if _is_fixed(finding)}
    wanted = None if rules is None else frozenset(rules)
    for finding in old.findings:
        if wanted is None or finding.rule in wanted:
            is_open = _is_fixed(finding) and _spot(finding) not in fixed
            if is_refusing(finding) if claim == "refuses" else is_open:
                return finding, others.get(_spot(finding))
    return None


def _is_fixed(finding: Finding) -> bool:
    return finding.fixable and finding.action >= Action.AUDIT


def _spot(finding: Finding) -> tuple[Any, ...]:
    return finding.object, finding.stable_path, finding.container_name, finding.key


def _state(finding: Finding, claim: Claim) -> str:
    """Return what a policy does with `finding`, in words."""
    if not _is_fixed(finding):
        return "refused" if is_refusing(finding) else _STATE_BY_ACTION.get(finding.action, "noted")
    if claim == "fixes":
        return "fixed"
    state = "refused" if is_refusing(finding) else _STATE_BY_ACTION[finding.action]
    return f"{state} unless fixed"


def _checked(trial: _Trial, rules: RuleSet, day: datetime.date) -> EvaluationResult | None:
    """The result for an object; None if it has none."""
    context = Context(
        today=day,
        user=trial.user,
        operation=trial.operation,
        namespace=as_object(as_object(trial.manifest).get("metadata")).get("namespace"),
        inventory=_inventory(trial.beside, rules.profile) if trial.beside else EMPTY_INVENTORY,
    )
    try:
        result = check(trial.manifest, rules, context)
    except TooManyStepsError:
        return None
    return None if result.failures or result.malformed_fields else result


def _inventory(manifests: Iterable[Json], profile: Profile) -> Any:
    builder = new_builder(profile)
    builder.nodes.has_all = True
    for manifest in manifests:
        add_objects(builder, manifest, None)
        add_shares_to_inventory(builder, manifest, None)
    return builder.inventory()


def smallest(manifest: Json, shows: Any) -> Json:
    """Return `manifest` without everything that `shows` is true without.

    What every object needs stays: its kind and name, and a container's name and image.
    """
    is_changed = True
    while is_changed:
        is_changed = False
        # Whole parts first; from the end, so that indices before stay.
        for path in sorted(
            removable_paths(manifest), key=lambda path: (len(path), *path_key(path))
        ):
            less = without(manifest, path)
            if less is not None and shows(less):
                manifest, is_changed = less, True
                break
    return manifest


def path_key(path: JsonPath) -> tuple[str, ...]:
    """A key by which paths are sorted: indices are numbers, and others are text."""
    return tuple(map(str, path))


def removable_paths(value: Json, path: JsonPath = ()) -> Iterator[JsonPath]:
    """Yield each path of a manifest that an object may do without."""
    if isinstance(value, dict):
        for key, inner in value.items():
            here = (*path, key)
            if not _is_needed(here, value):
                yield here
            yield from removable_paths(inner, here)
    elif isinstance(value, list):
        is_list_of_containers = path[-1:] == ("containers",)
        for index, inner in enumerate(value):
            here = (*path, index)
            if not (is_list_of_containers and len(value) == 1):
                yield here
            yield from removable_paths(inner, here)


def _is_needed(path: JsonPath, holder: Mapping[str, Any]) -> bool:
    last = path[-1]
    if path in _NEEDED or last == "containers":
        return True
    if path[-3:-2] and path[-3] in CONTAINER_LISTS:
        return last in _NEEDED_OF_CONTAINERS
    if path[-2:-1] == ("template",) or (last == "labels" and "template" in path):
        return True
    # A selector, and the label that it selects.
    return last in _NEEDED_OF_WORKLOADS or (last == "app" and holder["app"] == _LABEL)


def without(manifest: Json, path: JsonPath) -> Json | None:
    """Return a copy of `manifest` without what is at `path`; None if that is not there."""
    changed = copy.deepcopy(manifest)
    holder: Any = changed
    for step in path[:-1]:
        holder = holder[step]
    del holder[path[-1]]
    return changed


@cache
def _samples() -> Mapping[str, list[_Sample]]:
    """Objects with findings of each rule, the smallest first. `make docs` writes the file."""
    path = Path(__file__).with_name("samples.json")
    raw: Mapping[str, list[dict[str, Any]]] = json.loads(path.read_text(encoding="utf-8"))
    return {rule: [_Sample(**one) for one in samples] for rule, samples in raw.items()}


def _trials(opening: Opening) -> Iterator[_Trial]:
    """Yield objects that may show `opening`, the likeliest first."""
    samples = [one for rule in opening.rules for one in _samples()[rule]]
    placed = [_placed(sample.manifest, opening) for sample in samples]
    # In turn, so that many choices for one do not leave out the others.
    for manifests in zip_longest(*placed):
        for sample, manifest in zip(samples, manifests, strict=True):
            if manifest is not None:
                for user, operation in _requests(opening, sample):
                    yield _Trial(manifest, sample.beside, user, operation)


def _requests(opening: Opening, sample: _Sample) -> Iterator[tuple[str | None, Any]]:
    """Yield users and operations; offline, both are unknown."""
    if opening.component is not None:
        for user in opening.component.creators or DAEMON_SET_CONTROLLERS[:1]:
            yield user, "CREATE"
    if sample.request:
        yield sample.request.get("user"), sample.request.get("operation")
        return
    yield _USER, "CREATE"
    yield None, None
    for text in opening.texts:
        if text.startswith("system:"):
            yield text.replace("*", "x"), "CREATE"


def _placed(manifest: Json, opening: Opening) -> Iterator[Json]:
    """Yield the manifest where the policies differ, with choices for what patterns leave."""
    for raw in _with_option_values(manifest, opening):
        if not isinstance(raw, dict):
            continue
        if not opening.boxes[0]:
            yield raw
            continue
        kinds = opening.boxes[0].get("kinds", "*")
        for holder in _of_kind(raw, kinds):
            yield from _moved(holder, opening.boxes)


def _of_kind(manifest: Mapping[str, Any], pattern: str) -> Iterator[Mapping[str, Any]]:
    """Yield the manifest if its kind fits; a Pod also as the template of a kind that does."""
    kind = str(manifest.get("kind"))
    if matches(pattern, kind):
        yield manifest
    elif kind == "Pod":
        for version, other in _TEMPLATE_KINDS:
            if matches(pattern, other):
                yield _workload(manifest, version, other)


def _workload(pod: Mapping[str, Any], version: str, kind: str) -> dict[str, Any]:
    """The workload whose pods are as `pod`."""
    metadata = dict(as_object(pod.get("metadata")))
    own = {key: metadata.pop(key) for key in ("name", "namespace") if key in metadata}
    labels = {"app": _LABEL, **as_object(metadata.get("labels"))}
    metadata["labels"] = labels
    spec: dict[str, Any] = {"template": {"metadata": metadata, "spec": pod.get("spec")}}
    if version == "apps/v1":
        spec = {"selector": {"matchLabels": {"app": _LABEL}}, **spec}
    if kind == "CronJob":
        spec = {"schedule": "0 0 * * *", "jobTemplate": {"spec": spec}}
    return {"apiVersion": version, "kind": kind, "metadata": own, "spec": spec}


def _moved(manifest: Mapping[str, Any], boxes: tuple[Box, ...]) -> Iterator[Json]:
    """Yield the manifest with names and images that fit `boxes`, one container for each of them."""
    box = boxes[0]
    metadata = as_object(manifest.get("metadata"))
    pods = list(_pod_specs(manifest))
    pod = as_object(_at(manifest, pods[0])) if pods else {}
    containers = [c for key in CONTAINER_LISTS for c in pod.get(key) or [] if isinstance(c, dict)]
    first: Mapping[str, Any] = containers[0] if containers else {}
    choices = [
        list(_fillings(box.get("namespaces"), str(metadata.get("namespace") or "x"))),
        list(_fillings(box.get("names"), str(metadata.get("name") or "x"))),
        list(_fillings(box.get("service_accounts"), str(pod.get("serviceAccountName") or "x"))),
        list(_fillings(box.get("images"), str(first.get("image") or "x"), is_image=True)),
        list(_fillings(box.get("containers"), str(first.get("name") or "x"))),
    ]
    for namespace, name, account, image, container in product(*choices):
        raw = copy.deepcopy(dict(manifest))
        own = dict(as_object(raw.get("metadata")))
        raw["metadata"] = own
        own.update({key: v for key, v in (("namespace", namespace), ("name", name)) if v})
        for path in pods:
            spec: Any = _at(raw, path)
            if account:
                spec["serviceAccountName"] = account
            if len(boxes) > 1:
                _copy_container(spec, boxes)
            else:
                _rename(spec, image, container)
        yield raw


def _rename(spec: dict[str, Any], image: str | None, container: str | None) -> None:
    """Give the containers of a pod this image, and the first one this name."""
    of_pod = [c for key in CONTAINER_LISTS for c in spec.get(key) or [] if isinstance(c, dict)]
    for number, each in enumerate(of_pod):
        if image:
            each["image"] = image
        if container and number == 0:
            each["name"] = container


def _copy_container(spec: dict[str, Any], boxes: tuple[Box, ...]) -> None:
    """Put a copy of the first container into the pod for each of `boxes`, and no other."""
    first = dict((spec.get("containers") or [{}])[0])
    own = str(first.get("name", "x"))
    kept: dict[str, dict[str, Any]] = {}
    for number, box in enumerate(boxes):
        name = box.get("containers", "*").replace("*", own)
        name = f"{name}-{number}" if name in kept else name
        image = box.get("images", str(first.get("image", "x"))).replace("*", "x")
        kept[name] = {**copy.deepcopy(first), "name": name, "image": image}
    spec["containers"] = list(kept.values())
    for other in CONTAINER_LISTS:
        if other != "containers":
            spec.pop(other, None)


def _fillings(pattern: str | None, own: str, *, is_image: bool = False) -> Iterator[str | None]:
    """Yield texts that fit `pattern`, beginning with those near to `own`; None for no pattern."""
    if pattern is None:
        yield None
        return
    if "*" not in pattern:
        yield pattern
        return
    if matches(pattern, own):
        yield own
    fillings = ["x", own, "1"]
    if is_image:
        repository, _, tag = own.rpartition(":")
        fillings = ["x", own, repository or own, (repository or own).partition("/")[2], tag, "a/x"]
    seen = {own}
    for filling in fillings:
        text = pattern.replace("*", filling)
        if text not in seen:
            seen.add(text)
            yield text


def _pod_specs(value: Any, path: JsonPath = ()) -> Iterator[JsonPath]:
    """Yield the paths of the pods in a manifest."""
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield path
            return
        for key, inner in value.items():
            yield from _pod_specs(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _pod_specs(inner, (*path, index))


def _at(value: Any, path: JsonPath) -> Any:
    for step in path:
        value = value[step]
    return value


def _with_option_values(manifest: Json, opening: Opening) -> Iterator[Json]:
    """Yield the manifest, and then with values of options in the places that options are about."""
    yield manifest
    raw = as_object(manifest)
    for number in opening.numbers:
        yield _with_numbers(manifest, number)
    for text in dict.fromkeys(one.replace("*", "x") for one in opening.texts):
        changed = copy.deepcopy(dict(raw))
        changed["metadata"] = {**as_object(changed.get("metadata")), "namespace": text}
        yield changed
        for path in _pod_specs(raw):
            for suffix in ("", "/x", ":1", f"@sha256:{'0' * 64}"):
                changed = copy.deepcopy(dict(raw))
                _rename(_at(changed, path), f"{text}{suffix}", None)
                yield changed
            changed = copy.deepcopy(dict(raw))
            _at(changed, path)["priorityClassName"] = text
            yield changed


def _with_numbers(value: Json, number: int) -> Json:
    """Return `value` with `number` for every whole number."""
    if isinstance(value, dict):
        return {key: _with_numbers(inner, number) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_numbers(inner, number) for inner in value]
    if type(value) is int:
        return number
    return str(number) if isinstance(value, str) and value.isdigit() else value
