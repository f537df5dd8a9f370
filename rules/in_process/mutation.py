"""The words of fixes in CEL, beside those of statements.

- `$places` are the containers: each has `c`, as in statements, and `at`, its JSON Pointer.
- `$requested` has the names of the GPU resources that the pod requests, and `$fractionResources`
  those of the nodes with the parts of GPUs that its annotations ask for.
- `$mayBePlaced` is `placement_skip_reason(pod) is None`, `$mayNameScheduler` that of
  `scheduler_skip_reason`.

Policies that fix need Kubernetes 1.36, so they may use more functions than statements.
"""

from collections.abc import Iterable, Iterator

from rules.in_process.nodes import PREFERRED_TERMS, REQUIRED_TERMS, scheduler, tolerates
from rules.in_process.patterns import matches_any
from rules.in_process.requests import fraction_resources
from rules.in_process.statement import HIDE, REMOVE, Mutation, any_of, cel
from rules.in_process.vocabulary import Variable, resolve
from rules.objects.pod import DEFAULT_SCHEDULER
from rules.placement.tolerations import words_of_key
from rules.profile.profile import NodeAffinity, Profile, Scheduler, Taint


def mutation_words(profile: Profile) -> Iterator[Variable]:
    """The variables of fixes; those of `vocabulary` come before them."""
    number = "$spec.?initContainers.orValue([]).size()"
    init, app = '"/spec/initContainers/" + string(i)', f'"/spec/containers/" + string(i - {number})'
    known = sorted({DEFAULT_SCHEDULER, *profile.scheduler_names})
    daemon = 'o.kind == "DaemonSet" && o.?controller.orValue(false)'
    fields = "t.?matchFields.orValue([])"
    pinned = f'{REQUIRED_TERMS}.exists(t, {fields}.exists(f, f.key == "metadata.name"))'
    texts = {
        "places": (
            '$containers.transformList(i, c, {"c": dyn(c),'
            f' "at": dyn(i < {number} ? {init} : {app})}})'
        ),
        "requested": "$requesting.map(k, k.devices.map(d, string(d.name))).flatten()",
        "fractionResources": fraction_resources(profile),
        "mayNameScheduler": '$spec.?nodeName.orValue("") == ""',
        "mayBePlaced": (
            f"$mayNameScheduler && !$metadata.?ownerReferences.orValue([]).exists(o, {daemon})"
            f" && !{pinned} && $spec.?schedulingGates.orValue([]).size() == 0"
            f" && {scheduler()} in {cel(known)}"
        ),
    }
    for name, text in texts.items():
        yield Variable(name, resolve(text, old=False))


def requests_any(patterns: Iterable[str]) -> str:
    """Return, as CEL, whether the pod requests a resource whose name matches one of `patterns`."""
    return f"$requested.exists(n, {matches_any('n', patterns)})"


def is_about(fact: Taint | NodeAffinity | Scheduler) -> str:
    """Return, as CEL, whether `matching_resource` finds a resource."""
    if isinstance(fact, Scheduler):
        others = [f"{cel(key)} in $annotations" for key in fact.annotations]
    else:
        others = [f"$fractionResources.exists(n, {matches_any('n', fact.resources)})"]
    return any_of((requests_any(fact.resources), *others))


def label_keys() -> str:
    """`referenced_label_keys`."""
    keys = "matchExpressions.orValue([]).map(x, string(x.key))).flatten()"
    return (
        "($spec.?nodeSelector.orValue({}).map(k, string(k))"
        f" + {REQUIRED_TERMS}.map(t, t.?{keys} + {PREFERRED_TERMS}.map(t, t.?preference.?{keys})"
    )


def is_meant_for(taint: Taint) -> str:
    """Return, as CEL, whether the toleration `t` tolerates `taint` or is a misspelling of that.

    `misspelt_toleration` finds the same misspellings.
    """
    words = cel(words_of_key(taint.key))
    own = (
        't.key.lowerAscii().findAll("[a-z0-9]+").filter(w, w != "com")'
        '.map(w, w.endsWith("s") ? w.substring(0, w.size() - 1) : w)'
    )
    meant = f't.?key.orValue("") != "" && (t.key == {cel(taint.key)} || {own} == {words})'
    return any_of((tolerates(taint), meant))


MAX_WORDS = 100
"""With more words in its command, no fix takes a variable from a container."""
MAX_TEXT_CHARACTERS = 20_000
"""With more characters in its command and the values of its variables, no fix does so."""


def visibility_mutations(where: str) -> tuple[Mutation, ...]:
    """`visibility_fix` of the variables that `where` fits."""
    from_plugin = "c.requestsGpu && c.fromPlugin"
    is_safe = f"v.isForRequest && !{_is_referred_to()}"
    return (
        Mutation("variable", f"{where} && {from_plugin}", REMOVE, is_safe),
        Mutation(
            "variable", f"{where} && !({from_plugin})", HIDE, "c.requestsGpu && v.isForRequest"
        ),
    )


def _is_referred_to() -> str:
    """`_is_referred_to`; a container with too much to search counts as one that refers to it."""
    reference = '"$(" + v.name + ")"'
    words = "(c.raw.?command.orValue([]) + c.raw.?args.orValue([]))"
    values = 'c.raw.?env.orValue([]).map(e, e.?value.orValue(""))'
    long = f"{words}.size() > {MAX_WORDS}"
    sizes = f"({words} + {values}).map(t, t.size()).sum() > {MAX_TEXT_CHARACTERS}"
    return f"({long} || {sizes} || ({words} + {values}).exists(t, t.contains({reference})))"
